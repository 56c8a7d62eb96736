"""Every statement of the hostile list is refused with a typed error, and the engine lives on.

The path is the server's own: parse, gate, resolve, rewrite, run. A second set goes around the gate: what the
lock alone must stop.
"""

import datetime as dt
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from planner.errors import FederationError, LimitExceeded, RequestError
from planner.names import TableName
from planner.ports import ArrowRelation
from planner.statement.gate import check
from planner.statement.references import references, resolve
from planner.statement.rewrite import rewrite
from proxy.engine.engine import Engine
from proxy.engine.macros import When
from proxy.engine.relations import Relation
from proxy.engine.running import working_for
from proxy.session import Deadline
from tests.harness.hostile_statements import LARGE

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
FLOWS = TableName("lake", ("main",), "flows")
ROWS = pa.table({"bytes": pa.array([1, 2, 3], pa.int64())})
RELATION = Relation("lake.main.flows", ROWS.schema, (ArrowRelation(ROWS),))

DATA = Path(__file__).parent.parent / "protocol" / "data" / "hostile_statements.sql"
STATEMENTS = [
    line for line in DATA.read_text().splitlines() if line and not line.startswith("-- ")
]
SECRET = "do-not-read-me"


#: The scratch database of the tails is the engine's own.
OWN_FILES = {"tails.duckdb", "tails.duckdb.wal"}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("hostile")
    fields = {"root": base / "root", "spill": base / "spill", "outside": base / "outside.csv"}
    fields["root"].mkdir()
    fields["spill"].mkdir()
    fields["outside"].write_text(f"a\n{SECRET}\n")
    return fields


@pytest.fixture(scope="module")
def engine(places: dict[str, Path]) -> Iterator[Engine]:
    engine = Engine(
        storage_roots=[str(places["root"])],
        spill_dir=places["spill"],
        memory_limit_bytes=512 << 20,
        threads=2,
    )
    yield engine
    engine.close()


def answer(engine: Engine, sql: str) -> pa.Table:
    document = engine.parse(sql)
    check(document)
    names = {}
    for reference in references(document):
        resolve(reference, "lake", "main", [FLOWS])
        names[reference] = RELATION.name
    return _run(engine, rewrite(document, names))


def _run(engine: Engine, document: dict[str, object]) -> pa.Table:
    with (
        working_for(Deadline(5), None),
        engine.run(document, [RELATION], when=When(NOW)) as result,
    ):
        return pa.Table.from_batches(list(result), result.schema)


def test_the_list_is_long_and_holds_each_statement_once() -> None:
    assert len(STATEMENTS) >= 250
    assert len(set(STATEMENTS)) == len(STATEMENTS)


@pytest.mark.parametrize("hostile", STATEMENTS)
def test_it_is_refused_quickly_and_the_engine_answers_on(
    engine: Engine, places: dict[str, Path], hostile: str
) -> None:
    sql = hostile
    for name, path in places.items():
        sql = sql.replace("{" + name + "}", str(path))
    started = time.monotonic()
    with pytest.raises(RequestError) as refused:
        answer(engine, sql)
    assert time.monotonic() - started < 2
    assert SECRET not in str(refused.value)
    assert {path.name for path in places["spill"].iterdir()} <= OWN_FILES
    assert not list(places["root"].iterdir())
    for path in (places["root"], places["spill"]):
        assert sql != hostile or str(path) not in str(refused.value)
    assert answer(engine, "SELECT sum(bytes) AS s FROM flows").to_pylist() == [{"s": 6}]


@pytest.mark.parametrize("sql", LARGE.values(), ids=LARGE)
def test_a_large_or_deep_text_is_refused(engine: Engine, sql: str) -> None:
    with pytest.raises((RequestError, LimitExceeded)):
        answer(engine, sql)
    assert answer(engine, "SELECT 1 AS x").to_pylist() == [{"x": 1}]


AROUND = [
    "SELECT * FROM read_csv('{outside}')",
    "SELECT * FROM read_text('{outside}')",
    "SELECT * FROM '{outside}'",
    "SELECT * FROM glob('{outside}')",
    "SELECT * FROM read_text('/proc/self/environ')",
    "SELECT * FROM read_text('{root}/../outside.csv')",
    "SELECT * FROM read_text('http://127.0.0.1:9/x')",
    "SELECT * FROM read_parquet('s3://bucket/x.parquet')",
    "SELECT * FROM sniff_csv('{outside}')",
    "SELECT * FROM parquet_metadata('{outside}')",
    "SELECT * FROM iceberg_scan('{outside}')",
    "SELECT * FROM read_avro('{outside}')",
    "SELECT * FROM read_duckdb('{outside}')",
    "SELECT * FROM places",
    "SELECT * FROM nosuchtable",
    "SELECT getenv('HOME')",
]


@pytest.mark.parametrize("hostile", AROUND)
def test_the_lock_alone_refuses_what_the_gate_would(
    engine: Engine, places: dict[str, Path], hostile: str
) -> None:
    sql = re.sub(r"\{(\w+)\}", lambda name: str(places[name[1]]), hostile)
    reply = ""
    try:
        table = _run(engine, engine.parse(sql))
    except FederationError as refused:
        reply = str(refused)
    else:
        assert not table.num_rows, table  # glob answers nothing instead of failing
    assert SECRET not in reply
    assert str(places["root"].parent) not in reply
