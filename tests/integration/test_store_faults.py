"""An object store that fails, lies and breaks off: statements are right, or fail by name, and the server goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from tests.fixtures.object_store import ObjectStore
from tests.fixtures.server import SqlServer, settings_of
from tests.harness.store_gateway import Fault, StoreGateway, StoreRequest
from thermocline.serve.assembly import running_server

_ROWS = 1_000
_SUM = "SELECT sum(id) AS s FROM flows"
_RIGHT = [{"s": _ROWS * (_ROWS - 1) // 2}]


@pytest.fixture
def gateway(object_store: ObjectStore) -> Iterator[StoreGateway]:
    with StoreGateway(object_store.port) as started:
        yield started


@pytest.fixture
def server(
    object_store: ObjectStore, gateway: StoreGateway, tmp_path: Path
) -> Iterator[SqlServer]:
    """``flows`` lies behind the gateway, ``others`` in a catalog that reaches the store itself."""
    properties = {}
    for name, table in (("lake", "flows"), ("pond", "others")):
        folder = tmp_path / name
        folder.mkdir()
        properties[name] = object_store.catalog(folder)
        with closing(load_catalog(name, **properties[name])) as catalog:
            catalog.create_namespace("default")
            data = pa.table({"id": pa.array(range(_ROWS), pa.int64())})
            catalog.create_table(f"default.{table}", data.schema).append(data)
    properties["lake"]["s3.endpoint"] = gateway.endpoint
    settings = settings_of(properties, {})
    with running_server(settings) as running:
        yield SqlServer(running, settings)


def _faults(
    fault: Fault, suffix: str, times: int | None = None
) -> Callable[[StoreRequest], Fault | None]:
    """``times`` requests for files of this suffix go wrong; None: all of them."""
    left = [times]

    def choose(request: StoreRequest) -> Fault | None:
        if not request.path.endswith(suffix) or left[0] == 0:
            return None
        if left[0] is not None:
            left[0] -= 1
        return fault

    return choose


def _refusal(server: SqlServer) -> str:
    with pytest.raises(adbc.Error) as caught:
        server.ask(_SUM)
    sentence = str(caught.value)
    assert "lake.default.flows: " in sentence or "of a pinned table" in sentence, sentence
    assert "Traceback" not in sentence, sentence
    assert "127.0.0.1" not in sentence, sentence
    return sentence.partition(" (statement ")[0]


@pytest.mark.parametrize("suffix", [".parquet", ".avro", ".json"])
@pytest.mark.parametrize("fault", [Fault.FAILED, Fault.BUSY])
def test_a_store_that_fails_once_is_asked_again(
    server: SqlServer, gateway: StoreGateway, fault: Fault, suffix: str
) -> None:
    gateway.choose_fault = _faults(fault, suffix, times=1)
    assert server.ask(_SUM).to_pylist() == _RIGHT


@pytest.mark.parametrize("suffix", [".parquet", ".avro", ".json"])
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault.FAILED, "the object store failed; try again"),
        (Fault.BUSY, "the object store has too much to do; try again"),
        (Fault.DENIED, "the object store refuses the catalog's key"),
        (Fault.MISSING, ""),
        (Fault.CUT, ""),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, Fault) else "",
)
def test_a_store_that_does_not_give_a_file_is_named_and_stops_only_its_tables(
    server: SqlServer, gateway: StoreGateway, fault: Fault, reason: str, suffix: str
) -> None:
    gateway.choose_fault = _faults(fault, suffix)
    sentence = _refusal(server)
    # A store tells a HEAD request nothing but the status, and pyarrow not even that of a 5xx.
    assert reason in sentence or sentence.endswith("could not be read just now; try again"), (
        sentence
    )
    assert server.ask("SELECT sum(id) AS s FROM pond.default.others").to_pylist() == _RIGHT
    gateway.choose_fault = lambda _: None
    assert server.ask(_SUM).to_pylist() == _RIGHT


@pytest.mark.parametrize("fault", [Fault.TOO_LONG, Fault.TOO_SHORT])
def test_a_store_that_lies_about_lengths_is_refused_or_makes_no_difference(
    server: SqlServer, gateway: StoreGateway, fault: Fault
) -> None:
    gateway.choose_fault = _faults(fault, ".parquet")
    with contextlib.suppress(adbc.Error):
        assert server.ask(_SUM).to_pylist() == _RIGHT
    assert server.ask("SELECT sum(id) AS s FROM pond.default.others").to_pylist() == _RIGHT
