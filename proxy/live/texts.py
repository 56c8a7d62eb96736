"""Texts of answers to loads, of all tables: the newest in memory, the others in their files."""

from __future__ import annotations

import contextlib
import threading

from cachetools import LRUCache

#: A table of a thousand snapshots has about a megabyte.
MAX_BYTES = 64 << 20


class Texts:
    """By ETag. Thread-safe."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._lock = threading.Lock()
        self._texts: LRUCache[str, bytes] = LRUCache(max_bytes, getsizeof=len)

    def get(self, etag: str) -> bytes | None:
        with self._lock:
            return self._texts.get(etag)

    def put(self, etag: str, text: bytes) -> None:
        with self._lock, contextlib.suppress(ValueError):  # larger than all that is remembered
            self._texts[etag] = text

    @property
    def size(self) -> int:
        """Bytes in memory."""
        with self._lock:
            return int(self._texts.currsize)
