"""The rows of an answer on their way out. Both classes are a ``proxy.session.Stream``."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Self

import pyarrow as pa

from planner.schema import size_of
from proxy.deadline import Deadline
from proxy.engine.result import Result

_SMALL_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class MaterializedResult:
    """An answer that is in memory. Nothing runs, so there is nothing to end."""

    schema: pa.Schema
    batches: tuple[pa.RecordBatch, ...]

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Read an Arrow IPC stream: rows that came with a ticket."""
        with pa.ipc.open_stream(data) as reader:
            return cls(reader.schema, tuple(reader))

    @classmethod
    def of_count(cls, name: str, rows: int, metadata: dict[str, str]) -> Self:
        """Answer a bare count whose rows were counted without the engine."""
        schema = pa.schema([(name, pa.int64())], metadata or None)
        return cls(schema, (pa.record_batch([pa.array([rows], pa.int64())], schema),))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self.batches)

    def close(self) -> None:
        """Do nothing."""


@dataclass(slots=True, eq=False)
class StatementStream:
    """One execution. ``on_thread`` does its reading: on a thread of its own, no longer than until the deadline.

    The clock stands still while the client has a batch. What the execution uses is freed once nothing runs in it.
    ``metadata`` is the schema's.
    """

    result: Result
    metadata: dict[str, str]
    deadline: Deadline
    on_thread: Callable[[Callable[[], None]], None]
    resources: contextlib.ExitStack
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_busy: bool = False
    _is_closed: bool = False
    _has_ended: bool = False
    _ready: deque[pa.RecordBatch] = field(default_factory=deque)

    @property
    def schema(self) -> pa.Schema:
        return self.result.schema.with_metadata(self.metadata or None)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            while self._ready:
                with self.deadline.paused():
                    yield self._ready.popleft()
            if self._has_ended:
                self.deadline.cancellation.check()
                return
            self.on_thread(self.read)

    def read(self) -> None:
        """Read the next batch, and one more behind a small one: that is most likely the end.

        A small statement is opened, read and ended in one switch to another thread.
        """
        with self._lock:
            if self._is_closed:
                self._has_ended = True
                return
            self._is_busy = True
        try:
            for _ in range(2):
                batch = next(self.result, None)
                if batch is None:
                    self._has_ended = True
                    return
                self._ready.append(batch)
                if size_of(batch) > _SMALL_BYTES:
                    return
        finally:
            self._rest()

    def _rest(self) -> None:
        with self._lock:
            self._is_busy = False
            if not self._is_closed:
                return
        self.resources.close()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._is_busy:
                return
        self.resources.close()
