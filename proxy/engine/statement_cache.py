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

    At most ``size``, of statements with ``MAX_CHARS`` together; the newest is kept at any size.
    """

    def __init__(self, size: int = 1024) -> None:
        self._least_chars = MAX_CHARS // size
        self._lock = threading.Lock()
        #: Results, each with the characters it counts for; the latest used is last. A statement looks a dozen times, and
        #: in ``cachetools.LRUCache`` that was a fourteenth of its time in Python.
        self._entries: OrderedDict[Hashable, tuple[object, int]] = OrderedDict()
        self._chars = 0

    def get(self, key: Hashable, make: Callable[[], T], *, chars: int = 0) -> T:
        """Return what ``make`` returned for ``key`` before, or ask it. One key stands for one type.

        ``chars`` is how long the statement is that the result belongs to.
        """
        with self._lock:
            entry = self._used(key)
        if entry is not None:
            return cast("T", entry[0])
        made = make()
        self.keep(key, made, chars=chars)
        return made

    def cached(self, key: Hashable, kind: type[T]) -> T | None:
        with self._lock:
            entry = self._used(key)
        if entry is None:
            return None
        assert isinstance(entry[0], kind)  # noqa: S101 - one key stands for one type
        return entry[0]

    def keep(self, key: Hashable, made: object, *, chars: int = 0) -> None:
        counted = min(max(chars, self._least_chars), MAX_CHARS)
        with self._lock:
            _, before = self._entries.pop(key, (None, 0))
            self._entries[key] = made, counted
            self._chars += counted - before
            while self._chars > MAX_CHARS:
                _, (_, forgotten) = self._entries.popitem(last=False)
                self._chars -= forgotten

    def _used(self, key: Hashable) -> tuple[object, int] | None:
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry
