"""Cuts of the past that need no engine: of another statement's cut, or of a snapshot (planner.seam.time_travel decides)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from connectors.iceberg.pin_cache import PinCache
from planner.errors import CutExpired, Inconsistent, SnapshotExpired
from planner.offsets import OffsetVector
from planner.seam.cut import LogBounds, Pin, TableCut
from planner.seam.time_travel import (
    AtTime,
    CutEntry,
    cut_until,
    decodes_as,
    expired,
    needs_log,
    same_snapshot,
)


@dataclass(frozen=True, slots=True)
class PastCuts:
    """Thread-safe."""

    pins: PinCache
    measure: Callable[[Sequence[str]], Mapping[str, LogBounds]]

    def cut(self, entry: CutEntry) -> TableCut:
        """Return the cut that an entry names, from its own snapshot or a newer one.

        Raises:
            CutExpired: it is not kept any more, or the table was another one.
            FederationError: of the pins or the log.
        """
        try:
            return self._from_any(entry, self.pins.get(entry.table))
        except CutExpired:
            # The pin in hand may be from before a tiering that took over what the log has lost.
            return self._from_any(entry, self.pins.refresh(entry.table))

    def _from_any(self, entry: CutEntry, current: Pin) -> TableCut:
        """Read the cut from its own snapshot where that is possible: no later delete or update shows there."""
        if current.table_uuid != entry.table_uuid:
            raise expired(entry.table, "the table was dropped and created again")
        exact = self.exact(entry, current)
        if entry.end is None:
            if exact is None:
                version = entry.snapshot_id
                what = (
                    "the table without a snapshot" if version is None else f"snapshot {version}"
                )
                raise expired(entry.table, f"{what} is not retained")
            return same_snapshot(entry, exact)
        why = expired(
            entry.table,
            f"snapshot {entry.snapshot_id} or the metadata file of then is gone, and the table's columns, their names, "
            f"its policies or its topic have changed since",
        )
        for pin in self._candidates(entry, exact, current):
            try:
                return self._until(pin, entry.end)
            except CutExpired as error:
                why = error
        raise why

    @staticmethod
    def _candidates(entry: CutEntry, exact: Pin | None, current: Pin) -> Iterator[Pin]:
        for pin in dict.fromkeys((exact, current)):
            if (
                pin is not None
                and pin.schema.schema_id == entry.schema_id
                and pin.watermark is not None
                and pin.watermark.topic_id == entry.topic_id
                and decodes_as(entry, pin)
            ):
                yield pin

    def _until(self, pin: Pin, end: OffsetVector) -> TableCut:
        bounds = None
        if pin.watermark is not None and needs_log(pin, end):
            bounds = self.measure([pin.watermark.address])[pin.watermark.address]
        return cut_until(pin, end, bounds)

    def exact(self, entry: CutEntry, current: Pin) -> Pin | None:
        """Return a pin as the one the cut was made from, if its snapshot is retained."""
        if (entry.snapshot_id, entry.schema_id) == (
            current.snapshot_id,
            current.schema.schema_id,
        ) and decodes_as(entry, current):
            return current
        version = entry.snapshot_id
        if version is not None and version not in self.pins.retained(entry.table).ids:
            return None
        try:
            if version is not None:
                pin = self.pins.pin_version(entry.table, version)
                if pin.schema.schema_id == entry.schema_id and decodes_as(entry, pin):
                    return pin
            # Columns were changed after that snapshot and before the cut, or names and policies since.
            return self.pins.pin_at(entry)
        except (CutExpired, SnapshotExpired, Inconsistent):
            return None

    def then(self, pin: Pin, moment: AtTime) -> Pin:
        """A table without a topic says by its snapshots what it was."""
        version = self.pins.retained(pin.table).current_at(moment.time_us)
        if version is None:
            raise CutExpired(
                f"{pin.table}: the table had no snapshot at that time, or its history does not reach back so far.",
                table=str(pin.table),
            )
        return self.pins.pin_version(pin.table, version)
