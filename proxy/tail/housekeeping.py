"""Keeps tails in step with the tables: frees what no pin needs, follows configured tables from the start."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.errors import FederationError
from planner.names import TableName
from planner.seam.cut import Pin, TableCut
from proxy.tail.tails import Tails

_log = logging.getLogger(__name__)

#: Between two rounds.
_PAUSE_S = 1.0
_STOP_S = 5.0


@dataclass(eq=False)
class Keeper:
    """Three threads: one frees and never waits, one follows and may wait for catalog or broker, one packs.

    ``tables`` are always followed. ``pins`` returns the pins in use, ``cut`` cuts a table as of now.
    """

    tails: Tails
    tables: Sequence[TableName]
    pins: Callable[[], Sequence[Pin]]
    cut: Callable[[TableName], TableCut]

    def __post_init__(self) -> None:
        self._failed: dict[TableName, str] = {}
        self._unread = set(self.tables)
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._every, args=(work,), name=f"tails {name}", daemon=True
            )
            for name, work in (
                ("keep", self.tend),
                ("follow", self.follow),
                ("pack", self.tails.pack),
            )
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(_STOP_S)

    def has_read_all(self) -> bool:
        """Whether the tail of each table that is always followed was read to its end, once."""
        return not self._unread

    def tend(self) -> None:
        """Free what no pin needs any more, and what no statement reads."""
        for pin in self.pins():
            self.tails.note_pin(pin)
        self.tails.tend()

    def follow(self) -> None:
        """Follow the configured tables that are not followed yet, as if a statement had read them; note where logs end."""
        followed = {state.table for state in self.tails.states() if state.is_followed}
        for table in self.tables:
            if self._stopped.is_set():
                return
            try:
                cut = self.cut(table)
                self.tails.note_end(cut)
                is_read = table in followed and table not in self._unread
                if not is_read and cut.hot is not None:
                    self.tails.read(cut, lambda: None).close()
                self._unread.discard(table)
                self._failed.pop(table, None)
            except FederationError as error:
                if self._failed.get(table) != error.message:
                    _log.warning(
                        "the configured tail of %s is not followed: %s", table, error.message
                    )
                self._failed[table] = error.message

    def _every(self, work: Callable[[], None]) -> None:
        while not self._stopped.is_set():
            try:
                work()
            except Exception:  # noqa: BLE001
                # A bug of ours must not end the thread that keeps every other tail bounded.
                _log.exception("keeping the tails failed")
            self._stopped.wait(_PAUSE_S)
