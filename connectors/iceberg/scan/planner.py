"""Lists the files of a pinned snapshot that a statement needs, instead of the extension.

::

    metadata file -> manifest list -> manifests, by partition summaries -> files, by partition and bounds

Everything read on the way is remembered: a statement costs the pruning alone, a new snapshot the manifests it added.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, compress
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from cachetools import FIFOCache, LRUCache, cachedmethod
from pyiceberg.table.metadata import TableMetadata

from connectors.iceberg.errors import DamagedFile, decoding
from connectors.iceberg.file_access import EngineCalls
from connectors.iceberg.file_io import OwnFiles, table_metadata
from connectors.iceberg.scan.allowed_locations import Reach
from connectors.iceberg.scan.extension_support import (
    ExtensionCheck,
    check_formats,
    check_names_for_extension,
    unread,
)
from connectors.iceberg.scan.footers import Fit, Footers, Written
from connectors.iceberg.scan.manifests import Manifest, ManifestList, Manifests
from connectors.iceberg.scan.metrics import Files, typed
from connectors.iceberg.scan.projection import (
    bound_type,
    is_misread,
    on_bounds,
    on_partition,
    partition_bounds,
)
from connectors.iceberg.scan.snapshot_facts import Facts
from connectors.store.object_store import is_object_store
from planner.errors import ForeignFile
from planner.reading.filters import Bounds, Condition, FileSpan, ScanFilter, prune
from planner.schema import Column
from planner.seam.cut import ColdSlice

#: What writers counted may be anything: above this, files are read.
_MAX_COUNTED = 1_000_000_000_000
#: With more files left than this, the extension's own scan is as fast.
MAX_LISTED_FILES = 1_000
#: Files listed of a table that the extension's scan must not meet.
MAX_LISTED_ALONE = 100_000
#: Manifests whose files were checked. ``Manifests`` decodes them, which is most of the work.
MAX_CHECKED = 100_000
#: Snapshots whose metadata is remembered at most.
MAX_REMEMBERED = 1_000
#: Selections of manifests whose files are kept together: one decision for all, not one per manifest.
MAX_TOGETHER = 16
#: A slice: catalog, metadata location, snapshot id, schema id.
_Key: TypeAlias = tuple[str, str, int | None, int]
#: Characters that would make a name a pattern.
_PATTERN = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class FileList:
    """Files to read, how many rows writers counted in them, and the fields in which none of them has NaN, or NaN and zero.

    ``lengths`` are in bytes, by their manifests. ``by_name``: all of them have the columns that are read under their names
    of today, and of their types. ``written``: as for ``Footers.fit``.
    """

    paths: Sequence[str]
    lengths: Sequence[int]
    rows: int
    without_nan: frozenset[int]
    without_zero: frozenset[int]
    by_name: bool = False
    written: Written = field(default_factory=dict)

    def within(self, span: FileSpan) -> FileList:
        """Return the files of a span, with a share of the rows."""
        if span.is_whole:
            return self
        chosen = [number for number, path in enumerate(self.paths) if span.has(path)]
        return replace(
            self,
            paths=[self.paths[number] for number in chosen],
            lengths=[self.lengths[number] for number in chosen],
            rows=self.rows * len(chosen) // max(len(self.paths), 1),
        )


class ColdPlan:
    """Thread-safe; ``close`` ends its threads."""

    def __init__(
        self,
        manifests: Manifests,
        files_of: Callable[[ColdSlice], OwnFiles],
        engine: EngineCalls,
    ) -> None:
        """``files_of`` opens the files of a slice's table, within its reach."""
        #: Manifests whose files passed the check of where they lie, with the table's reach and the kind of manifest.
        self._checked: FIFOCache[tuple[Reach, str, bool], None] = FIFOCache(MAX_CHECKED)
        self._manifests = manifests
        self._files_of = files_of
        self._footers = Footers(engine.open_file)
        self._extension = ExtensionCheck(manifests, engine.try_manifests)
        self._lock = threading.Lock()
        self._facts: LRUCache[_Key, Facts] = LRUCache(MAX_REMEMBERED)
        #: Manifest list that a statement read last, by catalog and table.
        self._read_last: LRUCache[tuple[str, str], str] = LRUCache(MAX_REMEMBERED)
        self._together: LRUCache[tuple[str, tuple[str, ...]], Files] = LRUCache(MAX_TOGETHER)

    def remember(self, io: OwnFiles, location: str, metadata: TableMetadata) -> None:
        """Take the facts of a metadata file that was read to pin it.

        Decodes the new manifests of a table that statements have read, and reads the footers of a few new files: the
        background refresh of pins pays for it, not the next statement.
        """
        facts = Facts.of(metadata)
        version = metadata.current_snapshot_id, metadata.current_schema_id
        with self._lock:
            self._facts[io.catalog, location, *version] = facts
            read_last = self._read_last.get((io.catalog, facts.table_uuid))
        if read_last is None or facts.manifest_list in (None, read_last):
            return
        # The statement that needs it raises.
        with contextlib.suppress(OSError, DamagedFile, ForeignFile):
            before = {manifest.path for manifest in self._manifests.list(io, read_last).data}
            listing = self._manifests.list(io, facts.manifest_list)
            if listing.is_enough:
                new = self._manifests.blocks(
                    io, [manifest for manifest in listing.data if manifest.path not in before]
                )
                if is_object_store(facts.manifest_list):
                    self._footers.read_ahead(io, new)

    def files(
        self, cold: ColdSlice, rows: ScanFilter, names: Collection[str] | None = None
    ) -> FileList | None:
        """Return the files that may hold wanted rows of a slice, of which the columns ``names`` are read, by default all.

        None where a list of files is not enough, or no better than the extension's scan. The manifests are checked
        then, and the scan may run.

        Raises:
            FileNotFoundError: a file is gone.
            DamagedFile: a file is damaged.
            UnreadableFiles: some are of a format that is not read, or a partition field's name keeps the extension away.
            ForeignFile: as ``Reach.check_block``.
            OSError: a file cannot be read now.
        """
        io = self._files_of(cold)
        facts = self._of(io, cold)
        if facts.manifest_list is None:
            check_names_for_extension(facts)
            return None
        files = self._listed(io, facts, facts.manifest_list, cold, rows)
        if facts.is_head:
            with self._lock:
                self._read_last[io.catalog, facts.table_uuid] = facts.manifest_list
        if files is not None:
            lengths = dict(zip(files.paths, files.lengths, strict=True))
            fit, written = self._footers.fit(io, lengths, cold.schema, facts.own, names)
            if fit is not Fit.NOT:
                return replace(files, by_name=fit is Fit.BY_NAME, written=written)
        check_names_for_extension(facts)
        self._manifests.check(io, facts.manifest_list)
        self._extension.check(io, facts.manifest_list)
        # The extension reads everything that is listed.
        listed = self._manifests.list(io, facts.manifest_list)
        self._check(io, listed.data, is_data=True)
        self._check(io, listed.deletes, is_data=False)
        if cold.snapshot_id is not None:
            self._extension.try_read(cold.metadata_location, cold.snapshot_id)
        return None

    def _manifest_list(self, cold: ColdSlice) -> tuple[OwnFiles, ManifestList | None]:
        """Read the manifest list of a slice; None where it names none."""
        io = self._files_of(cold)
        path = self._of(io, cold).manifest_list
        return io, None if path is None else self._manifests.list(io, path)

    def count_rows(self, cold: ColdSlice) -> int | None:
        """Return how many rows the manifest list of a slice counts; None where rows are deleted, or beyond belief.

        Raises FileNotFoundError, DamagedFile, OSError as ``files``.
        """
        _, listed = self._manifest_list(cold)
        rows = listed.rows if listed is not None and listed.is_enough else None
        return rows if rows is not None and 0 <= rows <= _MAX_COUNTED else None

    def bounds(self, cold: ColdSlice, column: Column) -> Bounds | None:
        """Return the statistics of a column in every file of a slice; None where rows are deleted, or a file is not Parquet.

        Raises FileNotFoundError, DamagedFile, OSError as ``files``.
        """
        io, listed = self._manifest_list(cold)
        if listed is None or not (listed.is_enough and listed.data):
            return None
        files = self._files(io, tuple(listed.data))
        return (
            files.bounds(column.field_id, bound_type(column.type))
            if files.are_parquet
            else None
        )

    def _check(self, io: OwnFiles, manifests: Sequence[Manifest], *, is_data: bool) -> None:
        """Check that the files of manifests are where they may be, each manifest once. Raises as ``Reach.check_block``."""
        with self._lock:
            new = [
                listed
                for listed in manifests
                if (io.reach, listed.path, is_data) not in self._checked
            ]
        for manifest, block in zip(new, self._manifests.blocks(io, new), strict=True):
            io.reach.check_block(block, is_data=is_data)
            with self._lock:
                self._checked[io.reach, manifest.path, is_data] = None

    def misread(self, cold: ColdSlice) -> frozenset[int]:
        """Return the fields whose filters must be hidden from the extension.

        DuckDB's iceberg extension 1.5.5 rounds times before 1970 up to compare them with the partition's day,
        month, year or hour, hashes UUIDs in its own way, and truncates texts to so many characters as one sees, where
        Iceberg counts code points; and it does not know that the truncation of the least whole numbers overflows. So it
        loses rows, and all whose partition is a uuid. Nor does the engine survive each truncation of a decimal.

        Raises FileNotFoundError, OSError as ``files``.
        """
        io = self._files_of(cold)
        facts = self._of(io, cold)
        if facts.manifest_list is None:
            return frozenset(field.source_id for field in chain(*facts.specs.values()))
        listed = self._manifests.list(io, facts.manifest_list)
        return frozenset(
            field.source_id
            for manifest in listed.data
            for field in facts.specs.get(manifest.spec_id, ())
            if is_misread(field.transform, field.source, manifest.lower(field.position))
        )

    def comparable_floats(self, cold: ColdSlice) -> frozenset[int]:
        """Return the floating fields in which no file of a slice has NaN or a zero, by its manifests; none where rows are deleted.

        Raises FileNotFoundError, DamagedFile, OSError as ``files``.
        """
        io, listed = self._manifest_list(cold)
        if listed is None or not listed.is_enough or not listed.data:
            return frozenset()
        blocks = self._manifests.blocks(io, listed.data)
        return frozenset.intersection(*(block.without_zero for block in blocks))

    def lowest(self, cold: ColdSlice, column: Column) -> int | None:
        """Return a number that no row of a slice is below in a column, by the bounds of its files; None: unknown.

        Raises FileNotFoundError, DamagedFile, OSError as ``files``.
        """
        io, listed = self._manifest_list(cold)
        if listed is None:
            return None
        lows = []
        for block in self._manifests.blocks(io, listed.data):
            bounds = block.bounds(column.field_id, column.type)
            if bounds is None or bounds.lower.null_count:
                return None
            lows += [pc.min(bounds.lower).as_py()] if len(block) else []
        return min(lows, default=None)

    def bounded(self, cold: ColdSlice) -> frozenset[int]:
        """Return the fields of which some data file of a slice has bounds, by its manifests.

        Raises FileNotFoundError, DamagedFile, OSError as ``files``.
        """
        io, listed = self._manifest_list(cold)
        blocks = () if listed is None else self._manifests.blocks(io, listed.data)
        return frozenset(chain.from_iterable(block.bounded for block in blocks))

    def is_head(self, cold: ColdSlice) -> bool:
        """Whether a slice is the current version of its metadata file. Raises FileNotFoundError, OSError as ``files``."""
        return self._of(self._files_of(cold), cold).is_head

    def close(self) -> None:
        self._footers.close()
        self._extension.close()

    def _listed(
        self, io: OwnFiles, facts: Facts, manifest_list: str, cold: ColdSlice, rows: ScanFilter
    ) -> FileList | None:
        listed = self._manifests.list(io, manifest_list)
        if not listed.is_enough:
            return None
        pruning = _Pruning(facts, cold, rows)
        groups = pruning.manifests(listed.data)
        files = sum(manifest.files for group in groups.values() for manifest in group)
        most = MAX_LISTED_FILES if facts.odd_partition_field is None else MAX_LISTED_ALONE
        if not all(rows) and files > most:
            return None
        paths: list[str] = []
        lengths: list[int] = []
        counted_rows = 0
        members_of: list[Files] = []
        for spec_id, manifests in groups.items():
            self._check(io, manifests, is_data=True)
            members = self._files(io, manifests)
            chosen = pruning.files(spec_id, members)
            if not members.are_parquet:
                check_formats([unread(members.column("formats", chosen).to_pylist())])
            file_paths = members.column("paths", chosen)
            if len(paths) + len(file_paths) > most:
                return None
            paths += file_paths.to_pylist()
            lengths += members.column("lengths", chosen).to_pylist()
            counted_rows += members.rows(chosen)
            members_of.append(members)
        if any(_PATTERN.intersection(path) for path in paths):
            return None
        return FileList(
            paths,
            lengths,
            counted_rows,
            _of_all(members.without_nan for members in members_of),
            _of_all(members.without_zero for members in members_of),
        )

    @cachedmethod(
        lambda self: self._together,
        key=lambda _, io, manifests: (io.catalog, tuple(each.path for each in manifests)),
        lock=lambda self: self._lock,
    )
    def _files(self, io: OwnFiles, manifests: tuple[Manifest, ...]) -> Files:
        """Return the files of some manifests as one; recent selections are cached."""
        return Files(self._manifests.blocks(io, manifests))

    @cachedmethod(
        lambda self: self._facts,
        key=lambda _, io, cold: (
            io.catalog,
            cold.metadata_location,
            cold.snapshot_id,
            cold.schema.schema_id,
        ),
        lock=lambda self: self._lock,
    )
    def _of(self, io: OwnFiles, cold: ColdSlice) -> Facts:
        with decoding("metadata files"):
            return Facts.of(table_metadata(io, cold.metadata_location), cold)


class _Pruning:
    """The conditions of one statement, compared with manifests and with files."""

    def __init__(self, facts: Facts, cold: ColdSlice, rows: ScanFilter) -> None:
        self._specs = facts.specs
        self._columns = {column.name: column for column in cold.schema.columns}
        self._rows = rows

    def manifests(self, manifests: Sequence[Manifest]) -> dict[int, tuple[Manifest, ...]]:
        """Leave out manifests by the partition summaries of their list; return the others by spec id."""
        by_spec: dict[int, list[Manifest]] = {}
        for manifest in manifests:
            by_spec.setdefault(manifest.spec_id, []).append(manifest)
        left = {}
        for spec_id, group in by_spec.items():
            summary_of = partial(_summarised, group)
            mask = prune(self._rows, partial(self._by_partition, spec_id, summary_of))
            chosen = group if mask is None else compress(group, mask.to_pylist())
            left[spec_id] = tuple(chosen)
        return {spec_id: chosen for spec_id, chosen in left.items() if chosen}

    def files(self, spec_id: int, files: Files) -> pa.BooleanArray | None:
        """Return which files of one spec may have wanted rows; None: all."""
        return prune(self._rows, partial(self._by_file, spec_id, files))

    def _by_partition(
        self,
        spec_id: int,
        bounds_of: Callable[[int, pa.DataType], Bounds | None],
        condition: Condition,
    ) -> Iterator[tuple[Bounds, Condition]]:
        """Yield the bounds of partition fields, by their positions and types, and the conditions on these."""
        column = self._columns[condition.column]
        for term in self._specs.get(spec_id, ()):
            if term.source_id != column.field_id or term.kind is None:
                continue
            implied = on_partition(condition, term.transform, term.source, term.kind)
            bounds = None if implied is None else bounds_of(term.position, term.kind)
            if implied is not None and bounds is not None:
                yield partition_bounds(bounds, term.transform, term.kind), implied

    def _by_file(
        self, spec_id: int, files: Files, condition: Condition
    ) -> Iterator[tuple[Bounds, Condition]]:
        yield from self._by_partition(spec_id, files.partition, condition)
        column = self._columns[condition.column]
        bounds = files.bounds(column.field_id, bound_type(column.type))
        if bounds is not None:
            yield bounds, on_bounds(condition)


def _summarised(
    manifests: Sequence[Manifest], position: int, kind: pa.DataType
) -> Bounds | None:
    """Return the summary of one partition field in each of several manifests."""
    if any(position >= len(manifest.summaries) for manifest in manifests):
        return None
    summaries = [manifest.summaries[position] for manifest in manifests]
    lower = typed(pa.array([summary.lower_bound for summary in summaries], pa.binary()), kind)
    upper = typed(pa.array([summary.upper_bound for summary in summaries], pa.binary()), kind)
    if lower is None or upper is None:
        return None
    nulls = [None if summary.contains_null else 0 for summary in summaries]
    nans = [0 if summary.contains_nan is False else None for summary in summaries]
    files = [manifest.files for manifest in manifests]
    counts = (pa.array(counted, pa.int64()) for counted in (nulls, nans, files))
    return Bounds(lower, upper, *counts)


def _of_all(fields: Iterable[frozenset[int]]) -> frozenset[int]:
    """What all have; of no files nothing is known."""
    first, *others = [*fields] or [frozenset[int]()]
    return first.intersection(*others)
