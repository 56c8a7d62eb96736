"""Work that is done once for each key, of the newest keys."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar, cast

T = TypeVar("T")


class Once:
    """Results by key; the least recently used is forgotten. Thread-safe; a key may be worked out twice at once."""

    def __init__(self, size: int = 1024) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._found: OrderedDict[Hashable, object] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what ``make`` returned for ``key`` before, or ask it. One key stands for one type."""
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
                return cast("T", self._found[key])
        made = make()
        self.keep(key, made)
        return made

    def known(self, key: Hashable, kind: type[T]) -> T | None:
        """Return what there is for ``key``, which is of ``kind``; None where there is nothing."""
        with self._lock:
            found = self._found.get(key)
            if found is None:
                return None
            self._found.move_to_end(key)
        assert isinstance(found, kind)  # noqa: S101 - one key stands for one type
        return found

    def keep(self, key: Hashable, made: object) -> None:
        """Return ``made`` for ``key`` from now on."""
        with self._lock:
            self._found[key] = made
            while len(self._found) > self._size:
                self._found.popitem(last=False)
