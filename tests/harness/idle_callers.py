"""A user who begins calls and leaves them, in each of their phases."""

from __future__ import annotations

import base64
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

import pyarrow as pa
from pyarrow import flight

from tests.harness.canned import CannedServer
from tests.harness.raw_http2 import RawConnection
from tests.harness.wire import command, prepare, select

USERS = {"ada": "a", "bob": "b", "nobody": "n"}
SOON_S = 60
_BASIC = f"Basic {base64.b64encode(b'nobody:n').decode()}"
ROW = pa.schema([("1", pa.int64())])


def login(client: flight.FlightClient, user: str) -> flight.FlightCallOptions:
    token = client.authenticate_basic_token(user, USERS[user])
    return flight.FlightCallOptions(headers=[token], timeout=SOON_S)


class Idler:
    """A user who begins calls and leaves them. ``begin`` makes one; refusals are counted."""

    def __init__(self, canned_server: CannedServer) -> None:
        self._stack = ExitStack()
        self.port = canned_server.port
        # A connection of its own: those of one process are shared else.
        self.client = self._stack.enter_context(
            closing(
                flight.connect(
                    canned_server.uri, generic_options=[("grpc.use_local_subchannel_pool", 1)]
                )
            )
        )
        self.options = login(self.client, "nobody")
        self.raw = RawConnection(canned_server.port)
        self._stack.callback(self.raw.close)
        self.handle = prepare(
            self.client, "SELECT ?::BIGINT", self.options
        ).prepared_statement_handle

    def keep(self, value: Any) -> None:
        self._stack.callback(value.close if isinstance(value, RawConnection) else lambda: value)

    def close(self) -> None:
        self._stack.close()


def _bind(idler: Idler) -> None:
    bound = command("CommandPreparedStatementQuery", prepared_statement_handle=idler.handle)
    idler.keep(idler.client.do_put(bound, ROW, idler.options))


def _update(idler: Idler) -> None:
    idler.keep(
        idler.client.do_put(
            command("CommandStatementUpdate", query="SET time_zone = 'UTC'"),
            ROW,
            idler.options,
        )
    )


def read(idler: Idler) -> None:
    info = idler.client.get_flight_info(
        select("SELECT range AS a FROM range(10_000_000)"), idler.options
    )
    idler.keep(idler.client.do_get(info.endpoints[0].ticket, idler.options))


def _raw(method: str) -> Callable[[Idler], None]:
    return lambda idler: idler.raw.begin(method, _BASIC)


def half_headers(idler: Idler) -> None:
    connection = RawConnection(idler.port)
    connection.begin("GetFlightInfo", _BASIC, is_whole=False)
    idler.keep(connection)


PHASES: dict[str, Callable[[Idler], None]] = {
    "headers, not all of them": half_headers,
    "a call without its message": _raw("GetFlightInfo"),
    "an action without its message": _raw("DoAction"),
    "a handshake without a message": _raw("Handshake"),
    "an exchange without a message": _raw("DoExchange"),
    "an upload without a message": _raw("DoPut"),
    "an upload without a row": _bind,
    "an upload that changes nothing": _update,
    "an answer that nobody reads": read,
}
