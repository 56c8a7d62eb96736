"""Remembers the results of work, by key."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar, cast

T = TypeVar("T")

#: Bound of the characters of remembered statements. A parsed tree takes about 100 bytes per character of SQL, its
#: rewrite the same again: a list of 10,000 numbers is 80 KB of text and 15 MB.
MAX_CHARS = 1 << 19


class StatementCache:
    """Results by key; the least recently used is forgotten. Thread-safe; a key may be worked out twice at once.

    At most ``size``, of statements with ``MAX_CHARS`` together; the newest is kept whatever its size.
    """

    def __init__(self, size: int = 1024) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, object] = OrderedDict()
        #: Only of those that have any.
        self._chars: dict[Hashable, int] = {}
        self._all_chars = 0

    def get(self, key: Hashable, make: Callable[[], T], *, chars: int = 0) -> T:
        """Return what ``make`` returned for ``key`` before, or ask it. One key stands for one type.

        ``chars`` is how long the statement is that the result belongs to.
        """
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return cast("T", self._entries[key])
        made = make()
        self.keep(key, made, chars=chars)
        return made

    def cached(self, key: Hashable, kind: type[T]) -> T | None:
        """Return what there is for ``key``, which is of ``kind``; None where there is nothing."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
        assert isinstance(entry, kind)  # noqa: S101 - one key stands for one type
        return entry

    def keep(self, key: Hashable, made: object, *, chars: int = 0) -> None:
        """Return ``made`` for ``key`` from now on."""
        with self._lock:
            self._forget(key)
            self._entries[key] = made
            if chars:
                self._chars[key] = chars
                self._all_chars += chars
            while len(self._entries) > self._size or (
                self._all_chars > MAX_CHARS and len(self._entries) > 1
            ):
                self._forget(next(iter(self._entries)))

    def _forget(self, key: Hashable) -> None:
        """The caller holds the lock."""
        if key in self._entries:
            del self._entries[key]
            self._all_chars -= self._chars.pop(key, 0)
