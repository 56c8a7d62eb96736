"""Many clients at once, none of which waits between statements: what 64 get of what 4 get.

The world goes on meanwhile: records of other ids arrive, and no question asks for them. Both numbers of clients take
turns, so that what else the machine does meets both.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import click

from benchmarks.baseline import PlainDuckDB
from benchmarks.load import Clients, Load, Question, plain_rows
from benchmarks.options import partitions, seed
from benchmarks.records import traffic
from benchmarks.report import Report, quantile, recorded
from benchmarks.tierer import running_tierer
from benchmarks.usage import cpu_s, resident_bytes
from benchmarks.world import TABLE, TOPIC, Serving, World, running_world

FEW, MANY = 4, 64
_SAMPLE_S = 2.0
#: Of each turn, what goes before it counts: connecting, first statements, caches.
_WARM_UP = 0.1
_KEYS = 40
#: The server's processes: itself, and those that read topics. Each by itself: they have pages in common.
_ROLES = {"server": "server's", "server workers": "its topic readers'"}
_LOG_LINES = 200


def questions(world: World, cold_rows: int, duck: PlainDuckDB, seed: int) -> list[Question]:
    """What tools and services ask: mostly small, some aggregates, one of a thousand rows; each with its answer."""
    total, chance = world.produced, random.Random(seed)
    mine = f"id < {total}"
    point = "SELECT id, src, dst, bytes, blocked FROM {table} WHERE id = "
    aggregates = {
        "count and sum": f"SELECT count(*) AS n, sum(bytes) AS total FROM {{table}} WHERE {mine}",
        "group by": f"SELECT protocol, count(*) AS n, max(bytes) AS most FROM {{table}} WHERE {mine} GROUP BY protocol",
        "newest thousand": f"SELECT id, dst_port, bytes FROM {{table}} WHERE id >= {total - 1000} AND {mine}",
        "top ten": f"SELECT id, bytes FROM {{table}} WHERE {mine} AND id >= {total // 2} ORDER BY bytes DESC, id LIMIT 10",
    }

    def request(kind: str, sql: str, plain: str, **more: Any) -> Question:
        _, answer = duck.timed(plain.format(table="everything"))
        return Question(kind, sql.format(table=TABLE), plain_rows(answer), **more)

    result = []
    for number in range(_KEYS):
        start, stop = (
            (cold_rows, total) if number % 2 and cold_rows < total else (0, cold_rows or total)
        )
        key = chance.randrange(start, stop)
        side = "hot" if start else "cold"
        result += [
            request(f"point, {side}, bound", point + "?", f"{point}{key}", parameters=(key,)),
            request(f"point, {side}, new text", f"{point}{key}", f"{point}{key}", is_new=True),
        ]
    for kind, sql in aggregates.items():
        result += [request(kind, sql, sql)] * 4
        result += [request(f"{kind}, new text", sql, sql, is_new=True)]
    tables = "SELECT table_schema, table_name FROM information_schema.tables"
    result += [Question("no table", "SELECT 1 AS one", [(1,)])] * 10
    result += [Question("information_schema", tables, [("bench", "events")])] * 4
    return result


@click.command()
@click.option(
    "--minutes", type=float, default=10.0, show_default=True, help="For each number of clients."
)
@click.option("--turns", type=click.IntRange(1), default=5, show_default=True)
@click.option(
    "--processes",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="That the clients share.",
)
@click.option("--cold-rows", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option("--hot-rows", type=click.IntRange(1), default=100_000, show_default=True)
@click.option(
    "--rate",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    help="Records a second meanwhile.",
)
@partitions
@seed
@click.pass_obj
def command(
    results: Path,
    minutes: float,
    turns: int,
    processes: int,
    cold_rows: int,
    hot_rows: int,
    rate: int,
    partitions: int,
    seed: int,
) -> None:
    """Ask mixed statements from 4 and from 64 clients in a closed loop."""
    with (
        recorded(results, "closed-loop") as report,
        running_world(partitions=partitions, seed=seed) as world,
    ):
        world.produce(cold_rows)
        with running_tierer(world) as tierer:
            tierer.drain(cold_rows)
        world.produce(hot_rows)
        with contextlib.closing(PlainDuckDB(world, world.data_files())) as duck:
            request = questions(world, cold_rows, duck, seed)
        with (
            world.server() as server,
            traffic(world.broker.bootstrap, TOPIC, partitions=partitions, rate=rate, seed=seed),
        ):
            _Turns(report, server, request, processes, seed).run(minutes * 60, turns)
        # What an internal error was is told there only. Lines of JSON are the audit's.
        log = (world.folder / "server.log").read_text(errors="replace").splitlines()
        report.details["server_log"] = [line for line in log if not line.startswith("{")][
            -_LOG_LINES:
        ]


class _Turns:
    """Gathers what few and many clients saw, and what the server took for them."""

    def __init__(
        self,
        report: Report,
        server: Serving,
        questions: list[Question],
        processes: int,
        seed: int,
    ) -> None:
        self._report = report
        self._server = server
        self._questions = questions
        self._processes = processes
        self._seeds = itertools.count(seed)
        self._latencies: dict[int, dict[str, list[float]]] = {FEW: {}, MANY: {}}
        self._seconds = {FEW: 0.0, MANY: 0.0}
        self._cpu_s = {FEW: 0.0, MANY: 0.0}
        self._answered = {FEW: 0, MANY: 0}
        self._wrong: list[str] = []
        self._turns = 1
        self._resident: dict[str, list[int]] = {role: [] for role in _ROLES}

    def run(self, seconds: float, turns: int) -> None:
        # Not counted: the first statement of each kind, and threads and pools as large as they get.
        self._turn(MANY, seconds / turns, is_counted=False)
        for _ in range(turns):
            for clients in (FEW, MANY):
                self._turn(clients, seconds / turns)
        self._turns = turns
        self._tell()

    def _turn(self, clients: int, seconds: float, *, is_counted: bool = True) -> None:
        load = Clients(
            self._server.uri,
            self._questions,
            count=clients,
            processes=self._processes,
            seed=next(self._seeds),
        )
        before_s = self._used_s()
        with self._sampled(is_counted=is_counted and clients == MANY):
            output = load.run(seconds)
        used_s = self._used_s() - before_s
        self._wrong += output.wrong
        if is_counted:
            self._cpu_s[clients] += used_s
            self._count(clients, output)

    def _count(self, clients: int, observed: Load) -> None:
        ends = [ended for items in observed.spans.values() for ended, _ in items]
        since = min(ends) + _WARM_UP * (max(ends) - min(ends))
        self._seconds[clients] += max(ends) - since
        self._answered[clients] += len(ends)
        for kind, items in observed.spans.items():
            value = self._latencies[clients].setdefault(kind, [])
            value += [took_s * 1000 for ended, took_s in items if ended > since]

    def _used_s(self) -> float:
        used = cpu_s({"server": self._server.pid})
        return sum(used[role] for role in _ROLES)

    @contextlib.contextmanager
    def _sampled(self, *, is_counted: bool) -> Iterator[None]:
        stopped = threading.Event()

        def sample() -> None:
            while not stopped.wait(_SAMPLE_S):
                value = resident_bytes({"server": self._server.pid})
                if is_counted:
                    for role, sizes in self._resident.items():
                        sizes.append(value[role])

        thread = threading.Thread(target=sample, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()

    def _growth(self, sizes: list[int]) -> float:
        turn = max(1, len(sizes) // self._turns)
        return median(sizes[-turn:]) / median(sizes[:turn])

    def _tell(self) -> None:
        report = self._report
        all_ms = {
            n: [ms for items in batch.values() for ms in items]
            for n, batch in self._latencies.items()
        }
        rate = {n: len(items) / self._seconds[n] for n, items in all_ms.items()}
        p99 = {n: quantile(items, 0.99) for n, items in all_ms.items()}
        report.figure(
            f"statements a second, {MANY} clients / {FEW} clients",
            rate[MANY] / rate[FEW],
            "",
            at_least=0.9,
        )
        report.figure(
            f"p99, {MANY} clients / {FEW} clients", p99[MANY] / p99[FEW], "", at_most=48
        )
        report.figure("errors and wrong answers", len(self._wrong), "", at_most=0)
        for role, sizes in self._resident.items():
            if any(sizes):
                report.figure(
                    f"{_ROLES[role]} resident memory, last turn / first turn",
                    self._growth(sizes),
                    "",
                    at_most=1.05,
                )
        for clients, items in all_ms.items():
            report.figure(f"statements a second, {clients} clients", rate[clients], "1/s")
            report.figure(f"median, {clients} clients", quantile(items, 0.5), "ms")
            report.figure(f"p99, {clients} clients", p99[clients], "ms")
            per_thousand = self._cpu_s[clients] / self._answered[clients] * 1000
            report.figure(
                f"server, CPU per 1,000 statements, {clients} clients", per_thousand, "s"
            )
        report.details.update(
            by_kind={
                clients: {
                    kind: {
                        "count": len(items),
                        "p50_ms": quantile(items, 0.5),
                        "p99_ms": quantile(items, 0.99),
                    }
                    for kind, items in sorted(batch.items())
                }
                for clients, batch in self._latencies.items()
            },
            wrong=self._wrong[:20],
            resident_bytes=self._resident,
        )
