"""One running statement."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from proxy.deadline import Cancellation
from proxy.engine.result import Result
from proxy.process.watchdog import Watchdog


@dataclass(frozen=True, slots=True)
class Watched:
    """What surrounds every call into the engine for one statement."""

    watchdog: Watchdog
    timeout_s: float
    repinning: Callable[[], contextlib.AbstractContextManager[None]]
    user: str | None = None


class StatementStream:
    """One execution: rows from the engine, ended by the client, the deadline or the watchdog."""

    def __init__(
        self,
        result: Result,
        cancellation: Cancellation,
        watched: Watched,
        resources: contextlib.ExitStack,
        metadata: dict[str, str],
    ) -> None:
        """``metadata`` is the schema's."""
        self._result = result
        self._metadata = metadata
        self._cancellation = cancellation
        self._watched = watched
        self._resources = resources

    @property
    def schema(self) -> pa.Schema:
        return self._result.schema.with_metadata(self._metadata or None)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        batches = iter(self._result)
        with self._cancellation.interrupting(self._result.cancel):
            while True:
                with (
                    self._watched.watchdog.expecting(
                        self._watched.timeout_s, self._watched.user
                    ),
                    self._watched.repinning(),
                ):
                    batch = next(batches, None)
                if batch is None:
                    break
                yield batch
            self._cancellation.check()

    def close(self) -> None:
        self._result.close()
        self._resources.close()
