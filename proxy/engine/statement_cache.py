"""Remembers the results of work, by key."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import TypeVar, cast

from cachetools import LRUCache

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
        #: Results, each with the characters it counts for.
        self._entries: LRUCache[Hashable, tuple[object, int]] = LRUCache(
            MAX_CHARS, getsizeof=lambda entry: entry[1]
        )

    def get(self, key: Hashable, make: Callable[[], T], *, chars: int = 0) -> T:
        """Return what ``make`` returned for ``key`` before, or ask it. One key stands for one type.

        ``chars`` is how long the statement is that the result belongs to.
        """
        with self._lock:
            if key in self._entries:
                return cast("T", self._entries[key][0])
        made = make()
        self.keep(key, made, chars=chars)
        return made

    def cached(self, key: Hashable, kind: type[T]) -> T | None:
        with self._lock:
            entry, _ = self._entries.get(key, (None, 0))
        assert entry is None or isinstance(entry, kind)  # noqa: S101 - one key stands for one type
        return entry

    def keep(self, key: Hashable, made: object, *, chars: int = 0) -> None:
        counted = min(max(chars, self._least_chars), MAX_CHARS)
        with self._lock:
            self._entries.pop(key, None)  # else both would need room for a moment
            self._entries[key] = made, counted
