"""The console over HTTP: static files, login, and what the pages ask. An ASGI application.

All but the static files and the login needs a login. What waits for the server runs on threads.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from connectors.flight_server import NoServer, NotLetIn
from planner.errors import (
    BadParameter,
    FederationError,
    InternalError,
    LimitExceeded,
    NotAllowed,
    Overloaded,
    RequestError,
    StalePlan,
    Unavailable,
    UnknownTable,
)
from proxy.process.asgi import Receive, Scope, Send
from thermocline.console import guard
from thermocline.console.logins import BrowserLogins, Login
from thermocline.console.person import Document, LoginForm, Person, Poll
from thermocline.console.routes import ROUTES, Answer, PageCall, Polled

if TYPE_CHECKING:
    from thermocline.console.identity_provider import IdentityProvider

_log = logging.getLogger(__name__)
T = TypeVar("T")
#: Requests that wait for the server at once; others wait for a thread.
_THREADS = 32
#: Of one login.
_MAX_AT_WORK = 12
#: Logins that are checked at once, and that wait for it: each has a connection opened, and a password hashed by the server.
_ENTRIES = 4
_MAX_ENTERING = 64
#: A statement, or a login.
_MAX_BODY_BYTES = 1 << 20
#: How long it is remembered whether the server asks for a login.
_OPEN_S = 30.0
_JSON = "application/json"
_KINDS = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_STATUS: list[tuple[type[FederationError], int]] = [
    (NotLetIn, 401),
    (UnknownTable, 404),
    (RequestError, 400),
    (Unavailable, 503),
    (StalePlan, 409),
    (LimitExceeded, 413),
]


class ConsoleApplication:
    """Close it when its port is closed. ``port`` is the one that browsers see."""

    def __init__(
        self,
        uri: str,
        log_in: Callable[[LoginForm], Person],
        *,
        is_secure: bool,
        provider: IdentityProvider | None = None,
    ) -> None:
        """``uri`` names the server to people, ``log_in`` asks it (``Person``); with ``is_secure`` browsers come by https.

        Of a ``provider`` come tokens that the server takes.
        """
        self._uri = uri
        self._person = log_in
        self._provider = provider
        self._is_secure = is_secure
        self.port = 0
        self._logins = BrowserLogins()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="console")
        self._entries = _Entries("console-login")
        #: Apart: a provider that hangs keeps no other login waiting.
        self._at_provider = _Entries("console-provider")
        self._files = _static_files()
        self._is_open: tuple[bool, float] | None = None
        #: Tasks: the loop alone would forget them.
        self._asking: set[asyncio.Task[None]] = set()

    def tidy(self) -> None:
        """End the logins that are over: their passwords stay in memory no longer."""
        self._logins.tidy()

    def close(self) -> None:
        self._logins.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._entries.close()
        self._at_provider.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._answered(request)
        except ClientDisconnect:
            return
        if request.method == "HEAD":
            response.body = b""
        await guard.guarded(response)(scope, receive, send)

    async def _answered(self, request: Request) -> Response:
        path = request.scope["path"]
        if not path.startswith("/api/"):
            return self._file(request, path)
        if guard.is_foreign(request):
            return _refusal(403, "NotAllowed", "this request comes from another site.")
        try:
            match request.method, path:
                case "POST", "/api/login":
                    return await self._log_in(request)
                case "POST", "/api/login/provider":
                    return await self._leave_for_provider(request)
                case "POST", "/api/logout":
                    return self._log_out(request)
                case "GET", "/api/open":
                    is_open = await self._entries.work(self._asks_no_login)
                    at = None if self._provider is None else self._provider.host
                    document = {"is_open": is_open, "server": self._uri, "provider": at}
                    return JSONResponse(document)
            login = self._logins.login(request.cookies.get(self._cookie))
            if login is None:
                return _refusal(401, "NotLetIn", "log in first.")
            return await self._of_login(request, login)
        except FederationError as error:
            if isinstance(error, NotLetIn):
                self._logins.leave(request.cookies.get(self._cookie))
            return _failure(error)
        except Exception as error:  # noqa: BLE001 - a fault must not reach the browser as a traceback
            _log.exception("%s failed", path)
            return _failure(
                InternalError(f"the console met {type(error).__name__}; report it.")
            )

    @property
    def _cookie(self) -> str:
        return guard.cookie_name(self.port, is_secure=self._is_secure)

    @property
    def _begun_cookie(self) -> str:
        """Name what a login at a provider needs until its end."""
        return f"{self._cookie}_begun"

    def _file(self, request: Request, path: str) -> Response:
        if request.method not in ("GET", "HEAD"):
            return _refusal(405, "RequestError", "this address is only read.")
        name = "index.html" if path == "/" else path.removeprefix("/static/")
        if name not in self._files or (name == "index.html" and path != "/"):
            return _refusal(404, "RequestError", "there is nothing at this address.")
        body, etag = self._files[name]
        headers = {"cache-control": "no-cache", "etag": etag}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=_KINDS[name.rpartition(".")[2]], headers=headers)

    async def _log_in(self, request: Request) -> Response:
        form = await _document(request)
        user, password, token = (_text(form, name) for name in ("user", "password", "token"))
        code = _text(form, "code")
        if code:
            token = await self._token_of(request, code, _text(form, "state"))
        if token and user:
            raise BadParameter(
                "log in with a name and a password, or with a token, not with both."
            )
        if not (token or user or guard.is_address(request.headers.get("host", ""))):
            raise NotAllowed(
                "without a user the console is open under its address alone; name it by its IP address, or as localhost."
            )
        credentials = LoginForm(user or None, password if user else None, token or None)
        person = await self._entries.work(functools.partial(self._person, credentials))
        self._logins.leave(request.cookies.get(self._cookie))
        response = JSONResponse({"name": person.name, "server": self._uri})
        if code:
            # What it was begun with is good for one login (RFC 9700, section 4.7.1).
            self._set_cookie(request, response, self._begun_cookie, "")
        self._set_cookie(request, response, self._cookie, self._logins.enter(person))
        return response

    def _set_cookie(self, request: Request, response: Response, name: str, value: str) -> None:
        # A proxy in front may speak TLS where this process does not: browsers then name an origin of https.
        is_secure = self._is_secure or request.headers["origin"].startswith("https://")
        guard.set_cookie(response, name, value, is_secure=is_secure)

    async def _leave_for_provider(self, request: Request) -> Response:
        """Name the address where a browser logs in; the provider sends it back to the first page."""
        provider = self._own_provider()
        await _document(request)
        begin = functools.partial(provider.begin, _first_page(request))
        address, begun = await self._at_provider.work(begin)
        response = JSONResponse({"address": address})
        self._set_cookie(request, response, self._begun_cookie, begun)
        return response

    async def _token_of(self, request: Request, code: str, state: str) -> str:
        begun = request.cookies.get(self._begun_cookie, "")
        token = self._own_provider().token
        return await self._at_provider.work(
            functools.partial(token, _first_page(request), begun, code, state)
        )

    def _own_provider(self) -> IdentityProvider:
        if self._provider is None:
            raise BadParameter("this console knows no identity provider.")
        return self._provider

    def _log_out(self, request: Request) -> Response:
        self._logins.leave(request.cookies.get(self._cookie))
        response = JSONResponse({})
        guard.set_cookie(response, self._cookie, "", is_secure=self._is_secure)
        return response

    def _asks_no_login(self) -> bool:
        """Return whether the server answers callers without a name, as that of the demo does."""
        now_s = time.monotonic()
        if self._is_open is None or now_s - self._is_open[1] > _OPEN_S:
            try:
                self._person(LoginForm()).close()
                self._is_open = True, now_s
            except NotLetIn:
                self._is_open = False, now_s
        return self._is_open[0]

    async def _of_login(self, request: Request, login: Login) -> Response:
        route, names = _route(request.method, request.scope["path"])
        body = await _document(request) if request.method == "POST" else {}
        query = dict(request.query_params) | names
        call = PageCall(login.person, login.statements, query, body, self._uri)
        answer: Answer = await self._on_thread(functools.partial(route, call), login)
        if isinstance(answer, Response):
            return answer
        if isinstance(answer, Polled):
            return await self._polled(request, login, answer)
        return Response(_written(answer.document), media_type=_JSON)

    async def _polled(self, request: Request, login: Login, polled: Polled) -> Response:
        poll, is_mine = login.person.poll(polled.page)
        if is_mine:
            # Not awaited here: who asked first may be gone before it is answered.
            task = asyncio.create_task(self._ask(poll, polled, login))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        text = _written(await asyncio.shield(asyncio.wrap_future(poll.answer)))
        tag = f'"{hashlib.blake2s(text, digest_size=12).hexdigest()}"'
        headers = {"etag": tag, "x-due-ms": str(max(0, round(poll.due_s * 1000)))}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(text, media_type=_JSON, headers=headers)

    async def _ask(self, poll: Poll, polled: Polled, login: Login) -> None:
        try:
            await self._on_thread(functools.partial(poll.work, polled.ask), login)
        except Overloaded as error:
            poll.answer.set_exception(error)

    async def _on_thread(self, work: Callable[[], T], login: Login) -> T:
        """Do work of one login, of which no login may have many at once: the threads are for all."""
        if login.at_work >= _MAX_AT_WORK:
            raise Overloaded("this login asks for too much at once; try again.")
        login.at_work += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            login.at_work -= 1


class _Entries:
    """Threads for browsers that are not logged in; such wait for each other, and never for those that are."""

    def __init__(self, name: str) -> None:
        self._threads = ThreadPoolExecutor(_ENTRIES, thread_name_prefix=name)
        #: Counted by the event loop alone.
        self._entering = 0

    async def work(self, work: Callable[[], T]) -> T:
        if self._entering >= _MAX_ENTERING:
            raise Overloaded("too many log in at once; try again.")
        self._entering += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._entering -= 1

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _first_page(request: Request) -> str:
    """Return its address as the browser has it, which a provider is to know."""
    return f"{request.headers['origin']}/"


def _written(document: Document) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _route(method: str, path: str) -> tuple[Callable[[PageCall], Answer], dict[str, str]]:
    parts = path.removeprefix("/api/").split("/")
    for (of_method, pattern), route in ROUTES.items():
        pattern_parts = pattern.split("/")
        if of_method == method and len(parts) == len(pattern_parts):
            pairs = list(zip(pattern_parts, parts, strict=True))
            if all(each.startswith("{") or each == part for each, part in pairs):
                return route, {each[1:-1]: part for each, part in pairs if each[0] == "{"}
    raise UnknownTable("there is nothing at this address.")


async def _document(request: Request) -> dict[str, Any]:
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise BadParameter("the console reads JSON.")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _MAX_BODY_BYTES:
            raise LimitExceeded(f"a request may have {_MAX_BODY_BYTES:,} bytes.")
    try:
        document = json.loads(body)
        # JSON can spell half a character, which is no text.
        json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise BadParameter("the request is no JSON object.")
    return document


def _text(form: dict[str, Any], name: str) -> str:
    value = form.get(name) or ""
    if not isinstance(value, str) or "\0" in value:
        raise BadParameter(f"{name} is a text.")
    return value


def _failure(error: FederationError) -> Response:
    status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
    sentence = error.message
    if isinstance(error, NoServer):
        sentence = "the server does not answer; the page goes on once it does."
    return _refusal(status, type(error).__name__, sentence)


def _refusal(status: int, kind: str, sentence: str) -> Response:
    return JSONResponse({"error": {"class": kind, "message": sentence}}, status)


def _static_files() -> dict[str, tuple[bytes, str]]:
    """Read all of them, with the tag that a browser asks again with."""
    files = {}
    for file in (resources.files(__package__) / "static").iterdir():
        if file.name.rpartition(".")[2] in _KINDS:
            body = file.read_bytes()
            files[file.name] = (body, f'"{hashlib.blake2s(body, digest_size=12).hexdigest()}"')
    return files
