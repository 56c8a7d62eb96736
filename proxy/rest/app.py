"""The Iceberg REST specification over HTTP: addresses, callers, answers. What is answered is etags to ``LiveCatalog``.

Only reading is served. Every other method on a path of the specification is refused with 403 and the catalog to write to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar
from urllib.parse import parse_qs, unquote, unquote_plus

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from planner.errors import BadParameter, Cancelled, NotAllowed, Overloaded
from planner.live.client_answers import RestClient, client_of
from planner.names import TableName
from proxy.access.authentication.callers import Unauthenticated, login_of
from proxy.flightsql.middleware import CallGate
from proxy.flightsql.state.client_session import OF_ONE_CALL, with_settings
from proxy.ops.call_record import CallRecord, Journal
from proxy.process.asgi import Receive, Scope, Send
from proxy.rest.admission import Loads, Logins
from proxy.rest.catalog import SEPARATOR, LiveCatalog, Page, TableRequest
from proxy.rest.errors import (
    RETRY_AFTER_S,
    BodyTooLarge,
    UnknownEndpoint,
    UnknownView,
    answer_of,
)
from proxy.rest.warehouses import Warehouse
from proxy.session import Deadline, Session

#: Requests at work; others wait for a thread.
_THREADS = 32
#: A report of metrics has some kilobytes. It is not read.
_MAX_BODY_BYTES = 1 << 20
#: A form with a name and a password, from any caller.
_MAX_FORM_BYTES = 64 * 1024
_MAX_FIELDS = 100
#: Of a load, also where the user's statements may take longer: engines give up after a minute.
_LONGEST_LOAD_S = 60.0
_READING = ("GET", "HEAD")
_LOADED = "LoadTable"


@dataclass(frozen=True, slots=True)
class _Load:
    """A load that was let in, to be worked on once its user has a slot."""

    user: str | None
    deadline: Deadline
    work: Callable[[], Response]


@dataclass(frozen=True, slots=True)
class _Call:
    """A request: its record, and its client where that gets other answers than most."""

    record: CallRecord
    client: RestClient | None


_Answer = TypeVar("_Answer", bound=Response | _Load | Session)


class RestApplication:
    """An ASGI application. ``journals`` get the record of each load, and of each refusal."""

    def __init__(
        self, catalog: LiveCatalog, gate: CallGate, journals: Sequence[Journal] = ()
    ) -> None:
        self._catalog = catalog
        self._gate = gate
        self._journals = journals
        self._loads = Loads()
        self._logins = Logins()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="iceberg-rest")

    def close(self) -> None:
        """End the threads, without waiting for abandoned work."""
        self._logins.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        record = CallRecord("IcebergRest")
        try:
            body = await _body(request)
        except ClientDisconnect:
            return
        except BodyTooLarge as error:
            status, document = answer_of(error, record)
            await JSONResponse(document, status)(scope, receive, send)
            return
        call = _Call(record, client_of(request.headers.get("user-agent", "")))
        answer = await self._entered(request, body, call)
        if isinstance(answer, _Load):
            answer = await self._loaded(answer, call, receive)
        if request.method == "HEAD":
            answer = Response(status_code=answer.status_code, headers=_bodiless(answer))
        answer.headers["cache-control"] = "no-store"
        await answer(scope, receive, send)

    async def _entered(self, request: Request, body: bytes, call: _Call) -> Response | _Load:
        """Answer a request. A password is checked on a thread for logins, and nothing else is done there."""
        if _is_login(request):
            form = _login_form(request, body, call)
            if isinstance(form, Response):
                return await self._on_thread(self._threads, lambda: form, call)
            return await self._checked(form, partial(self._token, *form), call)
        let_in = partial(self._let_in, request, call.record)
        login = login_of(request.headers.get("authorization"))
        if login is None:
            return await self._on_thread(
                self._threads, lambda: self._answer(request, call, let_in()), call
            )
        session = await self._checked(login, let_in, call)
        if isinstance(session, Response):
            return session
        return await self._on_thread(
            self._threads, partial(self._answer, request, call, session), call
        )

    async def _checked(
        self, login: tuple[str, str], work: Callable[[], _Answer], call: _Call
    ) -> _Answer | Response:
        try:
            with self._logins.slot(login[0], is_proved=self._gate.remembers(*login)) as threads:
                return await self._on_thread(threads, work, call)
        except Overloaded as error:
            return await self._on_thread(self._threads, partial(_failure, error, call), call)

    async def _loaded(self, load: _Load, call: _Call, receive: Receive) -> Response:
        leaving = asyncio.create_task(self._until_gone(load, receive))
        try:
            async with self._loads.slot(load.user, load.deadline):
                return await self._on_thread(self._threads, load.work, call)
        except (Overloaded, Cancelled) as error:
            return await self._on_thread(self._threads, partial(_failure, error, call), call)
        finally:
            leaving.cancel()

    async def _until_gone(self, load: _Load, receive: Receive) -> None:
        """Give a load up once its client is gone: its slot is for others."""
        while (await receive())["type"] != "http.disconnect":
            pass
        load.deadline.cancellation.request()

    async def _on_thread(
        self, threads: ThreadPoolExecutor, work: Callable[[], _Answer], call: _Call
    ) -> _Answer | Response:
        """Do ``work`` on one of ``threads``; an answer, errors too, is written to the journals there."""

        def answered() -> _Answer | Response:
            answer: _Answer | Response
            try:
                answer = work()
            except Exception as error:  # noqa: BLE001  nothing but an answer may leave this
                answer = _failure(error, call)
            if isinstance(answer, Response):
                for journal in self._journals:
                    journal(call.record)
            return answer

        return await asyncio.get_running_loop().run_in_executor(threads, answered)

    def _let_in(self, request: Request, record: CallRecord) -> Session:
        """Say who calls: a user with a password, or with a token, or without a name.

        Raises:
            UnknownEndpoint: there is nothing at the address.
            Unauthenticated, Unavailable, Overloaded: as ``CallGate.admitted``.
        """
        _segments(request)
        session = self._gate.admitted(request.headers.get("authorization"))
        peer = "" if request.client is None else f"{request.client.host}:{request.client.port}"
        record.entered(session, peer)
        return session

    def _answer(self, request: Request, call: _Call, session: Session) -> Response | _Load:
        rest = _segments(request)
        if rest == ["config"]:
            warehouse = self._catalog.warehouse(session, request.query_params.get("warehouse"))
            return JSONResponse(self._catalog.config(warehouse))
        if rest[0] in ("namespaces", "tables", "views", "transactions"):
            rest = ["", *rest]
        warehouse = self._catalog.warehouse(session, rest[0])
        return self._in(warehouse, rest[1:], session, request, call)

    def _in(
        self,
        warehouse: Warehouse,
        rest: list[str],
        session: Session,
        request: Request,
        call: _Call,
    ) -> Response | _Load:
        is_reading = request.method in _READING
        query = request.query_params
        match rest:
            case ["namespaces", namespace, "tables", name, "metrics"] if not is_reading:
                table = TableName(warehouse.catalog, _levels(namespace), name)
                self._catalog.check_table(session, warehouse, table)
                return Response(status_code=204)
            case _ if not is_reading:
                raise NotAllowed(
                    f"this catalog shows live tables and takes no writes; write to catalog {warehouse.catalog} itself, "
                    f"where its tables come from, and send records to their topics."
                )
            case ["namespaces"]:
                parent = _levels(query.get("parent") or "")
                page = self._catalog.namespaces(session, warehouse, parent, _paging(request))
                return _listing("namespaces", page, list)
            case ["namespaces", namespace]:
                self._catalog.below(session, warehouse, _levels(namespace))
                if request.method == "HEAD":
                    return Response(status_code=204)
                return JSONResponse({"namespace": _levels(namespace), "properties": {}})
            case ["namespaces", namespace, "tables"]:
                levels = _levels(namespace)
                page = self._catalog.tables(session, warehouse, levels, _paging(request))
                return _listing(
                    "identifiers", page, lambda name: {"namespace": levels, "name": name[0]}
                )
            case ["namespaces", namespace, "views"]:
                self._catalog.below(session, warehouse, _levels(namespace))
                return JSONResponse({"identifiers": []})
            case ["namespaces", namespace, "views", name]:
                raise UnknownView(f"{namespace}.{name}: there is no such view.")
            case ["namespaces", namespace, "tables", name]:
                table = TableName(warehouse.catalog, _levels(namespace), name)
                if request.method == "HEAD":
                    self._catalog.check_table(session, warehouse, table)
                    return Response(status_code=204)
                return self._load(warehouse, table, session, request, call)
            case _:
                raise UnknownEndpoint("this catalog does not have that endpoint.")

    def _load(
        self,
        warehouse: Warehouse,
        table: TableName,
        session: Session,
        request: Request,
        call: _Call,
    ) -> _Load:
        record = call.record
        record.method, record.table = _LOADED, str(table)
        mode = request.query_params.get("snapshots") or "all"
        if mode not in ("all", "refs"):
            raise BadParameter("snapshots is all or refs.")
        etags = request.headers.get("if-none-match", "").split(",")
        session = _with_headers(warehouse.session(session), request)
        limits = self._gate.policy.limits_of(session.user, session.groups)
        deadline = Deadline(min(limits.timeout_s, _LONGEST_LOAD_S))
        table_request = TableRequest(
            table,
            [text.strip().removeprefix("W/") for text in etags],
            mode == "refs",
            call.client,
            # Not once it has a place: those that waited for one share what was measured since.
            self._catalog.now_s(),
        )

        def work() -> Response:
            etag, body = self._catalog.load(session, warehouse, table_request, deadline)
            record.ended()
            if body is None:
                return Response(status_code=304, headers={"etag": etag})
            record.bytes = len(body)
            return Response(body, headers={"etag": etag}, media_type="application/json")

        return _Load(session.user, deadline, work)

    def _token(self, user: str, password: str) -> Response:
        """Return a session's token, as over Flight."""
        try:
            token = self._gate.log_in(user, password)
        except Unauthenticated as error:
            return _refused("invalid_client", str(error), 401)
        return JSONResponse(
            {
                "access_token": token,
                "token_type": "bearer",
                "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
            }
        )


def _login_form(request: Request, body: bytes, call: _Call) -> tuple[str, str] | Response:
    """Read user and password of OAuth2's client credentials: the client is a user. Else return the refusal."""
    if request.method != "POST":
        return _failure(UnknownEndpoint("tokens are asked for by POST."), call)
    text = body.decode("utf-8", "replace")
    try:
        fields = parse_qs(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        return _refused("invalid_request", f"a form may have {_MAX_FIELDS} fields.", 400)
    form = {name: values[-1] for name, values in fields.items()}
    if form.get("grant_type") != "client_credentials":
        return _refused("unsupported_grant_type", "the grant type is client_credentials.", 400)
    user, password = form.get("client_id"), form.get("client_secret")
    if user is None or password is None:
        # RFC 6749, 2.3.1: both are encoded as in a form.
        user, password = map(
            unquote_plus, login_of(request.headers.get("authorization")) or ("", "")
        )
    if not user:
        return _refused("invalid_request", "client_id and client_secret are needed.", 400)
    return user, password


def _failure(error: Exception, call: _Call) -> Response:
    status, document = answer_of(error, call.record, call.client)
    headers = {"retry-after": str(RETRY_AFTER_S)} if status == 503 else {}
    if status == 401:
        headers["www-authenticate"] = 'Bearer realm="thermocline"'
    return JSONResponse(document, status, headers)


def _refused(error: str, description: str, status: int) -> Response:
    """An error as OAuth2 writes it (RFC 6749, 5.2)."""
    return JSONResponse({"error": error, "error_description": description}, status)


async def _body(request: Request) -> bytes:
    """Return the form of a login. Other bodies say nothing that is needed, and are let pass."""
    is_form = _is_login(request)
    most = _MAX_FORM_BYTES if is_form else _MAX_BODY_BYTES
    body, size = bytearray(), 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise BodyTooLarge(f"a body may have {most:,} bytes.")
        if is_form:
            body += part
    return bytes(body)


def _is_login(request: Request) -> bool:
    return _path(request) == ["", "v1", "oauth", "tokens"]


def _path(request: Request) -> list[str]:
    """The path as it was sent: a name may have a slash in it, encoded."""
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    path = raw.decode("latin-1").partition("?")[0].rstrip("/")
    return [unquote(part) for part in path.split("/")]


def _segments(request: Request) -> list[str]:
    """Return what follows ``/v1`` in the path.

    Raises:
        UnknownEndpoint: it does not begin so.
    """
    parts = _path(request)
    if len(parts) < 3 or parts[:2] != ["", "v1"]:
        raise UnknownEndpoint(
            "there is nothing at this address; an Iceberg REST catalog begins at /v1."
        )
    return parts[2:]


def _levels(text: str) -> tuple[str, ...]:
    return tuple(text.split(SEPARATOR)) if text else ()


def _paging(request: Request) -> tuple[str | None, int | None]:
    size = request.query_params.get("pageSize")
    if size is not None and not (size.isascii() and size.isdigit() and len(size) < 10):
        raise BadParameter("pageSize is a number above 0.")
    return request.query_params.get("pageToken"), None if size is None else int(size)


def _listing(
    key: str, page: Page, written: Callable[[tuple[str, ...]], object]
) -> JSONResponse:
    document: dict[str, object] = {key: [written(name) for name in page.items]}
    if page.after is not None:
        document["next-page-token"] = page.after
    return JSONResponse(document)


def _with_headers(session: Session, request: Request) -> Session:
    """Take the freshness that headers ask for, before that of the warehouse; other settings stay the session's own."""
    settings = [
        (name, request.headers[header])
        for header, name in OF_ONE_CALL.items()
        if header in request.headers
    ]
    return with_settings(replace(session, after=None), settings) if settings else session


def _bodiless(answer: Response) -> dict[str, str]:
    return {
        name: value
        for name, value in answer.headers.items()
        if name not in ("content-length", "content-type")
    }
