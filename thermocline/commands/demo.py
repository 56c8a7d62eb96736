"""``thermocline demo``: real Kafka, Iceberg, Spark and Flight SQL on this machine, checked by a ledger."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType

import click
from rich.console import Console

from planner.errors import BadConfig, Unavailable
from thermocline.demo.feeds import FEEDS
from thermocline.demo.ledger import Ledger
from thermocline.demo.ledger_check import verdict
from thermocline.demo.observer import Observer
from thermocline.demo.preflight import check_machine, choose_port
from thermocline.demo.processes import Janitor
from thermocline.demo.screen import Plain, Screen, Terminal
from thermocline.demo.snippets import printed
from thermocline.demo.traffic import Traffic
from thermocline.demo.world import World, running_world

#: How long events flow where nobody sits at a terminal to end it.
UNATTENDED_S = 60.0
#: Newer agents begin to send a field nobody has a column for; later its owner adds the column.
UPGRADE_AFTER_S = 15.0
COLUMN_AFTER_S = 12.0
SCHEMA_DELAY_S = 3.0
#: A comparison says nothing of the seam before it has moved: how much longer than asked it is waited for.
FIRST_PUBLISH_S = 180.0
_FRAME_S = 0.25
_HURRIED_FLUSH_S = 2.0
#: Leave the alternate screen, show the cursor.
_RESTORE_TERMINAL = "\x1b[?1049l\x1b[?25h"


@click.command(epilog="Example: thermocline demo --seconds 90 --check")
@click.option(
    "--seconds",
    type=click.FloatRange(min=5),
    help="How long events flow.  [default: until Ctrl-C; 60 with --check or without a terminal]",
)
@click.option(
    "--check",
    is_flag=True,
    help="Compare the final answer with the ledger; exit 1 on any difference.",
)
@click.option(
    "--rate",
    type=click.IntRange(10, 20_000),
    default=3_000,
    show_default=True,
    help="Events per second, both tables together.",
)
@click.option(
    "--tier-every",
    "interval_s",
    type=click.FloatRange(min=1),
    default=10.0,
    show_default=True,
    help="Seconds between tiering rounds.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="Where Flight SQL listens.  [default: 31337, or the next free one]",
)
@click.option(
    "--seed", type=int, default=1, show_default=True, help="Seed of the invented traffic."
)
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    help="Work in this new folder and keep it.",
)
@click.option("--plain", is_flag=True, help="Lines instead of a picture, on a terminal too.")
@click.option(
    "--snippets", is_flag=True, help="Print what to paste into other clients, and end."
)
def command(
    seconds: float | None,
    check: bool,
    rate: int,
    interval_s: float,
    port: int | None,
    seed: int,
    keep: Path | None,
    plain: bool,
    snippets: bool,
) -> None:
    """Run everything on this machine and watch two tables over Kafka and Iceberg.

    Producers send endpoint and network telemetry, plainly and in transactions, some aborted, some late, some
    nonsense; Spark tiers it into Iceberg; the same SQL answers throughout, and every answer is counted against
    what the producers know. Ctrl-C ends it all and leaves nothing behind.
    """
    if snippets:
        click.echo(printed(port or 31337), nl=False)
        return
    console = Console()
    screen: Screen = Plain() if plain or not console.is_terminal else Terminal(console)
    if seconds is None and (check or not console.is_terminal):
        seconds = UNATTENDED_S
    try:
        with _stoppable(), _folder(keep) as (folder, janitor):
            port = choose_port(port)
            with (
                screen.setting_up() as steps,
                contextlib.ExitStack() as stack,
            ):
                world = stack.enter_context(
                    running_world(
                        folder, port, interval_s=interval_s, steps=steps, janitor=janitor
                    )
                )
                stack = stack.pop_all()
            with stack:
                equal = _run(world, screen, seconds, rate=rate, seed=seed, check=check)
                screen.say("stopping Spark, the server and the broker …")
    except _Interrupted as stopped:
        click.echo("thermocline: the demo was stopped; nothing is left behind.", err=True)
        raise SystemExit(stopped.code) from None
    if not equal:
        raise SystemExit(1)


def _run(
    world: World, screen: Screen, seconds: float | None, *, rate: int, seed: int, check: bool
) -> bool:
    """Events and pictures until time or Ctrl-C; True unless something differs from the ledger."""
    ledgers = {feed.topic: Ledger() for feed in FEEDS}
    traffics = {
        feed.topic: Traffic(
            world.bootstrap, feed, ledgers[feed.topic], rate=rate // len(FEEDS), seed=seed
        )
        for feed in FEEDS
    }
    observer = Observer(world, ledgers, FEEDS, rate)
    flush_s = _HURRIED_FLUSH_S
    try:
        for traffic in traffics.values():
            traffic.start()
        observer.start()
        # Here a signal is the ordinary way to end.
        with contextlib.suppress(_Interrupted), screen.live(world.port) as view:
            end = None if seconds is None else time.monotonic() + seconds
            drift = _drift(world, observer, traffics)
            while end is None or time.monotonic() < end or (check and _waits(observer, end)):
                world.check()
                view.moment = observer.moment()
                next(drift)
                time.sleep(_FRAME_S)
        flush_s = 30.0
    finally:
        observer.stop()
        for traffic in traffics.values():
            traffic.stop(flush_s)
    return verdict(world, ledgers, traffics, observer, screen.say, whole=check)


def _drift(world: World, observer: Observer, traffics: Mapping[str, Traffic]) -> Iterator[None]:
    """Fields that appear: ignored while no column asks for them, then added as columns while all runs.

    Not before the first publish: rows tiered before a column was added stay NULL in it, which is to be seen.
    """
    began = time.monotonic()
    while time.monotonic() < began + UPGRADE_AFTER_S:
        yield
    for feed in FEEDS:
        traffics[feed.topic].upgrade()
        observer.note(feed, f"new field {feed.later}: ignored", is_column=False)
    upgraded = time.monotonic()
    while time.monotonic() < upgraded + COLUMN_AFTER_S or not _all_published(observer):
        yield
    for feed in FEEDS:
        world.add_column(feed)
    # The server looks at the catalog once a second.
    added = time.monotonic()
    while time.monotonic() < added + SCHEMA_DELAY_S:
        yield
    for feed in FEEDS:
        observer.note(feed, f"{feed.later}: a column now", is_column=True)
    while True:
        yield


def _waits(observer: Observer, end: float) -> bool:
    """Whether time is over and nothing was tiered yet.

    Raises:
        Unavailable: not even long after.
    """
    if _all_published(observer):
        return False
    if time.monotonic() > end + FIRST_PUBLISH_S:
        raise Unavailable(
            f"the demo's Spark published nothing within {FIRST_PUBLISH_S:g} s after the time was over; run it "
            f"on a machine with free processors."
        )
    return True


def _all_published(observer: Observer) -> bool:
    return all(view.published.count for view in observer.moment().feeds)


class _Interrupted(BaseException):
    """A signal came: everything is unwound, and ``code`` is the exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """The first signal unwinds; the second ends this process at once, and tethers and janitor do the rest."""

    def unwind(number: int, frame: FrameType | None) -> None:
        del frame
        _on_signals(_leave)
        raise _Interrupted(128 + number)

    _on_signals(unwind)
    yield


def _on_signals(handler: object) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)  # type: ignore[arg-type]


def _leave(number: int, frame: FrameType | None) -> None:
    del frame
    if sys.stdout.isatty():
        os.write(sys.stdout.fileno(), _RESTORE_TERMINAL.encode())
    os.write(
        2, b"thermocline: stopped at once; what still runs ends by itself within seconds.\n"
    )
    os._exit(128 + number)


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[tuple[Path, Janitor | None]]:
    if keep is not None:
        try:
            keep.mkdir(parents=True)
        except OSError as error:
            raise BadConfig(
                f"--keep: the folder cannot be made ({error.strerror}); name a new one."
            ) from error
        check_machine(keep)
        yield keep.resolve(), None
        return
    check_machine(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix="thermocline-demo-")).resolve()
    janitor = Janitor(folder)
    try:
        yield folder, janitor
    finally:
        janitor.finish()
