"""Which tables a job looks after: those that name a topic."""

from __future__ import annotations

import threading

import click

from planner.errors import Inconsistent, RequestError, Unavailable
from planner.names import TableName
from planner.ports import ColdStore


class BoundTables:
    """Lists the tables that name a topic. One whose binding is refused is reported once and left out.

    So is one that cannot be read now, as another's entry whose files are gone, unless ``with_unread``.
    """

    def __init__(self, store: ColdStore, *, with_unread: bool = False) -> None:
        self._store = store
        self._with_unread = with_unread
        self._bound: set[TableName] = set()
        self._reported: dict[TableName, str] = {}
        self._lock = threading.Lock()

    def __call__(self) -> list[TableName]:
        """List them. Raises CatalogUnavailable: a catalog does not answer."""
        listed = set(self._store.tables())
        with self._lock:
            self._bound &= listed
            # Of a table that is bound, its rounds learn when it is not any more.
            self._bound |= set(filter(self._is_bound, listed - self._bound))
            return sorted(self._bound)

    def _is_bound(self, name: TableName) -> bool:
        try:
            return self._store.pin(name).binding is not None
        except Inconsistent:
            # Its rounds say what is wrong, and when it is well again.
            return True
        except (RequestError, Unavailable) as error:
            if self._with_unread and isinstance(error, Unavailable):
                return True
            if self._reported.get(name) != error.message:
                self._reported[name] = error.message
                click.echo(f"{name}: left out: {error.message}", err=True)
            return False
