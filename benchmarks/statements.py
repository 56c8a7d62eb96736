"""Forty statements through the server by the stock driver, each beside plain DuckDB over the same rows.

A new cursor for each, as people do, nothing prepared by hand; the two are asked in turns. First while the topic is quiet,
when every answer is compared, then while records arrive and are tiered, as they are where people work. Plain DuckDB has
the rows of the moment before each statement's turns. A third takes its turn: a bare Flight SQL server over that plain DuckDB, by
the same driver, which is what the protocol costs by itself.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from decimal import Decimal
from pathlib import Path
from statistics import median

import adbc_driver_flightsql.dbapi as flight_sql
import click
import duckdb
import pyarrow as pa

from benchmarks.baseline import PlainDuckDB
from benchmarks.flight_servers import serve_plain, served
from benchmarks.options import partition_by, seed
from benchmarks.questions import Question, Times, questions
from benchmarks.records import traffic
from benchmarks.report import Report, quantile, recorded
from benchmarks.shapes import events
from benchmarks.tierer import running_tierer
from benchmarks.world import TABLE, TOPIC, World, running_world, tiering

QUIET = "quiet"
#: What a statement may take: so many times plain DuckDB's time, or so many milliseconds more than that.
_ALLOWED = {True: (1.10, 5.0), False: (1.25, 10.0)}
#: Rows are compared one by one up to here, beyond by what all of them hash to.
_COMPARED_ROWS = 10_000
STEP_US = 43_000
_FILL_BUDGET_S = 300.0

_Baselines = tuple[PlainDuckDB, flight_sql.Connection]


@click.command()
@click.option("--cold-rows", type=click.IntRange(8), default=20_000_000, show_default=True)
@click.option("--hot-rows", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--publish-rows", type=click.IntRange(1), default=2_000_000, show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=15, show_default=True)
@click.option(
    "--rate",
    type=click.IntRange(0),
    default=5_000,
    show_default=True,
    help="Records a second that arrive in the second half; 0 leaves it out.",
)
@click.option(
    "--interval",
    type=click.IntRange(1),
    default=60,
    show_default=True,
    help="Seconds between publishes in the second half: the tail holds what arrives in that time.",
)
@click.option("--partitions", type=click.IntRange(1), default=24, show_default=True)
@click.option("--only", default="", help="Statements whose kind has this text.")
@partition_by
@seed
@click.pass_obj
def command(
    results: Path,
    cold_rows: int,
    hot_rows: int,
    publish_rows: int,
    repeats: int,
    rate: int,
    interval: int,
    partitions: int,
    only: str,
    partition_by: tuple[str, ...],
    seed: int,
) -> None:
    """Forty statements as people write them, through the server, beside plain DuckDB."""
    base_us = int(time.time() * 1e6) - (cold_rows + hot_rows) * STEP_US
    times = Times(cold_rows, hot_rows, base_us, STEP_US)
    with (
        recorded(results, "statements") as report,
        running_world(
            partitions=partitions,
            seed=seed,
            partition_by=partition_by,
            shape=events(base_us, STEP_US),
        ) as world,
    ):
        world.produce(cold_rows)
        with running_tierer(world) as tierer:
            tierer.drain(publish_rows)
        world.produce(hot_rows)
        chosen = [each for each in questions(times, seed) if only in each.kind]
        report.details |= {"files": len(world.data_files()), "statements": {}}
        with (
            world.server() as server,
            flight_sql.connect(server.uri, autocommit=True) as connection,
        ):
            wait_for_rows(connection, times.rows)
            with _baselines(world) as baselines:
                quiet = contextlib.nullcontext(baselines)
                _compare(report, chosen, connection, lambda: quiet, repeats, rate=0)
            if rate:
                with _arriving(world, rate), tiering(world, interval):
                    of_now = functools.partial(_baselines, world)
                    _compare(report, chosen, connection, of_now, repeats, rate=rate)


@contextlib.contextmanager
def _arriving(world: World, rate: int) -> Iterator[None]:
    with traffic(
        world.broker.bootstrap,
        TOPIC,
        partitions=world.partitions,
        rate=rate,
        seed=world.seed,
        shape=world.shape,
        sticky=True,
    ):
        time.sleep(2)
        yield


@contextlib.contextmanager
def _baselines(world: World) -> Iterator[_Baselines]:
    """Plain DuckDB over the rows of now, and a bare server over the same."""
    with (
        _plain(world) as duck,
        served(serve_plain, duck.set_up(world.folder / "hot.parquet")) as server,
        flight_sql.connect(server.uri, autocommit=True) as bare,
    ):
        yield duck, bare


@contextlib.contextmanager
def _plain(world: World) -> Iterator[PlainDuckDB]:
    """Plain DuckDB over the rows of now: the files and the tail of one snapshot."""
    while True:
        before = world.pin().snapshot_id
        with contextlib.closing(PlainDuckDB(world, world.data_files())) as duck:
            # Something may have been published meanwhile.
            if duck.cut.cold.snapshot_id == before:
                yield duck
                return


def wait_for_rows(connection: flight_sql.Connection, rows: int) -> None:
    """Ask until the tail is followed: what the first statement costs is measured by ``tail``."""
    deadline = time.monotonic() + _FILL_BUDGET_S
    while True:
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT count(*) FROM {TABLE}")
                count = cursor.fetchone()
        except flight_sql.Error:
            if time.monotonic() > deadline:
                raise
        else:
            if count != (rows,):
                raise RuntimeError(f"the table holds {count} rows, not {rows}")
            return


def _compare(
    report: Report,
    statements: Sequence[Question],
    connection: flight_sql.Connection,
    baselines_now: Callable[[], AbstractContextManager[_Baselines]],
    repeats: int,
    *,
    rate: int,
) -> None:
    ratio, plus_ms = _ALLOWED[not rate]
    when = f"{rate:,} events/s" if rate else QUIET
    lines = report.details["statements"].setdefault(when, {})
    for question in statements:
        with baselines_now() as (duck, bare):
            ours, plain, served_plain = _in_turns(
                question, connection, duck, bare, repeats, is_compared=not rate
            )
        ours_ms, plain_ms, bare_ms = median(ours), median(plain), median(served_plain)
        of_allowed = ours_ms / max(ratio * plain_ms, plain_ms + plus_ms)
        lines[question.kind] = {
            "of_allowed": of_allowed,
            "sql": question.sql[:500],
            "plain_ms": plain_ms,
            "ours_ms": ours_ms,
            "ours_p90_ms": quantile(ours, 0.9),
            "ratio": ours_ms / plain_ms,
            "plus_ms": ours_ms - plain_ms,
            "bare_ms": bare_ms,
        }
        print(
            f"{when:14} {question.kind:36} {plain_ms:8.1f} {ours_ms:8.1f} ms  {ours_ms / plain_ms:5.2f}  "
            f"{ours_ms - plain_ms:+7.1f} ms  bare server {bare_ms:8.1f} ms",
            flush=True,
        )
        report.figure(
            f"{question.kind}, {when}: ours / max({ratio:g} x plain, plain + {plus_ms:g} ms)",
            of_allowed,
            "",
            at_most=1.0,
        )
    within = sum(
        line["bare_ms"] <= max(ratio * line["plain_ms"], line["plain_ms"] + plus_ms)
        for line in lines.values()
    )
    protocol_ms = median(line["bare_ms"] - line["plain_ms"] for line in lines.values())
    more_ms = median(line["ours_ms"] - line["bare_ms"] for line in lines.values())
    report.figure(
        f"{when}: statements that a bare Flight SQL server answers within that", within, ""
    )
    report.figure(f"{when}: bare server less plain DuckDB, median of all", protocol_ms, "ms")
    report.figure(f"{when}: ours less the bare server, median of all", more_ms, "ms")


def _in_turns(
    question: Question,
    connection: flight_sql.Connection,
    duck: PlainDuckDB,
    bare: flight_sql.Connection,
    repeats: int,
    *,
    is_compared: bool,
) -> tuple[list[float], list[float], list[float]]:
    """Milliseconds through the server, of plain DuckDB, and of that behind the protocol alone.

    Two rounds before them fill caches on all sides.
    """
    ours, plain, served_plain = [], [], []
    text = question.sql.format(t="everything")
    for repeat in range(-2, repeats):
        took_s, answer = _timed(connection, question.sql.format(t=TABLE))
        plain_s, expected = duck.timed(text)
        if is_compared and not question.follows_clock:
            _require_same(question, answer, expected)
        bare_s, _ = _timed(bare, text)
        if repeat >= 0:
            ours.append(took_s * 1000)
            plain.append(plain_s * 1000)
            served_plain.append(bare_s * 1000)
    return ours, plain, served_plain


def _timed(connection: flight_sql.Connection, sql: str) -> tuple[float, pa.Table]:
    began = time.perf_counter()
    with connection.cursor() as cursor:
        cursor.execute(sql)
        answer = cursor.fetch_arrow_table()
    return time.perf_counter() - began, answer


def _require_same(question: Question, answer: pa.Table, expected: pa.Table) -> None:
    if question.is_any or answer.num_rows != expected.num_rows:
        same = answer.num_rows == expected.num_rows
    elif answer.num_rows > _COMPARED_ROWS:
        same = _hash(answer) == _hash(expected)
    else:
        pairs = zip(_rows(answer), _rows(expected), strict=True)
        same = all(
            _is_near(one, other)
            for row, other_row in pairs
            for one, other in zip(row, other_row, strict=True)
        )
    if not same:
        raise RuntimeError(
            f"{question.kind}: {answer.num_rows} rows {str(answer.slice(0, 5).to_pylist())[:500]}, not "
            f"{expected.num_rows} rows {str(expected.slice(0, 5).to_pylist())[:500]}"
        )


def _hash(rows: pa.Table) -> object:
    """What all rows together hash to, in any order; without columns of floating numbers."""
    rows = rows.rename_columns([f"c{number}" for number in range(rows.num_columns)])
    with duckdb.connect() as connection:
        connection.register("answer", rows)
        columns = ", ".join(rows.column_names)
        return connection.execute(f"SELECT sum(hash({columns})) FROM answer").fetchone()


def _rows(answer: pa.Table) -> list[tuple[object, ...]]:
    columns = [column.to_pylist() for column in answer.columns]
    return sorted(zip(*columns, strict=True), key=repr)


def _is_near(one: object, other: object) -> bool:
    """The same; sums of doubles depend on their order in the last digits."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9) or (one != one and other != other)
    if isinstance(one, Decimal | int) and isinstance(other, Decimal | int):
        return Decimal(one) == Decimal(other)
    return one == other
