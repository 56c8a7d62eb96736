"""``[tail] ready_when_read``: load balancers send nobody before the tails that are always followed were read."""

from __future__ import annotations

import contextlib
import time
import urllib.error
import urllib.request
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from tests.fixtures.server import settings_of, sqlite_catalog
from thermocline.config.settings import Tail
from thermocline.serve.assembly import running_server

SOON_S = 60.0


def ready(port: int | None) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.parametrize("waits", [True, False])
def test_a_server_is_ready_when_what_it_always_follows_was_read(
    tmp_path: Path, waits: bool
) -> None:
    catalog = sqlite_catalog(tmp_path)
    follow = Tail(follow=("lake.net.late",), ready_when_read=waits)
    settings = settings_of({"lake": catalog}, {}, http_port=0).model_copy(
        update={"tail": follow}
    )
    with running_server(settings) as server:
        time.sleep(1.5)  # more than a round of the keeper's
        assert ready(server.http_port) == (503 if waits else 200)
        with contextlib.closing(load_catalog("lake", **catalog)) as lake:
            lake.create_namespace_if_not_exists("net")
            lake.create_table("net.late", schema=pa.schema([("id", pa.int64())]))
        until = time.monotonic() + SOON_S
        while ready(server.http_port) != 200:
            assert time.monotonic() < until
            time.sleep(0.1)
