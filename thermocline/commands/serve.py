"""``thermocline serve``: the Flight SQL server under its supervisor."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import click

from planner.errors import FederationError, RequestError
from proxy.access.limits import Blame, new_file
from proxy.process.memory import bound_arenas
from proxy.process.sockets import allow_open_files, await_free
from proxy.process.supervisor import EXIT_CONFIG, ParentWatch, Supervisor
from thermocline.config.settings import Settings, load
from thermocline.options import option, options, takes
from thermocline.serve.ingestion import ingesting
from thermocline.serve.sandbox import confined, log_to_stderr

if TYPE_CHECKING:
    from proxy.process.landlock import FileSystemLock
    from proxy.tail.reader.child import Ingestion
    from thermocline.serve.assembly import RunningServer

#: What a child may take to stop, beyond draining: its own deadline, and what surrounds it.
_STOP_GRACE_S = 20.0
_SAME_SIGNAL_S = 1.0
_LOOK_S = 0.1
#: How long a thread that computes keeps Python's lock from others, by default 5 ms: a small statement wants it dozens of
#: times, and waits as long each time while a long one is planned.
_SWITCH_S = 0.0005


@options
class ServeOptions:
    host: str | None = option(help="Address to listen on.  [default: 127.0.0.1]")
    port: int | None = option(
        type=click.IntRange(0, 65535), help="Port to listen on, 0 for any.  [default: 31337]"
    )
    supervised: bool = option(hidden=True, help="This process is the supervisor's child.")
    suspects: int | None = option(
        type=int, hidden=True, help="A descriptor: see proxy.access.limits."
    )
    no_supervisor: bool = option(help="Run in this process; nothing restarts it.")
    try_lock: bool = option(hidden=True, help="Start as a server, say how it is locked, end.")

    def settings(self, config: str | None) -> Settings:
        """Read the settings, with what the options change of them."""
        settings = load(config)
        flags = {"host": self.host, "port": self.port}
        flags = {key: value for key, value in flags.items() if value is not None}
        return settings.model_copy(update={"server": settings.server.model_copy(update=flags)})


@click.command(epilog="Example: thermocline serve --port 31337")
@takes(ServeOptions)
@click.pass_obj
def command(config: str | None, chosen: ServeOptions) -> None:
    """Serve all tables over Arrow Flight SQL, until SIGTERM or Ctrl-C.

    A process that dies is started again within seconds. Running statements may end when it is told to stop; a
    second signal ends them. SIGHUP has the settings read again.
    """
    read = functools.partial(chosen.settings, config)
    try:
        settings = read().require_catalogs()
    except RequestError as error:
        _say(error.message)
        sys.exit(EXIT_CONFIG)
    if chosen.try_lock:
        sys.exit(_try_lock(settings, config))
    if chosen.supervised or chosen.no_supervisor:
        sys.exit(_serve(settings, read, config, chosen))
    left_behind, server = new_file(), settings.server
    arguments = [sys.executable, "-m", "thermocline", *(["--config", config] if config else [])]
    flags = ["--suspects", left_behind, "--host", server.host, "--port", server.port]
    sys.exit(
        Supervisor(
            [*arguments, "serve", "--supervised", *map(str, flags)],
            report=_say,
            stop_grace_s=server.drain_s + _STOP_GRACE_S,
            inherited=(left_behind,),
        ).run()
    )


def _say(text: object) -> None:
    click.echo(f"thermocline: {text}", err=True)


def _serve(
    settings: Settings,
    read: Callable[[], Settings],
    config: str | None,
    chosen: ServeOptions,
) -> int:
    if chosen.suspects is not None:
        os.set_inheritable(chosen.suspects, False)  # not the process's that reads topics
    log_to_stderr()
    # A handler may interrupt anything, so it only notes what came.
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()
    heeded = [signal.SIGTERM, signal.SIGINT]
    if not sys.stdin.isatty():  # else SIGHUP means that the terminal is gone
        heeded.append(signal.SIGHUP)
    for number in heeded:
        signal.signal(number, lambda number, _: signals.put(number))
    bound_arenas()
    allow_open_files()
    sys.setswitchinterval(_SWITCH_S)
    await_free(
        _addresses(settings),
        settings.server.drain_s + _STOP_GRACE_S,
        _say,
        lambda: not signals.empty(),
    )
    try:
        with contextlib.ExitStack() as stack:
            lock, ingestion = stack.enter_context(_confined(settings, config))
            _load()
            running = stack.enter_context(_started(settings, read, lock, ingestion, chosen))
            is_plain = settings.access.tls_certificate is None
            scheme, web = ("grpc", "http") if is_plain else ("grpc+tls", "https")
            _say(lock)
            _say(f"serving Flight SQL on {scheme}://{settings.server.host}:{running.port}")
            if running.rest_port is not None:
                host = settings.iceberg_rest.host
                _say(f"serving live tables on {web}://{host}:{running.rest_port}")
            while _next(signals) == signal.SIGHUP:
                running.reload()
            _drain(running.drain, signals)
        if running.is_stuck():
            logging.shutdown()
            os._exit(0)
    except FederationError as error:
        _say(error.message)
        return EXIT_CONFIG if isinstance(error, RequestError) else 1
    return 0


def _addresses(settings: Settings) -> dict[str, tuple[str, int]]:
    """Return what the server will listen on, by setting: a supervisor that was killed leaves a child that drains there."""
    server, rest = settings.server, settings.iceberg_rest
    ports = {"server.port": server.port, "server.http_port": server.http_port}
    addresses = {setting: (server.host, port) for setting, port in ports.items() if port}
    return addresses | ({"iceberg_rest.port": (rest.host, rest.port)} if rest.port else {})


@contextlib.contextmanager
def _confined(
    settings: Settings, config: str | None
) -> Iterator[tuple[FileSystemLock, Ingestion | None]]:
    """What comes before anything starts a thread, as libraries do that ``running_server`` loads.

    What is loaded to get here must start none: it would end the kernel's lock.
    """
    with ingesting(settings) as ingestion, confined(settings, config) as lock:
        yield lock, ingestion


def _try_lock(settings: Settings, config: str | None) -> int:
    """Come as far as a server does before it opens anything, and print what ``doctor`` reads.

    It may be run by another user than the server's, so it makes no file that the server writes to.
    """
    server = settings.server.model_copy(update={"audit_log": "off"})
    settings = settings.model_copy(update={"server": server})
    bound_arenas()
    try:
        with _confined(settings, config) as (lock, _):
            importlib.import_module("thermocline.serve.assembly")
            with ThreadPoolExecutor(1) as serving:
                holds = serving.submit(lambda: lock.holds).result()
            click.echo(json.dumps({"holds": holds, "says": str(lock)}))
    except RequestError as error:
        click.echo(json.dumps({"holds": False, "says": error.message}))
    return 0


def _load() -> None:
    """Load what a server needs. All of it stays, so the collector looks at it once: each look would take 40 ms."""
    gc.disable()
    try:
        importlib.import_module("thermocline.serve.assembly")
    finally:
        gc.enable()
    gc.collect()
    gc.freeze()


@contextlib.contextmanager
def _started(
    settings: Settings,
    read: Callable[[], Settings],
    lock: FileSystemLock,
    ingestion: Ingestion | None,
    chosen: ServeOptions,
) -> Iterator[RunningServer]:
    parent = ParentWatch(settings.server.drain_s + _STOP_GRACE_S)
    if chosen.supervised:
        parent.start()
    from thermocline.serve.assembly import running_server

    with running_server(
        settings, read=read, lock=lock, ingestion=ingestion, blame=Blame(chosen.suspects)
    ) as running:
        parent.answer()
        yield running


def _next(signals: queue.SimpleQueue[int]) -> int:
    """Wait for a signal.

    Handlers run on this thread only, and a signal that the kernel gives to another one does not wake it: a wait
    without end missed a SIGTERM under load. So it looks now and then.
    """
    while True:
        with contextlib.suppress(queue.Empty):
            return signals.get(timeout=_LOOK_S)


def _drain(drain: Callable[[], None], signals: queue.SimpleQueue[int]) -> None:
    """Let running statements end, unless it is asked again."""
    draining = threading.Thread(target=drain, name="drain", daemon=True)
    draining.start()
    # The first one may come twice at once: from a terminal or a control group, and from the supervisor.
    impatient_after = time.monotonic() + _SAME_SIGNAL_S
    while draining.is_alive():
        draining.join(_LOOK_S)
        with contextlib.suppress(queue.Empty):
            if signals.get_nowait() != signal.SIGHUP and time.monotonic() > impatient_after:
                return
