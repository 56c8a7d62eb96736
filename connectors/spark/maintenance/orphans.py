"""Removes files of a table's own folder that belong to no snapshot, branch or tag of it.

Iceberg's ``DeleteOrphanFiles`` lists them; it removes none by itself. What it listed is looked at again: the folder must be the
table's alone, and the table must still descend from the metadata that was compared.
"""

from __future__ import annotations

import functools
import itertools
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from connectors import failpoints
from connectors.spark.metadata import each, identifier, java, load_table
from connectors.store.locations import canonical, is_below, local_path, real_location
from planner.errors import BadBinding, BadConfig, TieringConflict
from planner.maintenance.facts import Neighbour
from planner.names import TableName

#: A replica's folder of live files, wherever it is.
_LIVE_FOLDER = "/thermocline-live-"
_PROBE = "thermocline-clock-"
#: Paths remembered of one listing, some 200 bytes each; the next step lists the rest.
_MAX_PATHS = 50_000
#: S3 deletes a thousand by one request.
_AT_ONCE = 500
#: Asking for sizes is a request each.
_SIZES_AT_ONCE = 8
#: Iceberg's metadata tables that name files, and their columns of paths.
_NAMES_OF_FILES = {
    "all_files": "file_path",
    "all_manifests": "path",
    "snapshots": "manifest_list",
    "metadata_log_entries": "file",
}


@dataclass(frozen=True, slots=True)
class SafeToRemove:
    """Which paths are the table's alone. ``location`` is in one form (``canonical``)."""

    location: str

    @classmethod
    def of(
        cls, table: TableName, location: str, neighbours: Iterable[Neighbour]
    ) -> SafeToRemove:
        """Check that no other table lies or writes in this one's folder, or lies above it.

        Raises:
            BadBinding: one does, or may. No orphan of this table can be told.
        """
        own = real_location(location)
        for other in neighbours:
            if other.unread:
                raise BadBinding(
                    f"{table}: the table {other.name} could not be read ({other.unread}), and may lie in this one's folder; no "
                    f"orphans are removed. Mend it, or take it out of its catalog.",
                    table=str(table),
                )
            lies, *writes = map(real_location, (other.lies, *other.writes))
            is_inside = any(is_below(folder, (own,)) for folder in (lies, *writes))
            if is_inside or is_below(own, (lies,)):
                raise BadBinding(
                    f"{table}: the table {other.name} lies or writes in its folder, or lies above it, so nothing tells whose a file "
                    f"is; no orphans are removed.",
                    table=str(table),
                )
        return cls(canonical(location))

    def __contains__(self, path: str) -> bool:
        return is_below(canonical(path), (self.location,)) and _LIVE_FOLDER not in path


class _Listing:
    """``java.util.function.Consumer`` that collects paths, and so keeps Iceberg from removing them. ``is_whole``: all of them."""

    def __init__(self, safe: SafeToRemove) -> None:
        self.paths: list[str] = []
        self.is_whole = True
        self._safe = safe

    def accept(self, path: str) -> None:
        if path not in self._safe:
            return
        if len(self.paths) < _MAX_PATHS:
            self.paths.append(path)
        else:
            self.is_whole = False

    class Java:
        implements = ("java.util.function.Consumer",)


@dataclass(frozen=True, slots=True)
class Removed:
    """Files that were removed, and whether none is left to remove."""

    files: int
    bytes: int
    is_all: bool


def remove_orphans(
    session: SparkSession,
    table: TableName,
    safe: SafeToRemove,
    before_ms: int,
    is_over: Callable[[], bool],
) -> Removed:
    """Remove orphans written before a time of the store's, until ``is_over``; at least some hundred.

    Raises:
        TieringConflict: the table was rolled back or made anew since it was compared. Nothing was removed.
        BadBinding: files of the table's folder are live by another name of it.
    """
    loaded = load_table(session, table)
    compared = loaded.operations().current().metadataFileLocation()
    listing = _Listing(safe)
    actions = java(session).org.apache.iceberg.spark.actions.SparkActions
    (
        actions.get(session._jsparkSession)
        .deleteOrphanFiles(loaded)
        .usePrefixListing(True)
        .olderThan(before_ms)
        .deleteWith(listing)
        # Else all that it found, which may be millions, is one list of the driver first.
        .option("stream-results", "true")
        .execute()
    )
    failpoints.reach("before_orphans")
    if listing.paths:
        _check_links(session, table, str(loaded.location()))
        now = load_table(session, table).operations().current()
        versions = (entry.file() for entry in each(now.previousFiles()))
        if compared not in itertools.chain((now.metadataFileLocation(),), versions):
            raise TieringConflict(
                f"{table}: the table was rolled back or made anew while its orphans were listed; nothing was removed.",
                table=str(table),
            )
    files = size = 0
    with ThreadPoolExecutor(_SIZES_AT_ONCE, thread_name_prefix="orphans") as pool:
        for start in range(0, len(listing.paths), _AT_ONCE):
            paths = listing.paths[start : start + _AT_ONCE]
            sizes = sum(pool.map(partial(_size, loaded.io()), paths))
            _delete(session, loaded.io(), paths)
            files, size = files + len(paths), size + sizes
            if is_over():
                break
    return Removed(files, size, listing.is_whole and files == len(listing.paths))


def _check_links(session: SparkSession, table: TableName, location: str) -> None:
    """Refuse where a link of the disk is in the names of live files: Iceberg compares paths as they are written."""
    if local_path(location) is None:
        return
    own, real = canonical(location), real_location(location)
    named = (
        session.table(f"{identifier(table)}.{view}").selectExpr(
            f"regexp_extract({column}, '^(.*)/', 1)"
        )
        for view, column in _NAMES_OF_FILES.items()
    )
    for (folder,) in functools.reduce(DataFrame.union, named).distinct().collect():
        if not is_below(canonical(folder), (own,)) and is_below(real_location(folder), (real,)):
            raise BadBinding(
                f"{table}: files of its folder are live by another name of it, as a link of the disk has it, and by the name of "
                f"today nothing tells them from orphans; no orphans are removed.",
                table=str(table),
            )


def _size(io: Any, path: str) -> int:
    """Return a file's bytes; 0 where it is gone, or the store does not say."""
    try:
        return int(io.newInputFile(path).getLength())
    except Py4JJavaError:
        return 0


def _delete(session: SparkSession, io: Any, paths: Sequence[str]) -> None:
    """Delete files with as few requests as the store takes."""
    gateway = session.sparkContext._gateway
    if not is_instance_of(gateway, io, "org.apache.iceberg.io.SupportsBulkOperations"):
        for path in paths:
            io.deleteFile(path)
        return
    listed = java(session).java.util.ArrayList()
    for path in paths:
        listed.add(path)
    io.deleteFiles(listed)


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
