"""The followed tail: how fast it is filled, what it weighs, what it costs those who ask meanwhile.

The server is a process of its own; what it holds is read from its metrics. Everything is hot: nothing is tiered.
"""

from __future__ import annotations

import contextlib
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import adbc_driver_flightsql.dbapi as flight_sql
import click
import psutil
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.baseline import PlainDuckDB
from benchmarks.options import partitions, seed
from benchmarks.records import traffic
from benchmarks.report import Report, quantile, recorded, summary
from benchmarks.sizes import in_engine
from benchmarks.usage import cpu_s
from benchmarks.world import TABLE, TOPIC, Serving, World, running_world
from planner.names import TableName
from thermocline.serve.assembly import running_components
from thermocline.serve.components import Components

_TWIN, _TWIN_TOPIC = TableName("lake", ("bench",), "quiet"), "quiet"
_UNREAD = "unread"
_COUNT = "SELECT count(*) FROM {table}"
_POINT = "SELECT * FROM {table} WHERE id = {key}"
_RATE = 5_000
#: More than any reader keeps up with on two cores.
_FULL_RATE = 1_000_000
#: Only the overload shall meet a limit.
_UNBOUNDED = {"max_tail_rows": 1 << 32, "max_tail_bytes": 1 << 40}
_WAIT_S = 300.0
_POLL_S = 0.02
#: Longest wait for a server to come to rest, and how long nothing changes then.
_REST_S = 120.0
_SETTLED_S = 5.0


@dataclass
class _Watched:
    """A server and what it says of itself."""

    serving: Serving
    port: int

    def value(self, name: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            families = text_string_to_metric_families(answer.read().decode())
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == name
        )

    def wait_for(self, rows: int) -> float:
        """Wait until so many rows are held; return the seconds."""
        began = time.perf_counter()
        while self.value("thermocline_tail_rows") < rows:
            if time.perf_counter() - began > _WAIT_S:
                raise RuntimeError(f"the tail did not reach {rows} rows")
            time.sleep(_POLL_S)
        return time.perf_counter() - began

    @property
    def resident_bytes(self) -> int:
        return sum(
            process.memory_info().rss
            for process in (
                psutil.Process(self.serving.pid),
                *psutil.Process(self.serving.pid).children(recursive=True),
            )
        )

    def at_rest(self) -> int:
        """Return the resident bytes once rows are packed, and what filling needed was given back."""
        until = time.monotonic() + _REST_S
        value, packed = self.resident_bytes, 0.0
        while time.monotonic() < until:
            time.sleep(_SETTLED_S)
            value, at_first = self.resident_bytes, value
            packed, before = self.value("thermocline_tail_packed_bytes"), packed
            if packed == before > 0 and at_first - value < at_first // 200:
                break
        return value


@click.command()
@click.option("--rows", type=click.IntRange(1000), default=5_000_000, show_default=True)
@click.option("--restart-rows", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option("--statements", type=click.IntRange(20), default=1_000, show_default=True)
@partitions
@seed
@click.pass_obj
def command(
    results: Path, rows: int, restart_rows: int, statements: int, partitions: int, seed: int
) -> None:
    """Fill a tail, restart over it, look into it, and serve others while it fills."""
    with (
        recorded(results, "tail") as report,
        running_world(partitions=partitions, seed=seed) as world,
    ):
        world.produce(restart_rows)
        _restart(report, world)
        world.produce(rows - restart_rows)
        _points(report, world, statements)
        _fill(report, world)
        world.create(_TWIN_TOPIC, _TWIN)
        world.produce(restart_rows // 10, _TWIN_TOPIC)
        world.create(_UNREAD, TableName("lake", ("bench",), _UNREAD))
        _serving(report, world, statements)
        _overload(report, world)


def _restart(report: Report, world: World) -> None:
    """From the start of the process to the first correct answer over the whole tail."""
    took: list[float] = []
    for _ in range(3):
        began = time.perf_counter()
        with _server(world, **_UNBOUNDED) as server, _connected(server) as connection:
            result = _ask(connection, _COUNT.format(table=TABLE))[0][0]
            took.append(time.perf_counter() - began)
        if result != world.produced:
            raise RuntimeError(f"{result} rows counted, {world.produced} produced")
    report.figure(
        f"restart to the first correct answer, {world.produced:,} rows in the tail",
        median(took),
        "s",
        at_most=5,
    )


def _points(report: Report, world: World, statements: int) -> None:
    """A point statement in the server's engine over the whole tail, beside a native table of the same rows."""
    with running_components(world.settings(**_UNBOUNDED)) as components:
        in_engine(components, _COUNT.format(table=TABLE))
        _packed(components)
        duck = PlainDuckDB(world, ())
        with contextlib.closing(duck):
            ours: list[float] = []
            plain: list[float] = []
            step = max(1, world.produced // statements)
            for key in range(0, world.produced, step):
                ours.append(in_engine(components, _POINT.format(table=TABLE, key=key))[1])
                plain.append(duck.timed(_POINT.format(table="hot", key=key))[0] * 1000)
    report.figure(
        f"point statement in the engine, tail of {world.produced:,} rows, median",
        median(ours),
        "ms",
        at_most=10,
    )
    report.figure("the same in plain DuckDB", median(plain), "ms")


def _packed(components: Components) -> None:
    """Wait until as much of the tails is packed as will be."""
    until, packed = time.monotonic() + _REST_S, -1
    while time.monotonic() < until:
        time.sleep(_SETTLED_S)
        packed, before = sum(state.packed for state in components.tails.states()), packed
        if packed == before > 0:
            break


def _fill(report: Report, world: World) -> None:
    """Follow the whole topic from its start: rate, CPU, and what a row weighs."""
    with _server(world, **_UNBOUNDED) as server:
        used_s, began = cpu_s({"server": server.serving.pid}), time.perf_counter()
        before = server.resident_bytes
        server.wait_for(world.produced)
        took_s = time.perf_counter() - began
        used = cpu_s({"server": server.serving.pid})
        own_s = sum(
            seconds - used_s.get(role, 0.0)
            for role, seconds in used.items()
            if role.startswith("server")
        )
        filled = server.resident_bytes - before
        arrow = server.value("thermocline_tail_bytes")
        rested = server.at_rest() - before
    report.figure("follow rate", world.produced / took_s, "rows/s", at_least=400_000)
    report.figure("CPU of the server", own_s / world.produced * 1e6, "s per million rows")
    report.figure(
        "memory of the process per decoded row / its Arrow size",
        rested / arrow,
        "",
        at_most=1.3,
    )
    report.figure("the same in the moment the last row is held", filled / arrow, "")
    report.figure("Arrow size of a decoded row", arrow / world.produced, "B")


def _serving(report: Report, world: World, statements: int) -> None:
    """Statements over a quiet table: alone, beside producer and broker, and beside a follower of what they bring.

    All share this machine's cores: what nobody reads tells the part of producer and broker.
    """
    fixed, full = f"{_RATE:,} events/s", "full rate"
    others: dict[str, Callable[[], AbstractContextManager[object]]] = {
        "idle": nullcontext,
        f"{fixed} that nobody reads": lambda: _traffic(world, _RATE, _UNREAD),
        fixed: lambda: _traffic(world, _RATE, TOPIC),
        f"{full} that nobody reads": lambda: _traffic(world, _FULL_RATE, _UNREAD),
        full: lambda: _traffic(world, _FULL_RATE, TOPIC),
    }
    p99: dict[str, float] = {}
    with _server(world, **_UNBOUNDED) as server:
        server.wait_for(world.produced)
        server.at_rest()
        with _connected(server) as connection:
            _ask(connection, _COUNT.format(table=_TWIN))
            for name, running in others.items():
                with running():
                    value, began = server.value("thermocline_tail_rows"), time.perf_counter()
                    took = _times(connection, statements)
                    followed = server.value("thermocline_tail_rows") - value
                    followed /= time.perf_counter() - began
                p99[name] = quantile(took, 0.99)
                report.figure(f"serving a quiet table, {name}, p50", median(took), "ms")
                report.figure(f"serving a quiet table, {name}, p99", p99[name], "ms")
                report.figure(f"serving a quiet table, {name}, followed", followed, "rows/s")
                report.details[f"serving, {name}, ms"] = summary(took)
    report.figure(f"serving p99, {fixed} / idle", p99[fixed] / p99["idle"], "", at_most=1.2)
    report.figure(f"serving p99, {full} / idle", p99[full] / p99["idle"], "", at_most=3)
    for rate in (fixed, full):
        unread = p99[f"{rate} that nobody reads"]
        report.figure(f"serving p99, {rate} that nobody reads / idle", unread / p99["idle"], "")
        report.figure(f"serving p99, {rate}, followed / not", p99[rate] / unread, "")


def _overload(report: Report, world: World) -> None:
    """A tail of ten times its budget: a named error, and memory within the budget."""
    budget = world.produced // 10
    with _server(world, max_tail_rows=budget) as server, _connected(server) as connection:
        before = server.resident_bytes
        try:
            _ask(connection, _COUNT.format(table=TABLE))
            refused = ""
        except flight_sql.Error as error:
            refused = str(error)
        value = server.value("thermocline_tail_rows")
        grown = server.resident_bytes - before
    report.figure(
        "overload of 10 times: statements answered without a named error",
        float("max_tail_rows" not in refused),
        "",
        at_most=0,
    )
    report.figure("overload of 10 times: rows held / budget", value / budget, "", at_most=1)
    report.figure("overload of 10 times: memory grown", grown / 2**20, "MiB")


@contextlib.contextmanager
def _server(world: World, **settings: float) -> Iterator[_Watched]:
    port = world.free_port()
    with world.server(http_port=port, tail={"follow": [str(TABLE)]}, **settings) as serving:
        yield _Watched(serving, port)


@contextlib.contextmanager
def _connected(server: _Watched) -> Iterator[flight_sql.Connection]:
    with flight_sql.connect(server.serving.uri, autocommit=True) as connection:
        yield connection


def _traffic(world: World, rate: int, topic: str) -> AbstractContextManager[None]:
    return traffic(
        world.broker.bootstrap, topic, partitions=world.partitions, rate=rate, seed=world.seed
    )


def _times(connection: flight_sql.Connection, statements: int) -> list[float]:
    took: list[float] = []
    for key in range(statements):
        began = time.perf_counter()
        if len(_ask(connection, _POINT.format(table=_TWIN, key=key))) != 1:
            raise RuntimeError(f"record {key} is not there")
        took.append((time.perf_counter() - began) * 1000)
    return took


def _ask(connection: flight_sql.Connection, sql: str) -> list[tuple[object, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()
