"""``python -m tests.harness.traced_statement``: which files of ours the first statement of a server runs.

A client of ADBC asks a real Flight server, engine and tail one GROUP BY over cold and hot rows; log and catalog are in
memory. Prints a JSON list of files, in the order they first ran.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import adbc_driver_flightsql.dbapi as adbc

from proxy.access.authentication.callers import Access
from proxy.access.limits import ServerPolicy
from proxy.flightsql.metadata.sqlinfo import Product
from proxy.flightsql.middleware import CallGate
from proxy.flightsql.server import Address, ServerOptions, start
from tests.harness.flows import tier, write
from tests.harness.lake import Lake

_ROOT = Path(__file__).parents[2]
_OURS = tuple(
    f"{_ROOT / folder}/" for folder in ("planner", "connectors", "proxy", "thermocline")
)
_SQL = "SELECT kafka_partition, count(*) FROM flows GROUP BY 1"


def main() -> None:
    files: dict[str, None] = {}

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_OURS):
            files[frame.f_code.co_filename] = None

    started = CallGate.start_call

    def start_call(gate: CallGate, *arguments: Any) -> Any:
        sys.setprofile(profile)
        return started(gate, *arguments)

    CallGate.start_call = start_call  # type: ignore[assignment, method-assign]
    lake = Lake()
    write(lake, 0, 5)
    tier(lake, 3)
    threading.setprofile(profile)
    server = start(
        lake.statements,
        Address("127.0.0.1", 0),
        ServerPolicy(Access(allow_anonymous=True)),
        ServerOptions(Product("Thermocline", "1")),
    )
    with (
        adbc.connect(f"grpc://127.0.0.1:{server.port}", autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        files.clear()
        cursor.execute(_SQL)
        rows = cursor.fetchall()
    ran = list(files)
    server.stop(10)
    lake.stop_server()
    assert sum(count for _, count in rows) == 5, rows
    print(json.dumps([str(Path(file).relative_to(_ROOT)) for file in ran]))


if __name__ == "__main__":
    main()
