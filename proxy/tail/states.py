"""The state of a tail, for status, metrics and health; and the count of what it got."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from planner.errors import FederationError
from planner.names import TableName
from planner.offsets import OffsetRange
from planner.ports import RecordError
from planner.watermark import Outcomes

_MAX_ERRORS = 20


@dataclass(frozen=True, slots=True)
class TailState:
    """One table's tail under one schema, shape and topic.

    ``ranges`` are sorted by partition. ``lag`` is the number of offsets between them and the newest log end that a
    statement of this table measured: 0 if up to date; ``rest_s`` is about how long reading them takes, None where nothing was
    read lately. ``size`` is the rows' Arrow size in bytes; ``packed`` of it are
    compressed in memory, ``on_disk`` are in the scratch database. ``error`` stopped the follower, and is None once it
    goes on. ``outcomes`` and ``bad`` (the last few) count what was decoded into this tail.
    """

    table: TableName
    topic: str
    schema_id: int
    is_followed: bool
    ranges: tuple[OffsetRange, ...]
    lag: int
    rest_s: float | None
    rows: int
    size: int
    packed: int
    on_disk: int
    error: FederationError | None
    outcomes: Outcomes
    bad: tuple[RecordError, ...]


class OutcomeTally:
    """Outcomes of all records, and the last that did not decode. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outcomes = Outcomes()
        self._bad: deque[RecordError] = deque(maxlen=_MAX_ERRORS)

    def count(self, outcomes: Outcomes, errors: Sequence[RecordError]) -> None:
        """Count a batch once its rows are added."""
        with self._lock:
            self._outcomes += outcomes
            self._bad.extend(errors)

    def totals(self) -> tuple[Outcomes, tuple[RecordError, ...]]:
        with self._lock:
            return self._outcomes, tuple(self._bad)
