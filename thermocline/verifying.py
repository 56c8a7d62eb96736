"""Starts the process that verifies tables, and starts it again for the next table when it dies.

The engine may end its process with a table's files, and the system may end one that needs too much memory. This file
loads nothing that reads: this process waits.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING

from planner.errors import ColdStoreUnavailable, FederationError, InternalError
from planner.names import TableName
from planner.verification.findings import Report
from thermocline.config.settings import Settings

if TYPE_CHECKING:
    from connectors.verification.run import Progress

_PROCESSES = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """Tables to verify, without names all bound ones, and how. ``since_ms`` is milliseconds since 1970."""

    settings: Settings
    names: tuple[TableName, ...]
    with_values: bool
    since_ms: int | None
    #: Whether tables that are not bound are passed over.
    bound_only: bool


def verify_tables(
    request: VerifyRequest, progress: Callable[[str], AbstractContextManager[Progress]]
) -> Iterator[Report | FederationError]:
    """Verify tables one after the other: a report of each, or why there is none.

    Raises:
        FederationError: a system that all tables need does not answer, or the settings are wrong.
    """
    is_first = True
    while True:
        with _started(request) as child:
            try:
                names = child.tables()
            except FederationError as error:
                if is_first:
                    raise
                yield error
                return
            is_first = False
            while names:
                name, *names = names
                with progress(str(name)) as steps:
                    outcome = child.outcome(name, steps)
                if outcome is not None:
                    yield outcome
                # An engine that failed in itself refuses all work until it is started again.
                if child.has_ended or isinstance(outcome, InternalError):
                    break
        if not names:
            return
        request = replace(request, names=tuple(names))


class _Child:
    def __init__(self, process: BaseProcess, messages: Connection) -> None:
        self._process = process
        self._messages = messages
        self.has_ended = False

    def tables(self) -> list[TableName]:
        """Return the tables that will be verified, in order; call it first."""
        try:
            listed: list[TableName] | FederationError = self._messages.recv()
        except (EOFError, OSError):
            raise self._ended("the tables") from None
        if isinstance(listed, FederationError):
            raise listed
        return listed

    def outcome(self, name: TableName, steps: Progress) -> Report | FederationError | None:
        """Return what came of the next table; None where it is not bound and passed over."""
        while True:
            try:
                message = self._messages.recv()
            except (EOFError, OSError):
                self.has_ended = True
                return self._ended(str(name))
            if not isinstance(message, tuple):
                outcome: Report | FederationError | None = message
                return outcome
            step, offsets = message
            (steps.start if step == "start" else steps.advance)(offsets)

    def _ended(self, what: str) -> ColdStoreUnavailable:
        self._process.join()
        code = self._process.exitcode or 0
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return ColdStoreUnavailable(
            f"{what}: the process that verifies tables ended with {how} and has no result; verify one table at a time, with more "
            f"memory if the system ended the process."
        )


@contextmanager
def _started(request: VerifyRequest) -> Iterator[_Child]:
    messages, theirs = _PROCESSES.Pipe(duplex=False)
    with (
        messages,
        # Of this process: one that is killed removes nothing.
        tempfile.TemporaryDirectory(prefix="thermocline-cold-") as spill,
    ):
        process = _PROCESSES.Process(
            target=_verify, args=(request, theirs, Path(spill)), daemon=True
        )
        # It inherits that: a Ctrl-C in the terminal is for this process, which ends it.
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            process.start()
        finally:
            signal.signal(signal.SIGINT, handler)
        # The other end is the process's alone, so its death is the end of the messages.
        theirs.close()
        try:
            yield _Child(process, messages)
        finally:
            process.kill()
            process.join()


def _verify(request: VerifyRequest, messages: Connection, spill: Path) -> None:
    """Main function of the process."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from thermocline.verified import verify_each

    try:
        verify_each(request, messages.send, spill)
    except FederationError as error:
        messages.send(error)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
