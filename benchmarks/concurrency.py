"""Small statements of many clients at once, beside a bare Flight SQL server over plain DuckDB, in turns.

None of the clients waits between statements, and they are on the same cores. No text is sent twice: points by the id of one of
the hot rows, and ``SELECT <number>``; but for cursors that are kept, prepared once. What varies least on a machine that does other
things is the processor time of a statement.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import adbc_driver_flightsql.dbapi as flight_sql
import click

from benchmarks.baseline import PlainDuckDB
from benchmarks.flight_servers import serve_plain, served
from benchmarks.load import NEW_NUMBER, Clients, Load, Question, plain_rows
from benchmarks.options import partitions, seed
from benchmarks.report import Report, quantile, recorded
from benchmarks.usage import cpu_s
from benchmarks.world import TABLE, Serving, World, running_world, serving

_KEYS = 100
#: Of each turn, what goes before it counts: connecting, first statements, caches.
_WARM_UP = 0.25
_THIS = Path(__file__).parents[1]
_OURS, _BARE = "ours", "bare"
_POINT = (
    f"SELECT id, src, dst, bytes FROM {{table}} WHERE id = {{key}} AND bytes < {NEW_NUMBER}"
)
_WAYS = {"text alone": True, "new cursor": False}
#: Cursors that each client keeps, each with a text of its own.
_CURSORS = 10


@click.command()
@click.option("--clients", type=click.IntRange(1), multiple=True, default=(1, 4, 16, 50))
@click.option("--seconds", type=float, default=6.0, show_default=True, help="Of each turn.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--hot-rows", type=click.IntRange(_KEYS), default=1_000, show_default=True)
@click.option("--only", default="", help="Statements whose kind has this text.")
@click.option(
    "--other",
    "others",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    multiple=True,
    help="Another checkout (`git worktree add`); its server runs with this one's libraries. Repeatable.",
)
@partitions
@seed
@click.pass_obj
def command(
    results: Path,
    clients: tuple[int, ...],
    seconds: float,
    rounds: int,
    hot_rows: int,
    only: str,
    others: tuple[Path, ...],
    partitions: int,
    seed: int,
) -> None:
    """Statements a second, and the processor time of each, from 1, 4, 16 and 50 clients."""
    with (
        recorded(results, "concurrency") as report,
        running_world(partitions=partitions, seed=seed) as world,
    ):
        world.produce(hot_rows)
        with contextlib.closing(PlainDuckDB(world, ())) as duck:
            kinds = {
                kind: (of_ours, of_bare)
                for kind, of_ours, of_bare in _questions(duck, hot_rows, seed)
                if only in kind
            }
            with _servers(world, duck, others) as servers:
                turns = _Turns(report, servers, seed)
                for kind, (of_ours, of_bare) in kinds.items():
                    for count in clients:
                        turns.run(kind, of_ours, of_bare, count, seconds, rounds)


def _questions(
    duck: PlainDuckDB, rows: int, seed: int
) -> Iterator[tuple[str, list[Question], list[Question]]]:
    """Kinds of statements: as our servers are kinds, and as the bare one is."""
    keys = random.Random(seed).sample(range(rows), _KEYS)
    points = {}
    for key in keys:
        _, answer = duck.timed(f"SELECT id, src, dst, bytes FROM hot WHERE id = {key}")
        points[key] = plain_rows(answer)
    for way, text_alone in _WAYS.items():
        ours, bare = (
            [
                Question(way, _point(table, key), row, text_alone=text_alone)
                for key, row in points.items()
            ]
            for table in (str(TABLE), "hot")
        )
        yield f"hot point, {way}", ours, bare
    few = list(points.items())[:_CURSORS]
    ours, bare = (
        [
            Question(
                "kept",
                _point(table, key).replace(NEW_NUMBER, str(10**13)),
                row,
                has_cursor=True,
            )
            for key, row in few
        ]
        for table in (str(TABLE), "hot")
    )
    yield "hot point, kept cursor", ours, bare
    number = [Question("number", f"SELECT {NEW_NUMBER}", None, text_alone=True)]
    yield "no table, text alone", number, number


def _point(table: str, key: int) -> str:
    return _POINT.replace("{table}", table).replace("{key}", str(key))


@contextlib.contextmanager
def _servers(
    world: World, duck: PlainDuckDB, others: tuple[Path, ...]
) -> Iterator[dict[str, Serving]]:
    """The server of this checkout, those of others by their folders' names, and the bare one."""
    hot_file = world.folder / "hot.parquet"
    with contextlib.ExitStack() as stack:
        servers = {}
        for number, checkout in enumerate((_THIS, *others)):
            config = world.config(f"server-{number}")
            log = world.folder / f"server-{number}.log"
            name = _OURS if checkout == _THIS else checkout.name
            servers[name] = stack.enter_context(serving(config, log, checkout=checkout))
        servers[_BARE] = stack.enter_context(served(serve_plain, duck.hot_alone(hot_file)))
        for name, server in servers.items():
            if name != _BARE:  # the first statement has the tail followed
                with flight_sql.connect(server.uri, autocommit=True) as connection:
                    connection.execute(f"SELECT count(*) FROM {TABLE}").fetchall()
        yield servers


class _Turns:
    """Gathers what the clients of each server saw, and the processor time of a statement."""

    def __init__(self, report: Report, servers: dict[str, Serving], seed: int) -> None:
        self._report = report
        self._servers = servers
        self._seeds = itertools.count(seed)

    def run(
        self,
        kind: str,
        of_ours: list[Question],
        of_bare: list[Question],
        count: int,
        seconds: float,
        rounds: int,
    ) -> None:
        rates: defaultdict[str, list[float]] = defaultdict(list)
        used_ms: defaultdict[str, list[float]] = defaultdict(list)
        took_ms: defaultdict[str, list[float]] = defaultdict(list)
        order = list(self._servers)
        for _ in range(rounds):
            order = order[1:] + order[:1]
            for name in order:
                questions = of_bare if name == _BARE else of_ours
                load, used_s = self._turn(self._servers[name], questions, count, seconds)
                spans = sorted(span for batch in load.spans.values() for span in batch)
                counted = [span for span in spans if span[0] > spans[0][0] + seconds * _WARM_UP]
                rates[name].append(len(counted) / (counted[-1][0] - counted[0][0]))
                used_ms[name].append(used_s * 1000 / len(spans))
                took_ms[name] += [took * 1000 for _, took in counted]
        for name in self._servers:
            what = f"{kind}, {count} clients, {name}"
            figures = {
                "statements/s": median(rates[name]),
                "ms of processor a statement": median(used_ms[name]),
                "ms, p50": median(took_ms[name]),
                "ms, p99": quantile(took_ms[name], 0.99),
            }
            for unit, value in figures.items():
                self._report.figure(what, value, unit)
            line = "  ".join(f"{value:8.2f} {unit}" for unit, value in figures.items())
            print(f"{what:48} {line}", flush=True)

    def _turn(
        self, server: Serving, questions: list[Question], count: int, seconds: float
    ) -> tuple[Load, float]:
        """What the clients saw, and the seconds of processor that the server's processes took."""
        clients = Clients(
            server.uri, questions, count=count, processes=1, seed=next(self._seeds)
        )
        before_s = sum(self._used(server))
        load = clients.run(seconds)
        used_s = sum(self._used(server)) - before_s
        if load.wrong:
            raise RuntimeError(f"answers are wrong: {load.wrong[:3]}")
        return load, used_s

    @staticmethod
    def _used(server: Serving) -> list[float]:
        used = cpu_s({"server": server.pid})
        return [used["server"], used["server workers"]]
