"""``thermocline demo``: real Kafka, Iceberg, Spark and Flight SQL on this machine, checked by a ledger."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from connectors import child_guard, jars
from planner.errors import BadConfig, Unavailable
from proxy.process.memory import free_memory
from thermocline.client import connected
from thermocline.demo.broker import StartGuard, free_ports
from thermocline.demo.devices import Devices
from thermocline.demo.drift import avro_drift, json_drift
from thermocline.demo.events import Events, JsonEvents
from thermocline.demo.feeds import FEEDS
from thermocline.demo.observer import Observation, ObservedTable, verdict
from thermocline.demo.screen import Screen
from thermocline.demo.snippets import printed
from thermocline.demo.traffic import Traffic
from thermocline.demo.world import DemoFormat, World, jar_sets, java_of_extra, running_world
from thermocline.options import option, options, takes

#: How long events flow where there is no terminal to end it.
UNATTENDED_S = 60.0
#: A comparison says nothing of the seam before it has moved: how much longer than asked it is waited for.
FIRST_PUBLISH_S = 180.0
_ASK_EVERY_S = 0.5


@options
class DemoOptions:
    seconds: float | None = option(
        type=click.FloatRange(min=5),
        help="How long events flow.  [default: until Ctrl-C; 60 with --check or without a terminal]",
    )
    check: bool = option(
        help="Compare the final answer with the ledger; exit 1 on any difference."
    )
    format: DemoFormat = option(
        default="json",
        show_default=True,
        help="What records are. Of avro they are behind a schema registry, and get new schemas while all runs.",
    )
    rate: int = option(
        type=click.IntRange(10, 20_000),
        default=3_000,
        show_default=True,
        help="Events per second, of the two tables of events together.",
    )
    interval_s: float = option(
        "--tier-every",
        type=click.FloatRange(min=1),
        default=10.0,
        show_default=True,
        help="Seconds between tiering rounds.",
    )
    port: int | None = option(
        type=click.IntRange(1, 65535),
        help="Where Flight SQL listens.  [default: 31337, or the next free one]",
    )
    seed: int = option(
        type=int, default=1, show_default=True, help="Seed of the invented traffic."
    )
    keep: Path | None = option(
        type=click.Path(file_okay=False, path_type=Path),
        help="Work in this new folder and keep it.",
    )
    snippets: bool = option(help="Print what to paste into other clients, and end.")


@click.command(epilog="Example: thermocline demo --seconds 90 --check")
@takes(DemoOptions)
def command(chosen: DemoOptions) -> None:
    """Run everything on this machine and watch three tables over Kafka and Iceberg.

    Producers send endpoint and network telemetry, plainly and in transactions, some aborted, some late, some
    nonsense, and changes of devices, of which a keyed table has the newest; Spark tiers all into Iceberg; the same SQL
    answers throughout, and every answer is held against what the producers know. Ctrl-C ends it all and leaves nothing behind.
    """
    if chosen.snippets:
        click.echo(printed(chosen.port or 31337), nl=False)
        return
    screen = Screen()
    unattended = chosen.check or not sys.stdout.isatty()
    seconds = chosen.seconds or (UNATTENDED_S if unattended else math.inf)
    _on_signals(_unwind)
    try:
        with _folder(chosen) as (folder, start_guard), contextlib.ExitStack() as stack:
            port = choose_port(chosen.port)
            world = stack.enter_context(
                running_world(
                    *(folder, port, chosen.interval_s, screen.step, start_guard),
                    record_format=chosen.format,
                )
            )
            equal = _run(world, screen, chosen, seconds)
            screen.say("stopping Spark, the server and the broker …")
    except SystemExit:
        click.echo("thermocline: the demo was stopped; nothing is left behind.", err=True)
        raise
    if not equal:
        raise SystemExit(1)


def _run(world: World, screen: Screen, chosen: DemoOptions, seconds: float) -> bool:
    """Events and lines until time or Ctrl-C; True unless something differs from the ledger."""
    demo = Observation([ObservedTable(feed) for feed in FEEDS])
    screen.say(f"the console, in a browser: {world.pages}")
    bootstrap, rate_of_each = world.broker.bootstrap, chosen.rate // len(FEEDS)
    events, drift = _events(world, demo)
    devices = Devices(bootstrap, chosen.seed)
    demo.devices = devices
    traffics = [
        Traffic(bootstrap, each, table.ledger, rate_of_each, chosen.seed)
        for table, each in zip(demo.tables, events, strict=True)
    ]
    flush_s = 2.0
    try:
        # Here a signal is the ordinary way to end.
        with contextlib.suppress(SystemExit), connected(world.uri) as client:
            screen.begin(world.port)
            while demo.elapsed_s < seconds or (chosen.check and not demo.all_published):
                if demo.elapsed_s > seconds + FIRST_PUBLISH_S:
                    raise Unavailable(
                        f"the demo's Spark published nothing within {FIRST_PUBLISH_S:g} s after the time was "
                        f"over; run it on a machine with free processors."
                    )
                began = time.monotonic()
                demo.update(world, client)
                screen.show(demo)
                next(drift)
                time.sleep(max(0.0, began + _ASK_EVERY_S - time.monotonic()))
        flush_s = 30.0
    finally:
        devices.stop(flush_s)
        for traffic in traffics:
            traffic.stop(flush_s)
    return verdict(world, demo, traffics, screen.say, whole=chosen.check)


def _events(world: World, demo: Observation) -> tuple[Sequence[Events], Iterator[None]]:
    """Return what producers send of each table, and how it changes."""
    if world.registry is None:
        plain = [JsonEvents(table.feed) for table in demo.tables]
        return plain, json_drift(world, demo, plain)
    from thermocline.demo.avro import AvroEvents

    url = world.registry.url
    behind = [AvroEvents(table.feed, url) for table in demo.tables]
    return behind, avro_drift(world, demo, behind)


def _on_signals(handler: Callable[[int, FrameType | None], NoReturn]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)


def _unwind(number: int, _: FrameType | None) -> NoReturn:
    """The first signal unwinds; the second ends this process at once, and the guards do the rest."""
    _on_signals(_leave)
    raise SystemExit(128 + number)


def _leave(number: int, _: FrameType | None) -> NoReturn:
    text = b"thermocline: stopped at once; what still runs ends by itself within seconds.\n"
    os.write(2, text)
    os._exit(128 + number)


@contextlib.contextmanager
def _folder(chosen: DemoOptions) -> Iterator[tuple[Path, StartGuard]]:
    """Make the folder to work in; all that runs there is started by what comes with it."""
    if (keep := chosen.keep) is not None:
        try:
            keep.mkdir(parents=True)
        except OSError as error:
            what = f"the folder cannot be made ({error.strerror})"
            raise BadConfig(f"--keep: {what}; name a new one.") from error
        check_machine(keep, chosen.format)
        yield keep.resolve(), child_guard.start
        return
    check_machine(Path(tempfile.gettempdir()), chosen.format)
    folder = Path(tempfile.mkdtemp(prefix="thermocline-demo-")).resolve()
    guard = child_guard.FolderGuard(folder)
    try:
        yield folder, guard.start
    finally:
        guard.finish()


#: Broker 512 MB of heap, Spark 1 GB, their native parts, the server with a tail of some minutes.
NEEDED_MEMORY_BYTES = 2_500_000_000
#: An hour of events and their files is below this; Spark's jars and logs are small beside it.
NEEDED_DISK_BYTES = 2_000_000_000
#: Kafka and Iceberg jars, twice while they are unpacked.
NEEDED_CACHE_BYTES = 300_000_000
#: The same of a registry: 512 MB of heap and its native parts; a program and its archive.
REGISTRY_MEMORY_BYTES = 700_000_000
REGISTRY_CACHE_BYTES = 500_000_000
#: Where the demo's server listens if it may.
PORTS = range(31337, 31437)


def check_machine(folder: Path, record_format: DemoFormat) -> None:
    """Refuse a machine the demo cannot run on. ``folder`` is where it will work; it exists.

    Raises:
        BadConfig: no Java or an old one, too little memory or disk; the sentence says what to do.
    """
    jars.java()
    memory_bytes, cache_bytes = NEEDED_MEMORY_BYTES, NEEDED_CACHE_BYTES
    if record_format == "avro":
        java_of_extra()
        memory_bytes += REGISTRY_MEMORY_BYTES
        cache_bytes += REGISTRY_CACHE_BYTES
    remedy = "; end other programs, or raise the limit of the container or shell it runs in"
    _check("memory", memory_bytes, free_memory(), remedy)
    room = " where it would work; make room, or set {} to a folder on a larger disk"
    remedy = f"{room.format('TMPDIR')}, or name one with --keep"
    _check("disk", NEEDED_DISK_BYTES, shutil.disk_usage(folder).free, remedy)
    if not all(map(jars.is_resolved, jar_sets(record_format))):
        cache = jars.cache_folder()
        cache.mkdir(parents=True, exist_ok=True)
        remedy = room.format("XDG_CACHE_HOME")
        _check("disk", cache_bytes, shutil.disk_usage(cache).free, remedy)


def choose_port(requested: int | None) -> int:
    """Return the port asked for, else the first free one from 31337 on.

    Raises:
        BadConfig: the one asked for is taken.
    """
    port = next(free_ports(PORTS if requested is None else [requested]), None)
    if port is None:
        busy = "ports 31337 to 31436 are" if requested is None else f"port {requested} is"
        raise BadConfig(
            f"{busy} taken by another program on this machine; end it, or name a free one with --port.",
            port=requested,
        )
    return port


def _check(what: str, needed: int, free: int | None, remedy: str) -> None:
    if free is not None and free < needed:
        raise BadConfig(
            f"the demo needs {needed / 1e9:.1f} GB of free {what} and {free / 1e9:.1f} GB is free{remedy}.",
            free_bytes=free,
        )
