"""Servers of several checkouts over one world, asked in turns: did a change cost statements time?

Two runs of a benchmark have two worlds at two hours, whose medians differ by ten percent and more with nothing changed. Here a
difference of a twentieth is one. The forty statements and ``SELECT 1`` while the topic is quiet; then, while records arrive, each
server in turn is asked for a record that was just acknowledged. The tables are this checkout's: the others must read them.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median

import adbc_driver_flightsql.dbapi as flight_sql
import click

from benchmarks.freshness import keys_near, stock_client, written_records
from benchmarks.options import partitions, seed
from benchmarks.questions import Question, Times, questions
from benchmarks.records import traffic
from benchmarks.report import Report, quantile, recorded
from benchmarks.shapes import events
from benchmarks.statements import STEP_US, wait_for_rows
from benchmarks.tierer import running_tierer
from benchmarks.usage import cpu_s
from benchmarks.world import TABLE, TOPIC, World, running_world, serving

_THIS = Path(__file__).parents[1]
_PUBLISH_ROWS = 1_000_000
#: What a redesign may cost.
_ALLOWED = 1.03
_BLOCK = 5

_Connections = Mapping[str, flight_sql.Connection]


@click.command()
@click.option(
    "--other",
    "others",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    multiple=True,
    required=True,
    help="Another checkout (`git worktree add`); its server runs with this one's libraries. Repeatable.",
)
@click.option("--cold-rows", type=click.IntRange(8), default=4_000_000, show_default=True)
@click.option("--hot-rows", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--blocks", type=click.IntRange(1), default=6, show_default=True)
@click.option("--samples", type=click.IntRange(1), default=2_000, show_default=True)
@click.option("--rate", type=click.IntRange(1), default=5_000, show_default=True)
@click.option("--only", default="", help="Statements whose kind has this text.")
@partitions
@seed
@click.pass_obj
def command(
    results: Path,
    others: tuple[Path, ...],
    cold_rows: int,
    hot_rows: int,
    blocks: int,
    samples: int,
    rate: int,
    only: str,
    partitions: int,
    seed: int,
) -> None:
    """This checkout's server beside those of others, over one world, in turns."""
    base_us = int(time.time() * 1e6) - (cold_rows + hot_rows) * STEP_US
    times = Times(cold_rows, hot_rows, base_us, STEP_US)
    with (
        recorded(results, "checkouts") as report,
        running_world(
            partitions=partitions, seed=seed, shape=events(base_us, STEP_US)
        ) as world,
    ):
        world.produce(cold_rows)
        with running_tierer(world) as tierer:
            tierer.drain(_PUBLISH_ROWS)
        world.produce(hot_rows)
        statements = [Question("SELECT 1", "SELECT 1"), *questions(times, seed)]
        with _servers(world, [_THIS, *others]) as (connections, pids):
            for connection in connections.values():
                wait_for_rows(connection, times.rows)
            for question in statements:
                if only in question.kind:
                    _report(report, question.kind, _ask_in_turns(question, connections, blocks))
            with traffic(
                world.broker.bootstrap,
                TOPIC,
                partitions=world.partitions,
                rate=rate,
                seed=seed,
                shape=world.shape,
            ):
                before = cpu_s(pids)
                fresh = _fresh(world, connections, samples, rate)
                used = {
                    role: (seconds - before[role]) * 1000 / samples
                    for role, seconds in cpu_s(pids).items()
                }
            kind = f"fresh record at {rate:,} events/s"
            for phase, what in (("all", ""), ("execute", ", execute"), ("read", ", read")):
                _report(report, kind + what, fresh[phase])
            _report(report, f"{kind}, p99", fresh["all"], 0.99)
            # It follows the topic while the others are asked, too.
            for suffix, what in (("", "CPU"), (" workers", "CPU of what it started")):
                _report(
                    report, f"{kind}, {what}", {name: [used[name + suffix]] for name in pids}
                )
        _summarize(report)


@contextlib.contextmanager
def _servers(
    world: World, checkouts: Iterable[Path]
) -> Iterator[tuple[_Connections, dict[str, int]]]:
    """A connection to the server of each checkout and its process id, by the folder's name; that of this one is ``this``."""
    with contextlib.ExitStack() as stack:
        connections, pids = {}, {}
        for number, checkout in enumerate(checkouts):
            config, log = (
                world.config(f"server-{number}"),
                world.folder / f"server-{number}.log",
            )
            server = stack.enter_context(serving(config, log, checkout=checkout))
            name = "this" if checkout == _THIS else checkout.name
            pids[name] = server.pid
            connections[name] = stack.enter_context(
                flight_sql.connect(server.uri, autocommit=True)
            )
        yield connections, pids


def _ask_in_turns(
    question: Question, connections: _Connections, blocks: int
) -> dict[str, list[float]]:
    """Milliseconds of each server; in blocks, as a server's caches are warm where people ask several times."""
    took: dict[str, list[float]] = defaultdict(list)
    order = list(connections)
    for block in range(-1, blocks):
        order = order[1:] + order[:1]
        for name in order:
            for _ in range(_BLOCK):
                began = time.perf_counter()
                with connections[name].cursor() as cursor:
                    cursor.execute(question.sql.format(t=TABLE))
                    cursor.fetch_arrow_table()
                if block >= 0:  # the first fills caches
                    took[name].append((time.perf_counter() - began) * 1000)
    return took


def _fresh(
    world: World, connections: _Connections, samples: int, rate: int
) -> dict[str, dict[str, list[float]]]:
    """Milliseconds of each phase from a record's acknowledgement to its row at the client, a record for each server in turn."""
    clients = {name: stock_client(each, TABLE) for name, each in connections.items()}
    records = written_records(world, keys_near(rate))
    took: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    order = list(clients)
    for sample in range(-20, samples):
        # Whoever comes first is two percent slower, of the same code.
        order = order[1:] + order[:1]
        for name in order:
            key, acknowledged = next(records)
            answer = clients[name](key, acknowledged)
            if answer.count != 1:
                raise RuntimeError(f"{name}: a record was there {answer.count} times")
            if sample >= 0:
                for phase, seconds in answer.phases_s.items():
                    took[phase][name].append(seconds * 1000)
    return took


def _report(
    report: Report, kind: str, took: Mapping[str, list[float]], share: float = 0.5
) -> None:
    values = {name: quantile(values, share) for name, values in took.items()}
    report.details[kind] = values
    line = "  ".join(f"{name} {value:9.2f} ms" for name, value in values.items())
    print(f"{kind:40} {line}", flush=True)
    for name, value in values.items():
        if name != "this":
            report.figure(
                f"{kind}: this / {name}", values["this"] / value, "", at_most=_ALLOWED
            )


def _summarize(report: Report) -> None:
    for name in dict.fromkeys(name for values in report.details.values() for name in values):
        if name != "this":
            ratios = [values["this"] / values[name] for values in report.details.values()]
            report.figure(f"median of all: this / {name}", median(ratios), "", at_most=_ALLOWED)
