"""Freshness: a statement that starts when a record is acknowledged contains it. How long does it take?

Other records arrive meanwhile at a fixed rate, and ids rise with time, as those of events do: statistics keep files and
blocks that are older than a record out of its statement. Beside every sample the same statement runs over a twin of the
table whose topic is quiet: the difference is the price of being fresh. Tiering between the samples, never beside them,
bounds the tail: from ``--tail-rows``, those of the topic when sampling begins, to what arrives in ``--tier-every``
samples. The statements go on over the pin the server holds, whatever its age.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import adbc_driver_flightsql.dbapi as flight_sql
import click
import pyarrow as pa
from confluent_kafka import KafkaError, Message, Producer

from benchmarks.options import partitions, seed
from benchmarks.records import Generator, traffic
from benchmarks.report import Report, quantile, recorded
from benchmarks.shapes import TRAFFIC_ID
from benchmarks.tierer import Tierer, running_tierer
from benchmarks.world import TABLE, TOPIC, World, running_world
from planner.names import TableName

_GOAL_P50_MS = 8
_GOAL_P99_MS = 20
_PUBLISH_ROWS = 2_000_000
_ACK_TIMEOUT_S = 30.0
_TAIL_TIMEOUT_S = 300.0
_TWIN, _TWIN_TOPIC = TableName("lake", ("bench",), "quiet"), "quiet"
_SQL = "SELECT count(*) FROM {table} WHERE id = ?"
_GOAL_PRICE_P50_MS = 3
_GOAL_PRICE_P99_MS = 15
#: Ids a second where nothing else arrives.
_SILENT_RATE = 1_000
#: Of twelve samples ten ask as a stock client does, one each in the two quicker ways.
_WAYS = ("stock",) * 5 + ("reused",) + ("stock",) * 5 + ("direct",)


@dataclass(frozen=True, slots=True)
class _Answer:
    """How often the record was found, and the seconds of each phase as the client saw them."""

    count: int
    phases_s: dict[str, float]


@click.command()
@click.option(
    "--samples",
    type=click.IntRange(12),
    default=10_000,
    show_default=True,
    help="Statements of a stock client; a fifth more are asked in other ways.",
)
@click.option("--cold-rows", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option(
    "--tier-every",
    type=click.IntRange(1),
    default=2_000,
    show_default=True,
    help="Samples between two publishes: the largest tail but for the age of the pin.",
)
@click.option(
    "--tail-rows",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Rows that are not tiered before sampling begins; such a run is recorded as freshness-tail.",
)
@click.option(
    "--rate",
    type=click.IntRange(0),
    default=5_000,
    show_default=True,
    help="Other records a second.",
)
@partitions
@seed
@click.pass_obj
def command(
    results: Path,
    samples: int,
    cold_rows: int,
    tier_every: int,
    tail_rows: int,
    rate: int,
    partitions: int,
    seed: int,
) -> None:
    """Produce a record, wait for its acknowledgement, ask for it by its id through ADBC."""
    with (
        recorded(results, "freshness-tail" if tail_rows else "freshness") as report,
        running_world(partitions=partitions, seed=seed) as world,
    ):
        world.produce(cold_rows)
        world.create(_TWIN_TOPIC, _TWIN)
        world.produce(cold_rows, _TWIN_TOPIC)
        with running_tierer(world) as tierer:
            tierer.drain(_PUBLISH_ROWS)
            tierer.drain(_PUBLISH_ROWS, _TWIN)
            if tail_rows:
                world.produce(tail_rows)
            with (
                world.server() as server,
                flight_sql.connect(server.uri, autocommit=True) as connection,
            ):
                report.figure("rows of the tail before", _read_tail(connection), "")
                with _others(world, rate):
                    keys = keys_near(rate or _SILENT_RATE)
                    answers, twins = _sample(
                        world, tierer, connection, keys, samples, tier_every
                    )
                total = _count(connection)
        _report(report, answers, total)
        _report_price(report, answers["stock"], twins)


def _read_tail(connection: flight_sql.Connection) -> int:
    """Have the server read the tail; what a statement may not wait for is there for a later one. Give its rows."""
    sql = f'SELECT count(id) FROM {TABLE.catalog}.{TABLE.namespace[0]}."{TABLE.name}$tail"'
    deadline = time.monotonic() + _TAIL_TIMEOUT_S
    with connection.cursor() as cursor:
        while True:
            try:
                cursor.execute(sql)
                return int(cursor.fetchall()[0][0])
            except flight_sql.OperationalError:
                if time.monotonic() > deadline:
                    raise


def _others(world: World, rate: int) -> AbstractContextManager[None]:
    """The background traffic; none at rate 0."""
    if not rate:
        return nullcontext()
    return traffic(
        world.broker.bootstrap, TOPIC, partitions=world.partitions, rate=rate, seed=world.seed
    )


def _sample(
    world: World,
    tierer: Tierer,
    connection: flight_sql.Connection,
    keys: Iterator[int],
    samples: int,
    tier_every: int,
) -> tuple[dict[str, list[_Answer]], list[_Answer]]:
    """Ask in all ways, and as a stock client over the twin right after each sample of a stock client."""
    ask, ask_twin = _ways(connection, TABLE), _ways(connection, _TWIN)["stock"]
    write = written_records(world, keys)
    answers: dict[str, list[_Answer]] = defaultdict(list)
    twins: list[_Answer] = []
    ask_twin(0, time.perf_counter())
    # Once each before the clock counts: the first statement of a process loads what the later ones use.
    for way in dict.fromkeys(_WAYS):
        ask[way](0, time.perf_counter())
    for index in range(len(_WAYS) * -(-samples // 10)):
        if index and index % tier_every == 0:
            tierer.drain(_PUBLISH_ROWS)
        key, acknowledged = next(write)
        way = _WAYS[index % len(_WAYS)]
        answers[way].append(ask[way](key, acknowledged))
        if way == "stock":
            twins.append(ask_twin(key, time.perf_counter()))
    return answers, twins


def keys_near(rate: int) -> Iterator[int]:
    """Ids near those of traffic that begins now, and odd."""
    key, began = TRAFFIC_ID - 1, time.monotonic()
    while True:
        sent = int(rate * (time.monotonic() - began))
        key = max(key + 2, TRAFFIC_ID + 2 * sent + 1)
        yield key


def written_records(world: World, keys: Iterator[int]) -> Iterator[tuple[int, float]]:
    """Produce one record after another; give its id and when its acknowledgement arrived."""
    producer = Producer({**world.kafka, "acks": "all", "linger.ms": 0, "log_level": 2})
    generator = Generator(world.seed, world.shape)
    arrived: list[float] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            raise RuntimeError(str(error))
        arrived.append(time.perf_counter())

    for index, key in enumerate(keys):
        (value,) = generator.values(key, 1)
        arrived.clear()
        producer.produce(
            TOPIC, value, partition=index % world.partitions, on_delivery=delivered
        )
        deadline = time.perf_counter() + _ACK_TIMEOUT_S
        while not arrived:
            producer.poll(0.1)
            if time.perf_counter() > deadline:
                raise RuntimeError("the broker did not acknowledge a record")
        yield key, arrived[0]


def stock_client(
    connection: flight_sql.Connection, table: TableName
) -> Callable[[int, float], _Answer]:
    """A new cursor for each id: prepare, bind, execute, read. It takes an id and when the clock began."""
    sql = _SQL.format(table=table)

    def stock(key: int, began: float) -> _Answer:
        with connection.cursor() as cursor:
            cursor.execute(sql, (key,))
            executed = time.perf_counter()
            result = cursor.fetchall()[0][0]
            return _answer(result, began, execute=executed, read=time.perf_counter())

    return stock


def _ways(
    connection: flight_sql.Connection, table: TableName
) -> dict[str, Callable[[int, float], _Answer]]:
    saved, sql = connection.cursor(), _SQL.format(table=table)

    def reused(key: int, began: float) -> _Answer:
        """The same cursor again: its prepared statement stays."""
        saved.execute(sql, (key,))
        executed = time.perf_counter()
        result = saved.fetchall()[0][0]
        return _answer(result, began, execute=executed, read=time.perf_counter())

    def direct(key: int, began: float) -> _Answer:
        """The driver below the DB-API: text with the value in it, nothing prepared."""
        with connection.cursor() as cursor:
            statement = cursor.adbc_statement
            statement.set_sql_query(sql.replace("?", str(key)))
            handle, _ = statement.execute_query()
            executed = time.perf_counter()
            with pa.RecordBatchReader._import_from_c(handle.address) as reader:
                result = reader.read_all().column(0)[0].as_py()
            return _answer(result, began, execute=executed, read=time.perf_counter())

    return {"stock": stock_client(connection, table), "reused": reused, "direct": direct}


def _answer(count: int, began: float, *, execute: float, read: float) -> _Answer:
    phases_s = {"execute": execute - began, "read": read - execute, "all": read - began}
    return _Answer(count, phases_s)


def _count(connection: flight_sql.Connection) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {TABLE} WHERE id >= {TRAFFIC_ID} AND id % 2 = 1")
        return int(cursor.fetchall()[0][0])


def _report_price(report: Report, samples: list[_Answer], twins: list[_Answer]) -> None:
    """What being fresh costs: sample by sample, less its twin's time."""
    price = [
        (sample.phases_s["all"] - twin.phases_s["all"]) * 1000
        for sample, twin in zip(samples, twins, strict=True)
    ]
    quiet = [twin.phases_s["all"] * 1000 for twin in twins]
    what = "stock client, less the same statement on a quiet topic"
    report.figure(f"{what}, p50", quantile(price, 0.5), "ms", at_most=_GOAL_PRICE_P50_MS)
    report.figure(f"{what}, p99", quantile(price, 0.99), "ms", at_most=_GOAL_PRICE_P99_MS)
    report.figure("the same statement on a quiet topic, p50", quantile(quiet, 0.5), "ms")
    report.figure("the same statement on a quiet topic, p99", quantile(quiet, 0.99), "ms")
    report.details["price, ms"] = sorted(round(value, 3) for value in price)


def _report(report: Report, answers: dict[str, list[_Answer]], written: int) -> None:
    every = [answer for value in answers.values() for answer in value]
    report.figure("statements started at an acknowledgement", len(every), "")
    report.figure("records missed", sum(answer.count == 0 for answer in every), "", at_most=0)
    report.figure("records doubled", sum(answer.count > 1 for answer in every), "", at_most=0)
    report.figure(
        "samples the table does not hold at the end", abs(len(every) - written), "", at_most=0
    )
    stock = [answer.phases_s["all"] * 1000 for answer in answers["stock"]]
    report.figure("stock client, p50", quantile(stock, 0.5), "ms", at_most=_GOAL_P50_MS)
    report.figure("stock client, p95", quantile(stock, 0.95), "ms")
    report.figure("stock client, p99", quantile(stock, 0.99), "ms", at_most=_GOAL_P99_MS)
    report.figure("stock client, longest", max(stock), "ms")
    for phase, what in (("execute", "prepare, plan, start"), ("read", "read the rows")):
        batch = [answer.phases_s[phase] * 1000 for answer in answers["stock"]]
        report.figure(f"stock client, {what}, p50", median(batch), "ms")
    for way, what in (("reused", "prepared statement kept"), ("direct", "nothing prepared")):
        batch = [answer.phases_s["all"] * 1000 for answer in answers[way]]
        report.figure(f"{what}, p50", quantile(batch, 0.5), "ms")
        report.figure(f"{what}, p99", quantile(batch, 0.99), "ms")
    report.details["milliseconds"] = {
        way: {
            phase: {
                f"p{share}": quantile(
                    (answer.phases_s[phase] * 1000 for answer in value), share / 100
                )
                for share in (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 100)
            }
            for phase in ("execute", "read", "all")
        }
        for way, value in answers.items()
    }
