"""The interface to the cold side of a verification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from planner.offsets import OffsetRange


@dataclass(frozen=True, slots=True)
class ColdCount:
    """The rows of one Kafka partition. ``first`` and ``last`` are inclusive; None without an offset.

    ``partition`` is None for rows without one.
    """

    partition: int | None
    rows: int
    without_offset: int
    first: int | None
    last: int | None


class ColdRows(Protocol):
    """The rows of one pinned snapshot, and of retained ones before it."""

    def counts(self) -> tuple[ColdCount, ...]:
        """Count all rows by Kafka partition."""

    def read(
        self,
        ranges: Sequence[OffsetRange],
        columns: Sequence[str],
        *,
        snapshot_id: int | None = None,
    ) -> pa.Table:
        """Read the rows of ``ranges``, in any order, columns in the types of the pinned schema.

        ``snapshot_id`` names an older snapshot; a column that it lacks is left out.

        Raises:
            SnapshotExpired, ColdStoreUnavailable: a file is gone, or cannot be read now.
        """
