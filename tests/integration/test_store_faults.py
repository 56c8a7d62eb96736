"""An object store that fails, lies and breaks off: statements are right, or fail by name, and the server goes on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest

from connectors.store.errors import cause
from planner.names import TableName
from tests.fixtures.object_store import ObjectStore
from tests.fixtures.server import SqlServer, settings_of
from tests.harness.store_gateway import Fault, StoreGateway, StoreRequest
from thermocline.serve.assembly import running_server

_ROWS = 1_000
_RIGHT = [{"s": _ROWS * (_ROWS - 1) // 2}]
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Table:
    """Of a server that has read none of its files: what was read once is not asked for again."""

    server: SqlServer
    name: str

    def sum(self) -> list[dict[str, int]]:
        rows: list[dict[str, int]] = self.server.ask(
            f"SELECT sum(id) AS s FROM {self.name}"
        ).to_pylist()
        return rows

    def refusal(self) -> str:
        with pytest.raises(adbc.Error) as caught:
            self.sum()
        sentence = str(caught.value)
        assert f"{self.name}: " in sentence, sentence
        assert "Traceback" not in sentence, sentence
        assert "127.0.0.1" not in sentence, sentence
        return sentence.partition(" (statement ")[0]


@contextmanager
def _serving(store: ObjectStore, gateway: StoreGateway, folder: Path) -> Iterator[SqlServer]:
    """``lake`` lies behind the gateway, ``pond`` in a catalog that reaches the store itself."""
    properties = {}
    for name in ("lake", "pond"):
        (folder / name).mkdir()
        properties[name] = store.catalog(folder / name)
    properties["lake"]["s3.endpoint"] = gateway.endpoint
    settings = settings_of(properties, {})
    with running_server(settings) as running:
        yield SqlServer(running, settings)


def _table(server: SqlServer, catalog: str) -> Table:
    name = TableName(catalog, ("default",), f"flows_{next(_NUMBERS)}")
    rows = pa.table({"id": pa.array(range(_ROWS), pa.int64())})
    with server.catalog(catalog) as opened:
        opened.create_namespace_if_not_exists(name.namespace)
        opened.create_table((*name.namespace, name.name), rows.schema).append(rows)
    server.refresh()
    return Table(server, str(name))


@pytest.fixture(scope="module")
def gateway_of_all(object_store: ObjectStore) -> Iterator[StoreGateway]:
    with StoreGateway(object_store.port) as started:
        yield started


@pytest.fixture
def gateway(gateway_of_all: StoreGateway) -> Iterator[StoreGateway]:
    yield gateway_of_all
    gateway_of_all.choose_fault = lambda _: None


@pytest.fixture(scope="module")
def server(
    object_store: ObjectStore,
    gateway_of_all: StoreGateway,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SqlServer]:
    folder = tmp_path_factory.mktemp("faults")
    with _serving(object_store, gateway_of_all, folder) as started:
        yield started


@pytest.fixture(scope="module")
def others(server: SqlServer) -> Table:
    return _table(server, "pond")


@pytest.fixture
def flows(server: SqlServer, gateway: StoreGateway) -> Table:
    del gateway  # what the test before had it do is over
    return _table(server, "lake")


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


@pytest.mark.parametrize("suffix", [".parquet", ".avro", ".json"])
@pytest.mark.parametrize("fault", [Fault.FAILED, Fault.BUSY])
def test_a_store_that_fails_once_is_asked_again(
    flows: Table, gateway: StoreGateway, fault: Fault, suffix: str
) -> None:
    gateway.choose_fault = _faults(fault, suffix, times=1)
    assert flows.sum() == _RIGHT


#: What the sentence has to say where the store said it; "" where it cannot be told from a file that is gone.
REASONS = {
    Fault.FAILED: "the object store failed; try again",
    Fault.BUSY: "the object store has too much to do; try again",
    Fault.DENIED: "the object store refuses the catalog's key",
    Fault.EXPIRED: "the catalog's session token has expired; renew s3.session-token",
    Fault.SKEWED: "clock",
    Fault.ELSEWHERE: "the bucket lies in another region; correct s3.region",
    Fault.NO_BUCKET: "",
    Fault.MISSING: "",
    Fault.CUT: "",
}
#: Manifests and metadata are read by the same client.
IN_SHORT = {(Fault.BUSY, ".avro"), (Fault.DENIED, ".json"), (Fault.CUT, ".json")}


@pytest.mark.parametrize(
    ("fault", "suffix"),
    [
        pytest.param(
            fault,
            suffix,
            marks=()
            if suffix == ".parquet" or (fault, suffix) in IN_SHORT
            else pytest.mark.soak,
            id=f"{fault.name.lower()}{suffix}",
        )
        for fault, suffix in itertools.product(REASONS, (".parquet", ".avro", ".json"))
    ],
)
def test_a_store_that_does_not_give_a_file_is_named_and_stops_only_its_tables(
    flows: Table, others: Table, gateway: StoreGateway, fault: Fault, suffix: str
) -> None:
    reason = REASONS[fault]
    gateway.choose_fault = _faults(fault, suffix)
    sentence = flows.refusal()
    # A store tells a HEAD request nothing but the status, and pyarrow not even that of a 5xx.
    untold = (
        "could not be read just now; try again",
        "check whether s3.session-token has expired, and s3.region",
    )
    assert reason in sentence or sentence.endswith(untold), sentence
    assert others.sum() == _RIGHT
    gateway.choose_fault = lambda _: None
    assert flows.sum() == _RIGHT


@pytest.mark.parametrize("fault", [Fault.TOO_LONG, Fault.TOO_SHORT])
def test_a_store_that_lies_about_lengths_is_refused_and_nothing_of_it_is_remembered(
    flows: Table, others: Table, gateway: StoreGateway, fault: Fault
) -> None:
    gateway.choose_fault = _faults(fault, ".parquet")
    assert (
        "one of its data files is damaged; roll the table back, or restore" in flows.refusal()
    )
    assert others.sum() == _RIGHT
    gateway.choose_fault = lambda _: None
    assert flows.sum() == _RIGHT


def test_a_store_that_reads_slowly_is_waited_for(flows: Table, gateway: StoreGateway) -> None:
    gateway.choose_fault = _faults(Fault.SLOW, ".parquet")
    assert flows.sum() == _RIGHT


def test_a_bucket_that_is_gone_is_named_as_what_may_be_gone(
    object_store: ObjectStore, gateway: StoreGateway, tmp_path: Path
) -> None:
    with _serving(object_store, gateway, tmp_path) as server:
        flows = _table(server, "lake")
        bucket = server.settings.catalogs["lake"]["warehouse"].split("/")[2]
        (object_store.folder / bucket).rename(object_store.folder / f"{bucket}-elsewhere")
        assert "look whether files of the table, or its bucket, were removed" in flows.refusal()
        with (
            server.catalog() as catalog,
            pytest.raises(OSError, match="NO_SUCH_BUCKET") as caught,
        ):
            catalog.create_table("default.more", pa.schema([("id", pa.int64())]))
    assert "there is no such bucket; check the catalog's warehouse" in (
        cause(caught.value) or ""
    )
