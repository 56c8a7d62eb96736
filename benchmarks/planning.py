"""Planning: what a statement costs before anything is read. No broker: the log's bounds are in memory.

Catalog, table, pins, gate, engine and ticket are the real ones.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from benchmarks import records
from benchmarks.options import seed
from benchmarks.report import Report, quantile, recorded
from benchmarks.shapes import FLOWS
from benchmarks.world import TABLE, TOPIC, sqlite_catalogs
from connectors.bounds_cache import BoundsCache
from connectors.cuts import cut_tables
from connectors.decoding.registry import decoder_for
from connectors.iceberg.create import NewTable, create_table
from connectors.iceberg.pin_cache import PinCache
from connectors.iceberg.store import IcebergStore
from planner.seam.binding import Binding
from planner.seam.cut import plan_cut
from planner.statement.ast import Node
from planner.statement.gate import check
from planner.statement.references import references, resolve
from planner.statement.rewrite import rewrite
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
from thermocline.commands.create import first_watermark

_GOAL_MS = 3
_GATE_GOAL_MS = 1
_STATEMENT = (
    f"SELECT protocol, count(*), sum(bytes) FROM {TABLE} WHERE dst_port = 443 GROUP BY protocol"
)
_RECORDS_PER_PARTITION = 3
_LONG_BYTES = 2048
_TREES = 50


@click.command()
@click.option("--repeats", type=click.IntRange(10), default=1000, show_default=True)
@click.option("--partitions", type=click.IntRange(1), default=12, show_default=True)
@seed
@click.pass_obj
def command(results: Path, repeats: int, partitions: int, seed: int) -> None:
    """Plan cuts and statements over a pinned table."""
    with (
        recorded(results, "planning") as report,
        tempfile.TemporaryDirectory(prefix="thermocline-bench-") as name,
        _parts(Path(name), partitions, seed) as (log, pins, engine, statements),
    ):
        pin, bounds = pins.get(TABLE), log.measure([TOPIC])[TOPIC]
        session, deadline = (
            statements.browser.configure(Session("benchmark")),
            Deadline(60),
        )
        texts = (f"{_STATEMENT} HAVING count(*) > {number}" for number in itertools.count())
        longs = (_long_statement(number) for number in itertools.count())
        trees = itertools.cycle([engine.parse(next(longs)) for _ in range(_TREES)])
        measured: dict[str, tuple[Callable[[], object], float | None]] = {
            f"decision alone, {partitions} partitions": (
                lambda: plan_cut(pin, bounds),
                _GOAL_MS,
            ),
            "cut: pin held, bounds in memory, decision": (
                lambda: cut_tables(pins, log, [TABLE]),
                _GOAL_MS,
            ),
            "statement read before, to its ticket and schema": (
                lambda: statements.plan(session, _STATEMENT, None, deadline),
                _GOAL_MS,
            ),
            "new text, to its ticket and schema": (
                lambda: statements.plan(session, next(texts), None, deadline),
                None,
            ),
            f"gate and rewrite of {_LONG_BYTES} bytes, parsed": (
                lambda: _gate(next(trees)),
                _GATE_GOAL_MS,
            ),
            "the same with parsing, printing and reading back by DuckDB": (
                lambda: engine.unparse(_gate(engine.parse(next(longs)))),
                None,
            ),
        }
        for what, (call, at_most) in measured.items():
            _measure(report, what, call, repeats, at_most=at_most)


@contextlib.contextmanager
def _parts(
    folder: Path, partitions: int, seed: int
) -> Iterator[tuple[MemoryLog, PinCache, Engine, Statements]]:
    log = MemoryLog()
    log.create_topic(TOPIC, partitions)
    catalogs, binding = sqlite_catalogs(folder), Binding(TOPIC)
    create_table(
        catalogs,
        NewTable(TABLE, FLOWS.columns, binding),
        first_watermark(log.measure([TOPIC])[TOPIC], binding),
    )
    generator = records.Generator(seed)
    for partition in range(partitions):
        for value in generator.values(partition, _RECORDS_PER_PARTITION, partitions):
            log.append(TOPIC, partition, MemoryRecord(value.encode()))
    spill = folder / "spill"
    spill.mkdir()
    with contextlib.ExitStack() as stack:
        store = IcebergStore(catalogs)
        stack.callback(store.close)
        pins = stack.enter_context(PinCache(store, refresh_s=3600))
        engine = Engine(storage_roots=[catalogs["lake"]["warehouse"]], spill_dir=spill)
        stack.callback(engine.close)
        tails = Tails(
            local_readers(log, decoder_for, pacing=Pacing()),
            engine.segments,
            TailLimits(1000, 2**20, 30),
            following=FollowSettings(max_tables=0),
        )
        yield (
            log,
            pins,
            engine,
            Statements(
                Sources(pins, store, BoundsCache(log), tails, engine),
                ticket_ttl_s=300,
                secrets=[bytes(32)],
                now_us=lambda: time.time_ns() // 1000,
                default_path=("lake", "bench"),
            ),
        )


def _measure(
    report: Report,
    what: str,
    call: Callable[[], object],
    repeats: int,
    *,
    at_most: float | None,
) -> None:
    took_ms = []
    for repeat in range(repeats + repeats // 10):
        began = time.perf_counter()
        call()
        if repeat >= repeats // 10:
            took_ms.append((time.perf_counter() - began) * 1000)
    report.figure(
        f"{what}, median",
        quantile(took_ms, 0.5),
        "ms",
        at_most=at_most,
    )
    report.details[what] = {
        "p50_ms": quantile(took_ms, 0.5),
        "p99_ms": quantile(took_ms, 0.99),
        "longest_ms": max(took_ms),
    }


def _gate(document: Node) -> Node:
    """What a new tree goes through before its tables are pinned, and the tree that is run in its place."""
    check(document)
    names = {}
    for reference in references(document):
        resolved = resolve(reference, "lake", "bench", [TABLE])
        names[reference] = f"__tc:{resolved.table}:all"
    return rewrite(document, names)


def _long_statement(number: int) -> str:
    """A statement of 2 KB: a CTE, a self-join and a pivot by hand. ``number`` makes its text a new one."""
    head = (
        f"WITH recent AS (SELECT * FROM {TABLE} WHERE id > {number}) "
        "SELECT r.protocol, count(*) AS n, max(e.at) AS newest"
    )
    tail = (
        f" FROM recent AS r JOIN {TABLE} AS e ON r.id = e.id AND NOT e.blocked "
        "GROUP BY r.protocol ORDER BY n DESC LIMIT 10"
    )
    ports = (
        f", sum(CASE WHEN r.dst_port = {port} AND r.duration_s > 0.5 THEN r.bytes ELSE 0 END) AS port_{port}"
        for port in itertools.count(1024)
    )
    sql = head
    while len(sql) + len(tail) < _LONG_BYTES - 100:
        sql += next(ports)
    return (sql + tail).ljust(_LONG_BYTES)
