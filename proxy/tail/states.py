"""The state of a tail, for status, metrics and health; and the count of what it got."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from planner.errors import FederationError
from planner.names import TableName
from planner.offsets import OffsetRange
from planner.seam.watermark import Outcomes


@dataclass(frozen=True, slots=True)
class TailState:
    """One table's tail under one schema, shape and topic.

    ``ranges`` are sorted by partition. ``lag`` is the number of offsets between them and the newest log end that a
    statement of this table measured: 0 if up to date; ``rest_s`` is about how long reading them takes, None where nothing was
    read lately. ``size`` is the rows' Arrow size in bytes; ``packed`` of it are
    compressed in memory, ``on_disk`` are in the scratch database. ``error`` stopped the follower, and is None once it
    goes on. ``outcomes`` counts what was decoded into this tail.
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


class OutcomeTally:
    """Outcomes of all records. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outcomes = Outcomes()

    def count(self, outcomes: Outcomes) -> None:
        """Count a batch once its rows are added."""
        with self._lock:
            self._outcomes += outcomes

    @property
    def total(self) -> Outcomes:
        return self._outcomes
