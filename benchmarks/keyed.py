"""Keyed tables: what the newest row of each key costs over cold rows of which some changed in the tail.

Cold files, pins, tail, gate and engine are the real ones; the log is in memory. Plain is DuckDB over Parquet files of the
finished rows, in the same process and in turns, by processor time.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import duckdb
import pyarrow as pa
from pyiceberg.catalog import load_catalog

from benchmarks.options import seed
from benchmarks.report import Report, quantile, recorded
from benchmarks.world import TABLE, sqlite_catalogs
from connectors.bounds_cache import BoundsCache
from connectors.decoding.registry import decoder_for
from connectors.iceberg.create import NewTable, create_table
from connectors.iceberg.pin_cache import PinCache
from connectors.iceberg.store import IcebergStore
from planner.schema import Column
from planner.seam.binding import Binding
from planner.seam.keys import RecordKey, Upsert
from planner.seam.watermark import Outcomes, format_watermark
from planner.tiering.plan import TieringBudget, plan_tiering
from planner.tiering.publish import advance
from proxy.engine.engine import Engine
from proxy.query.executor import Statements
from proxy.query.relations import Sources
from proxy.session import Deadline, Session
from proxy.tail.budget import TailLimits
from proxy.tail.followed_table import FollowSettings
from proxy.tail.pacing import Pacing
from proxy.tail.reader.readers import local_readers
from proxy.tail.tails import Tails
from tests.doubles.log import MemoryLog, MemoryRecord
from tests.harness.published import publish
from thermocline.commands.create import first_watermark

_TOPIC = "devices"
_BINDING = Binding(_TOPIC, key=RecordKey("json"), upsert=Upsert(()))
_COLUMNS = (
    Column(0, "id", pa.int64()),
    Column(0, "site", pa.string()),
    Column(0, "status", pa.string()),
    Column(0, "amount", pa.float64()),
    Column(0, "n", pa.int32()),
)
#: Rows of cold (step 0), and those of changes (step 1).
_ROW = """
    'site-' || (hash(id) % 1000) AS site, 'status ' || (hash(id + {step}) % 4) AS status,
    (hash(id) % 1000003) / 8 AS amount, (hash(id + {step}) % 1000)::INTEGER AS n"""
_GOALS: dict[str, tuple[str, float | None]] = {
    "group by text": ("SELECT site, sum(amount) FROM {table} GROUP BY site", 3.0),
    "filter that keeps a quarter": (
        "SELECT count(*), sum(n) FROM {table} WHERE status = 'status 1'",
        2.2,
    ),
    "count and sum": ("SELECT count(*), sum(n) FROM {table}", None),
    "point by key": ("SELECT * FROM {table} WHERE id = 4711", None),
}


@click.command()
@click.option("--keys", type=click.IntRange(10_000), default=20_000_000, show_default=True)
@click.option("--files", type=click.IntRange(1), default=20, show_default=True)
@click.option("--changes", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--repeats", type=click.IntRange(3), default=7, show_default=True)
@seed
@click.pass_obj
def command(
    results: Path, keys: int, files: int, changes: int, repeats: int, seed: int
) -> None:
    """Read a keyed table of which some rows changed in the tail, beside plain DuckDB over the finished rows."""
    with (
        recorded(results, "keyed") as report,
        tempfile.TemporaryDirectory(prefix="thermocline-bench-") as name,
        _lake(Path(name), _Size(keys, files, changes, seed)) as (ask, plain),
    ):
        for what, (sql, at_most) in _GOALS.items():
            _compare(report, what, (partial(ask, sql), partial(plain, sql)), repeats, at_most)


@dataclass(frozen=True)
class _Size:
    keys: int
    files: int
    changes: int
    seed: int


Ask = Callable[[str], pa.Table]


def _compare(
    report: Report,
    what: str,
    sides: tuple[Callable[[], pa.Table], ...],
    repeats: int,
    at_most: float | None,
) -> None:
    """Run both sides in turns; their answers must be equal."""
    answers = [sorted(map(repr, side().to_pylist())) for side in sides]
    if answers[0] != answers[1]:
        raise RuntimeError(
            f"{what}: the keyed table does not answer what its finished rows are"
        )
    took: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for times, side in zip(took, sides, strict=True):
            began = time.process_time()
            side()
            times.append((time.process_time() - began) * 1000)
    ours, plain = (quantile(times, 0.5) for times in took)
    report.figure(f"{what}: ours / plain", ours / plain, "", at_most=at_most)
    report.figure(f"{what}: ours", ours, "ms of CPU")
    report.details[what] = {"ours_ms": took[0], "plain_ms": took[1]}


@contextlib.contextmanager
def _lake(folder: Path, size: _Size) -> Iterator[tuple[Ask, Ask]]:
    """Make cold rows, changes and finished rows; yield who asks the table, and who asks the finished rows."""
    log = MemoryLog()
    log.create_topic(_TOPIC, 1)
    catalogs = sqlite_catalogs(folder)
    with contextlib.ExitStack() as stack:
        maker = stack.enter_context(contextlib.closing(duckdb.connect()))
        maker.execute(f"SELECT setseed({1 / (2 + size.seed)})")
        maker.execute(
            f"CREATE TABLE ids AS SELECT i AS id, hash(i) % {size.files} AS file FROM range({size.keys}) t(i) "
            f"ORDER BY file, id"
        )
        maker.execute(
            f"CREATE TABLE changed AS SELECT DISTINCT id FROM ids USING SAMPLE {size.changes} ROWS"
        )
        _write_cold(maker, catalogs, log, size)
        _write_tail(maker, log)
        finished = folder / "finished"
        finished.mkdir()
        for number in range(size.files):
            maker.execute(
                f"COPY (SELECT id, {_ROW.format(step=0)} FROM ids WHERE file = {number} AND id NOT IN (FROM changed) UNION ALL "
                f"SELECT id, {_ROW.format(step=1)} FROM changed WHERE hash(id) % {size.files} = {number} ORDER BY id) "
                f"TO '{finished}/{number}.parquet' (COMPRESSION zstd)"
            )
        statements = stack.enter_context(_statements(folder, catalogs, log, size))
        session, deadline = statements.browser.configure(Session("benchmark")), Deadline(600)
        plain = stack.enter_context(contextlib.closing(duckdb.connect()))

        def ask(sql: str) -> pa.Table:
            planned = statements.plan(session, sql.format(table=TABLE), None, deadline)
            with contextlib.closing(
                statements.open(session, planned.ticket, deadline)
            ) as stream:
                return pa.Table.from_batches(list(stream), stream.schema)

        def ask_plain(sql: str) -> pa.Table:
            columns = "id, site, status, amount, n"
            table = f"(SELECT {columns} FROM read_parquet('{finished}/*.parquet'))"
            return plain.execute(sql.format(table=table)).fetch_arrow_table()

        yield (
            (lambda sql: ask(sql.replace("SELECT *", "SELECT id, site, status, amount, n"))),
            ask_plain,
        )


def _write_cold(
    maker: duckdb.DuckDBPyConnection,
    catalogs: dict[str, dict[str, str]],
    log: MemoryLog,
    size: _Size,
) -> None:
    properties = {"write.target-file-size-bytes": str(1 + 40 * size.keys // size.files)}
    create_table(
        catalogs,
        NewTable(TABLE, _COLUMNS, _BINDING, key=("id",), properties=properties),
        first_watermark(log.measure([_TOPIC])[_TOPIC], _BINDING),
    )
    log.append(_TOPIC, 0, MemoryRecord(None, key=b"-1"))
    with contextlib.closing(IcebergStore(catalogs)) as store:
        pin = store.pin(TABLE)
    plan = plan_tiering(pin, log.measure([_TOPIC])[_TOPIC], TieringBudget())
    assert pin.snapshot_id is not None
    mark = advance(plan, Outcomes(rows=size.keys), run="cold", head=pin.snapshot_id)
    with contextlib.closing(load_catalog("lake", **catalogs["lake"])) as catalog:
        table = catalog.load_table((*TABLE.namespace, TABLE.name))
        rows = maker.execute(
            f"SELECT 0::INTEGER AS kafka_partition, 0::BIGINT AS kafka_offset, TIMESTAMPTZ '2026-01-01' AS kafka_timestamp, "
            f"id, {_ROW.format(step=0)} FROM ids ORDER BY file, id"
        ).fetch_arrow_table()
        publish(table, rows.cast(table.schema().as_arrow()), format_watermark(mark))


def _write_tail(maker: duckdb.DuckDBPyConnection, log: MemoryLog) -> None:
    rows = maker.execute(f"SELECT id, {_ROW.format(step=1)} FROM changed").fetchall()
    for key, site, status, amount, n in rows:
        value = {"site": site, "status": status, "amount": amount, "n": n}
        log.append(_TOPIC, 0, MemoryRecord(json.dumps(value).encode(), key=b"%d" % key))


@contextlib.contextmanager
def _statements(
    folder: Path, catalogs: dict[str, dict[str, str]], log: MemoryLog, size: _Size
) -> Iterator[Statements]:
    (folder / "spill").mkdir()
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(contextlib.closing(IcebergStore(catalogs)))
        pins = stack.enter_context(PinCache(store, refresh_s=3600))
        roots = [catalogs["lake"]["warehouse"]]
        engine = stack.enter_context(
            contextlib.closing(Engine(storage_roots=roots, spill_dir=folder / "spill"))
        )
        tails = Tails(
            local_readers(log, decoder_for, pacing=Pacing()),
            engine.segments,
            TailLimits(10 * size.changes, 2**34, 600),
            following=FollowSettings(),
        )
        stack.callback(tails.close)
        statements = Statements(
            Sources(pins, store, BoundsCache(log), tails, engine),
            ticket_ttl_s=3600,
            secrets=[bytes(32)],
            now_us=lambda: time.time_ns() // 1000,
            default_path=(TABLE.catalog, TABLE.schema),
        )
        yield stack.enter_context(contextlib.closing(statements))
