"""Small statements of many clients at once, beside a bare Flight SQL server over plain DuckDB, in turns.

None of the clients waits between statements, and they are on the same cores. No text is sent twice: points by the id of one of
the rows, and ``SELECT <number>``; but for cursors that are kept, prepared once. The clients of our server share one service
account in some turns and have a login each in others. First all rows are hot; then these and ``--cold-rows`` more are tiered, and
as many new ones are hot over them. What varies least on a machine that does other things is the processor time of a statement.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import adbc_driver_flightsql.dbapi as flight_sql
import click

from benchmarks.baseline import PlainDuckDB
from benchmarks.flight_servers import serve_plain, served
from benchmarks.load import NEW_NUMBER, PASSWORD, Clients, Load, Question, plain_rows
from benchmarks.options import partitions, seed
from benchmarks.report import Report, quantile, recorded
from benchmarks.tierer import running_tierer
from benchmarks.usage import cpu_s
from benchmarks.world import TABLE, DataFile, Serving, World, running_world, serving

_KEYS = 100
#: Of each turn, what goes before it counts: connecting, first statements, caches.
_WARM_UP = 0.25
_THIS = Path(__file__).parents[1]
_OURS, _EACH, _BARE = "ours", "ours, a login each", "bare"
_SERVICE = "service"
_POINT = (
    f"SELECT id, src, dst, bytes FROM {{table}} WHERE id = {{key}} AND bytes < {NEW_NUMBER}"
)
_WAYS = {"text alone": True, "new cursor": False}
#: Cursors that each client keeps, each with a text of its own.
_CURSORS = 10
#: Numbers of clients whose figures stand in the table; those of the others are beside it.
_IN_TABLE = (16, 50)
#: Of a publish.
_PUBLISH_ROWS = 4_000_000
#: What is asked of ours beside the bare server (issue 44): by kind and clients, statements a second, at least.
_LEAST_RATES = {
    ("hot point, text alone", 16): 0.55,
    ("hot point, new cursor", 16): 0.5,
    ("no table, text alone", 16): 0.7,
}
#: The same of the slowest of a hundred statements, and of a statement's processor time, at most.
_MOST_P99 = {("hot point, text alone", 50): 2.5}
_MOST_CPU = {("hot point, text alone", 16): 2.2}


@click.command()
@click.option("--clients", type=click.IntRange(1), multiple=True, default=(1, 4, 16, 50))
@click.option("--seconds", type=float, default=6.0, show_default=True, help="Of each turn.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--hot-rows", type=click.IntRange(_KEYS), default=1_000, show_default=True)
@click.option(
    "--cold-rows",
    type=click.IntRange(0),
    default=2_000_000,
    show_default=True,
    help="Tiered after the turns over hot rows alone; 0: none, and no turns over cold rows.",
)
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
    cold_rows: int,
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
        plan = _Plan(clients, seconds, rounds, only)
        turns = _Turns(report, seed)
        world.produce(hot_rows)
        with _servers(world, (), others, max(clients)) as (duck, callers):
            kinds = _hot_kinds(duck, range(hot_rows), seed)
            turns.run_all(plan, callers, kinds)
        if not cold_rows:
            return
        world.produce(cold_rows)
        with running_tierer(world) as tierer:
            tierer.drain(_PUBLISH_ROWS)
        tiered = world.produced
        world.produce(hot_rows)
        with _servers(world, world.data_files(), others, max(clients)) as (duck, callers):
            kinds = _cold_kinds(duck, range(tiered), range(tiered, tiered + hot_rows), seed)
            turns.run_all(plan, callers, kinds)


@dataclass(frozen=True, slots=True)
class _Plan:
    """``only``: kinds that have this text."""

    clients: tuple[int, ...]
    seconds: float
    rounds: int
    only: str


@dataclass(frozen=True, slots=True)
class _Caller:
    """A server, and the users whose clients ask it, one after the other; none: they do not log in."""

    server: Serving
    users: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Kind:
    """Statements of one kind, as our servers are asked and as the bare one is."""

    name: str
    ours: list[Question]
    bare: list[Question]


def _hot_kinds(duck: PlainDuckDB, ids: range, seed: int) -> Iterator[_Kind]:
    points = _points(duck, "hot", ids, seed)
    for way, text_alone in _WAYS.items():
        yield _point_kind(f"hot point, {way}", points, "hot", text_alone=text_alone)
    ours, bare = (
        [
            Question(
                "kept",
                _point(table, key).replace(NEW_NUMBER, str(10**13)),
                row,
                has_cursor=True,
            )
            for key, row in list(points.items())[:_CURSORS]
        ]
        for table in (str(TABLE), "hot")
    )
    yield _Kind("hot point, kept cursor", ours, bare)
    number = [Question("number", f"SELECT {NEW_NUMBER}", None, text_alone=True)]
    yield _Kind("no table, text alone", number, number)


def _cold_kinds(duck: PlainDuckDB, cold: range, hot: range, seed: int) -> Iterator[_Kind]:
    for what, ids in (("hot point over cold rows", hot), ("cold point", cold)):
        points = _points(duck, "everything", ids, seed)
        for way, text_alone in _WAYS.items():
            yield _point_kind(f"{what}, {way}", points, "everything", text_alone=text_alone)


def _points(
    duck: PlainDuckDB, table: str, ids: range, seed: int
) -> dict[int, list[tuple[object, ...]]]:
    """Return the row of each of some ids."""
    points = {}
    for key in random.Random(seed).sample(ids, _KEYS):
        _, answer = duck.timed(f"SELECT id, src, dst, bytes FROM {table} WHERE id = {key}")
        points[key] = plain_rows(answer)
    return points


def _point_kind(
    name: str, points: dict[int, list[tuple[object, ...]]], bare: str, *, text_alone: bool
) -> _Kind:
    of_ours, of_bare = (
        [
            Question(name, _point(table, key), row, text_alone=text_alone)
            for key, row in points.items()
        ]
        for table in (str(TABLE), bare)
    )
    return _Kind(name, of_ours, of_bare)


def _point(table: str, key: int) -> str:
    return _POINT.replace("{table}", table).replace("{key}", str(key))


@contextlib.contextmanager
def _servers(
    world: World, files: Sequence[DataFile], others: tuple[Path, ...], most_clients: int
) -> Iterator[tuple[PlainDuckDB, dict[str, _Caller]]]:
    """Plain DuckDB over the rows of now; who asks the server of this checkout, those of others by their folders, the bare one."""
    hot_file = world.folder / "hot.parquet"
    each = tuple(f"user{number}" for number in range(most_clients))
    with contextlib.ExitStack() as stack:
        duck = stack.enter_context(contextlib.closing(PlainDuckDB(world, files)))
        callers = {}
        for number, checkout in enumerate((_THIS, *others)):
            config = world.config(f"server-{number}")
            passwords = "".join(f'{user} = "{PASSWORD}"\n' for user in (_SERVICE, *each))
            config.write_text(f"{config.read_text()}\n[server.users]\n{passwords}")
            log = world.folder / f"server-{number}.log"
            server = stack.enter_context(serving(config, log, checkout=checkout))
            with flight_sql.connect(  # the first statement has the tail followed
                server.uri,
                db_kwargs={"username": _SERVICE, "password": PASSWORD},
                autocommit=True,
            ) as connection:
                connection.execute(f"SELECT count(*) FROM {TABLE}").fetchall()
            if checkout == _THIS:
                callers[_OURS] = _Caller(server, (_SERVICE,))
                callers[_EACH] = _Caller(server, each)
            else:
                callers[checkout.name] = _Caller(server, (_SERVICE,))
        set_up = duck.set_up(hot_file) if files else duck.hot_alone(hot_file)
        callers[_BARE] = _Caller(stack.enter_context(served(serve_plain, set_up)))
        yield duck, callers


class _Turns:
    """Gathers what the clients of each server saw, and the processor time of a statement."""

    def __init__(self, report: Report, seed: int) -> None:
        self._report = report
        self._seeds = itertools.count(seed)

    def run_all(self, plan: _Plan, callers: dict[str, _Caller], kinds: Iterator[_Kind]) -> None:
        for kind in kinds:
            if plan.only in kind.name:
                for count in plan.clients:
                    self._run(plan, callers, kind, count)

    def _run(self, plan: _Plan, callers: dict[str, _Caller], kind: _Kind, count: int) -> None:
        rates: defaultdict[str, list[float]] = defaultdict(list)
        used_ms: defaultdict[str, list[float]] = defaultdict(list)
        took_ms: defaultdict[str, list[float]] = defaultdict(list)
        late_ms: defaultdict[str, float] = defaultdict(float)
        order = list(callers)
        for _ in range(plan.rounds):
            order = order[1:] + order[:1]
            for name in order:
                questions = kind.bare if name == _BARE else kind.ours
                load, used_s = self._turn(callers[name], questions, count, plan.seconds)
                spans = sorted(span for batch in load.spans.values() for span in batch)
                first_s = spans[0][0] + plan.seconds * _WARM_UP
                counted = [span for span in spans if span[0] > first_s]
                rates[name].append(len(counted) / (counted[-1][0] - counted[0][0]))
                used_ms[name].append(used_s * 1000 / len(spans))
                took_ms[name] += [took * 1000 for _, took in counted]
                late_ms[name] = max(late_ms[name], load.late_s * 1000)
        what = f"{kind.name}, {count} clients"
        for name in callers:
            figures = {
                "statements/s": median(rates[name]),
                "ms of processor a statement": median(used_ms[name]),
                "ms, p50": median(took_ms[name]),
                "ms, p99": quantile(took_ms[name], 0.99),
                "ms late": late_ms[name],
            }
            self._report.details[f"{what}, {name}"] = figures
            line = "  ".join(f"{value:8.2f} {unit}" for unit, value in figures.items())
            print(f"{what + ', ' + name:60} {line}", flush=True)
        if count not in _IN_TABLE:
            return
        figure, which = self._report.figure, (kind.name, count)
        figure(f"{what}: ours", median(rates[_OURS]), "statements/s")
        figure(
            f"{what}: statements a second, ours / bare",
            _paired(rates[_OURS], rates[_BARE]),
            "",
            at_least=_LEAST_RATES.get(which),
        )
        figure(
            f"{what}: statements a second, a login each / one service account",
            _paired(rates[_EACH], rates[_OURS]),
            "",
        )
        figure(
            f"{what}: p99, ours / bare",
            quantile(took_ms[_OURS], 0.99) / quantile(took_ms[_BARE], 0.99),
            "",
            at_most=_MOST_P99.get(which),
        )
        figure(
            f"{what}: processor time a statement, ours / bare",
            _paired(used_ms[_OURS], used_ms[_BARE]),
            "",
            at_most=_MOST_CPU.get(which),
        )

    def _turn(
        self, caller: _Caller, questions: list[Question], count: int, seconds: float
    ) -> tuple[Load, float]:
        """What the clients saw, and the seconds of processor that the server's processes took."""
        server = caller.server
        clients = Clients(
            *(server.uri, questions),
            count=count,
            processes=1,
            seed=next(self._seeds),
            users=caller.users,
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


def _paired(ours: list[float], bare: list[float]) -> float:
    """Return the median ratio of turns that followed each other."""
    return median(one / other for one, other in zip(ours, bare, strict=True))
