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
        with self._lock:
            self._found[key] = made
            while len(self._found) > self._size:
                self._found.popitem(last=False)
        return made
