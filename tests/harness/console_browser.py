"""A console over HTTP, and a browser's requests to it: cookies, origin, JSON."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from proxy.process.asgi import HttpServer
from thermocline.console.app import ConsoleApplication
from thermocline.console.identity_provider import IdentityProvider
from thermocline.console.person import LoginForm, Person


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes
    #: Of which ``headers`` has the last.
    cookies: tuple[str, ...] = ()

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    @property
    def sentence(self) -> str:
        return str(self.document["error"]["message"])


@dataclass
class ConsoleBrowser:
    """Keeps the cookie that it gets, as a browser does."""

    port: int
    cookie: str = ""
    _headers: dict[str, str] = field(default_factory=dict)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def send(
        self, method: str, path: str, body: bytes | None = None, **headers: str | None
    ) -> Reply:
        """Send one request; a header that is None is left out."""
        sent: dict[str, str | None] = {"host": self.host, "cookie": self.cookie or None}
        if method not in ("GET", "HEAD"):
            sent |= {"origin": f"http://{self.host}", "content-type": "application/json"}
        sent |= {name.replace("_", "-"): text for name, text in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, text in sent.items():
                if text is not None:
                    connection.putheader(name, text)
            connection.putheader("content-length", str(len(body or b"")))
            connection.endheaders(body)
            response = connection.getresponse()
            reply = Reply(
                response.status,
                {name.lower(): text for name, text in response.getheaders()},
                response.read(),
                tuple(response.headers.get_all("set-cookie", ())),
            )
        if "set-cookie" in reply.headers:
            self.cookie = reply.headers["set-cookie"].partition(";")[0]
        return reply

    def get(self, path: str, **query: Any) -> Reply:
        return self.send("GET", f"/api/{path}" + (f"?{urlencode(query)}" if query else ""))

    def post(self, path: str, **document: Any) -> Reply:
        return self.send("POST", f"/api/{path}", json.dumps(document).encode())

    def log_in(self, user: str, password: str) -> Reply:
        return self.post("login", user=user, password=password)


@contextlib.contextmanager
def console_over(
    uri: str,
    log_in: Callable[[LoginForm], Person],
    *,
    is_secure: bool = False,
    provider: IdentityProvider | None = None,
) -> Iterator[ConsoleBrowser]:
    application = ConsoleApplication(uri, log_in, is_secure=is_secure, provider=provider)
    server = HttpServer(
        application, address=("127.0.0.1", 0), name="console-http", setting="--port"
    )
    application.port = server.port
    try:
        yield ConsoleBrowser(server.port)
    finally:
        server.stop()
        application.close()
