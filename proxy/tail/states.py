"""What can be told about a tail: for status, metrics and health."""

from __future__ import annotations

from dataclasses import dataclass

from planner.errors import FederationError
from planner.names import TableName
from planner.offsets import OffsetRange
from planner.ports import RecordError
from planner.watermark import Outcomes


@dataclass(frozen=True, slots=True)
class TailState:
    """One table's tail under one schema, shape and topic.

    ``ranges`` are held, sorted by partition. ``lag`` is the number of offsets between them and the newest log end
    a statement of this table measured: 0 for one that is up to date. ``size`` are bytes as Arrow held the rows, of
    which ``packed`` were compressed in memory, and ``on_disk`` moved to the scratch database. ``error`` is what stopped the follower, until it goes on.
    ``outcomes`` and ``bad`` (the last few) tell what was decoded since the server holds this tail.
    """

    table: TableName
    topic: str
    schema_id: int
    is_followed: bool
    ranges: tuple[OffsetRange, ...]
    lag: int
    rows: int
    size: int
    packed: int
    on_disk: int
    error: FederationError | None
    outcomes: Outcomes
    bad: tuple[RecordError, ...]
