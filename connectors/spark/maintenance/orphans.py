"""Removes files of a table's own folder that belong to no snapshot, branch or tag of it.

Iceberg's ``DeleteOrphanFiles`` lists them; it removes none by itself. What it listed is looked at again: the folder must be the
table's alone, and the table must still descend from the metadata that was compared.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import is_instance_of
from pyspark.sql import SparkSession

from connectors import failpoints
from connectors.spark.metadata import each, java, load_table
from connectors.store.locations import canonical, is_below, real_location
from planner.errors import BadBinding, BadConfig, TieringConflict
from planner.names import TableName

#: A replica's folder of live files, wherever it is.
_LIVE_FOLDER = "/thermocline-live-"
_PROBE = "thermocline-clock-"


@dataclass(frozen=True, slots=True)
class SafeToRemove:
    """Which paths are the table's alone. ``location`` is in one form (``canonical``)."""

    location: str

    @classmethod
    def of(
        cls, table: TableName, location: str, locations: Mapping[TableName, Sequence[str]]
    ) -> SafeToRemove:
        """Check that no other table lies or writes in this one's folder, or lies above it.

        ``locations`` are those of every table: its own first, then where its properties put files.

        Raises:
            BadBinding: one does. No orphan of this table can be told.
        """
        own = real_location(location)
        for other, folders in locations.items():
            # The first is where it lies, the others are where it writes.
            lies, *writes = map(real_location, folders)
            is_inside = any(is_below(folder, (own,)) for folder in (lies, *writes))
            if other != table and (is_inside or is_below(own, (lies,))):
                raise BadBinding(
                    f"{table}: the table {other} lies or writes in its folder, or lies above it, so nothing tells whose a file is; "
                    f"no orphans are removed.",
                    table=str(table),
                )
        return cls(canonical(location))

    def __contains__(self, path: str) -> bool:
        return is_below(canonical(path), (self.location,)) and _LIVE_FOLDER not in path


class _Listing:
    """``java.util.function.Consumer`` that keeps paths, and so keeps Iceberg from removing them."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def accept(self, path: str) -> None:
        self.paths.append(path)

    class Java:
        implements = ("java.util.function.Consumer",)


def remove_orphans(
    session: SparkSession, table: TableName, safe: SafeToRemove, before_ms: int
) -> int:
    """Remove orphans written before a time of the store's; return how many.

    Raises:
        TieringConflict: the table was rolled back or made anew since it was compared. Nothing was removed.
    """
    loaded = load_table(session, table)
    compared = loaded.operations().current().metadataFileLocation()
    listing = _Listing()
    actions = java(session).org.apache.iceberg.spark.actions.SparkActions
    (
        actions.get(session._jsparkSession)
        .deleteOrphanFiles(loaded)
        .usePrefixListing(True)
        .olderThan(before_ms)
        .deleteWith(listing)
        .execute()
    )
    orphans = [path for path in listing.paths if path in safe]
    failpoints.reach("before_orphans")
    if orphans:
        now = load_table(session, table).operations().current()
        versions = (entry.file() for entry in each(now.previousFiles()))
        if compared not in itertools.chain((now.metadataFileLocation(),), versions):
            raise TieringConflict(
                f"{table}: the table was rolled back or made anew while its orphans were listed; nothing was removed.",
                table=str(table),
            )
    io = loaded.io()
    for path in orphans:
        io.deleteFile(path)
    return len(orphans)


def store_clock_ms(session: SparkSession, table: TableName, loaded: Any) -> int:
    """Return the store's time, in milliseconds since 1970: that of a file that is written for it, and removed.

    Raises:
        BadConfig: the catalog opens files by what does not list them.
    """
    io = loaded.io()
    gateway = session.sparkContext._gateway
    if not is_instance_of(gateway, io, "org.apache.iceberg.io.SupportsPrefixOperations"):
        raise BadConfig(
            f"{table}: the io-impl of its catalog lists no files, so nothing tells their age; nothing is removed. Use "
            f"Iceberg's own for the store.",
            table=str(table),
        )
    path = f"{str(loaded.location()).rstrip('/')}/metadata/{_PROBE}{uuid.uuid4().hex}"
    stream = io.newOutputFile(path).createOrOverwrite()
    stream.close()
    try:
        [written] = each(io.listPrefix(path))
        return int(written.createdAtMillis())
    finally:
        io.deleteFile(path)
