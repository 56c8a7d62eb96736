"""Lists the manifests of pinned snapshots, checks that they are whole, and reads the files they list.

DuckDB's iceberg extension 1.5.5 does not survive every manifest that it cannot read. So each must exist with the
length that its manifest list gives (Iceberg spec, "Manifest Lists", field 501). The supervisor starts a process again that met
one which changed after this check.

Reads Avro files as Arrow tables, by DuckDB's avro extension: 100,000 manifest entries in 1.6 s on two cores, where
pyiceberg takes 5 (docs/decisions/0012-our-own-list-of-cold-files.md).

The extension, 1.5.5, takes a read error for the end of the file: a truncated file gives fewer rows and no error. So
the caller must know how many rows there are.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from cachetools import LRUCache, TTLCache, cachedmethod
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestFile,
    PartitionFieldSummary,
    read_manifest_list,
)

from connectors import duckdb_extensions
from connectors.iceberg.errors import DamagedFile, decoding
from connectors.iceberg.file_io import OwnFiles
from connectors.iceberg.scan.metrics import (
    CONTENT,
    FORMAT,
    LENGTH,
    LOWER,
    NANS,
    NULLS,
    PATH,
    ROWS,
    UPPER,
    Block,
)
from connectors.store.locations import local_path

#: Manifest lists remembered.
MAX_REMEMBERED = 1_000
#: Local files are checked each time; a check in an object store costs a request per manifest.
REMOTE_CHECK_S = 5.0
#: Manifests read and decoded at a time: more than cores, since object stores answer slowly.
_READERS = min(8, 2 * (os.cpu_count() or 1))

_DELETED = 2
#: For a list of format v1 that does not say how many files there are.
_UNKNOWN = -1
_FILE = "data_file"
_COLUMNS = ", ".join(
    (
        "status",
        f"{_FILE}.file_path AS {PATH}",
        f"{_FILE}.file_format AS {FORMAT}",
        f"{_FILE}.record_count AS {ROWS}",
        f"{_FILE}.file_size_in_bytes AS {LENGTH}",
        f"{_FILE}.content AS {CONTENT}",
        *(
            f"map_{half}({_FILE}.{name}) AS {column}_{suffix}"
            for column, name in (
                (NULLS, "null_value_counts"),
                (NANS, "nan_value_counts"),
                (LOWER, "lower_bounds"),
                (UPPER, "upper_bounds"),
            )
            for half, suffix in (("keys", "ids"), ("values", "values"))
        ),
        f'{_FILE}."partition" AS partition_values',
    )
)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One manifest of data files as its list describes it. ``entries`` counts those of removed files too.

    ``summaries`` are those of the partition fields, bounds as bytes.
    """

    path: str
    length: int
    spec_id: int
    files: int
    entries: int
    summaries: tuple[PartitionFieldSummary, ...]

    def lower(self, position: int) -> bytes | None:
        """Return the lower bound of a partition field, if the list tells it."""
        return self.summaries[position].lower_bound if position < len(self.summaries) else None


@dataclass(frozen=True, slots=True)
class ManifestList:
    """One snapshot's manifests: ``every`` has path and length of all, ``data`` and ``deletes`` those of each kind.

    ``is_enough``: the snapshot's rows are those of these data files. Not so if other files delete some of them, if they
    are encrypted, or if the list (of format v1) does not say how many there are. ``encrypted`` counts encrypted
    manifests. ``rows`` are those of the data files; None where the list (of format v1) does not say.
    """

    every: tuple[tuple[str, int], ...]
    data: tuple[Manifest, ...]
    is_enough: bool
    deletes: tuple[Manifest, ...] = ()
    encrypted: int = 0
    rows: int | None = None


class Manifests:
    """The manifests of pinned snapshots. Thread-safe; ``close`` ends its threads."""

    def __init__(self, *, max_memory_bytes: int) -> None:
        """``max_memory_bytes`` bounds the decoded manifests that are kept."""
        self._lock = threading.Lock()
        #: By catalog, path and length: a manifest never changes.
        self._blocks: LRUCache[tuple[str, str, int], Block] = LRUCache(
            max_memory_bytes, getsizeof=lambda block: block.size_bytes
        )
        self._lists: LRUCache[tuple[str, str], ManifestList] = LRUCache(MAX_REMEMBERED)
        #: Lists of object stores whose manifests were looked at.
        self._checked: TTLCache[tuple[str, str], None, float] = TTLCache(
            MAX_REMEMBERED, REMOTE_CHECK_S
        )
        self._avro = AvroReader()
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="manifests")

    @cachedmethod(
        lambda self: self._lists,
        key=lambda _, io, location: (io.catalog, location),
        lock=lambda self: self._lock,
    )
    def list(self, io: OwnFiles, location: str) -> ManifestList:
        with decoding("manifest lists"):
            return _listed(read_manifest_list(io.new_input(location)))

    def check(self, io: OwnFiles, location: str) -> None:
        """Check that every manifest of a snapshot is there and whole. Raises FileNotFoundError, DamagedFile."""
        is_remote = "://" in location and not location.startswith("file://")
        listed = self.list(io, location)
        with self._lock:
            if is_remote and (io.catalog, location) in self._checked:
                return
        for path, length in listed.every:
            if len(io.new_input(path)) != length:
                raise DamagedFile("manifests")
        with self._lock:
            self._checked[io.catalog, location] = None

    def blocks(self, io: OwnFiles, manifests: Sequence[Manifest]) -> Sequence[Block]:
        """Return the files of each manifest, in the order given; read those that are not cached.

        Raises FileNotFoundError, DamagedFile: a manifest is gone, or damaged.
        """
        with self._lock:
            blocks = [
                self._blocks.get((io.catalog, manifest.path, manifest.length))
                for manifest in manifests
            ]
        missing = [
            manifest for manifest, block in zip(manifests, blocks, strict=True) if block is None
        ]
        decoded = self._readers.map(partial(self._decoded, io), missing)
        return [next(decoded) if block is None else block for block in blocks]

    def close(self) -> None:
        self._readers.shutdown(cancel_futures=True)
        self._avro.close()

    def _decoded(self, io: OwnFiles, manifest: Manifest) -> Block:
        try:
            with self._on_this_machine(io, manifest) as file:
                if manifest.files == _UNKNOWN:
                    raise duckdb.InvalidInputException
                block = self._by_duckdb(file, manifest)
        except duckdb.Error:
            with decoding("manifests"):
                block = _by_pyiceberg(io, manifest)
        if manifest.files not in (len(block), _UNKNOWN):
            raise DamagedFile("manifests")
        # One that is larger than the bound is not kept.
        with self._lock, contextlib.suppress(ValueError):
            self._blocks[io.catalog, manifest.path, manifest.length] = block
        return block

    @contextlib.contextmanager
    def _on_this_machine(self, io: FileIO, manifest: Manifest) -> Iterator[Path]:
        """Write a manifest to a local file, checked to be whole."""
        source = io.new_input(manifest.path)
        file = local_path(manifest.path)
        if file is not None:
            if len(source) != manifest.length:
                raise DamagedFile("manifests")
            yield file
            return
        with source.open() as stream:
            content = stream.read()
        if len(content) != manifest.length:
            raise DamagedFile("manifests")
        with self._avro.scratch(content) as copy:
            yield copy

    def _by_duckdb(self, file: Path, manifest: Manifest) -> Block:
        table = self._avro.read(file, _COLUMNS, manifest.entries)
        if table.num_rows != manifest.entries:
            raise DamagedFile("manifests")
        status = table.column("status")
        values = table.column("partition_values").combine_chunks()
        table = table.drop_columns(["status", "partition_values"])
        if pa.types.is_struct(values.type):
            for position, column in enumerate(values.flatten()):
                table = table.append_column(f"p{position}", column)
        deleted = pc.equal(status, _DELETED)
        if pc.any(deleted).as_py():
            table = table.filter(pc.invert(deleted))
        return Block(table)


def _listed(manifests: Iterable[ManifestFile]) -> ManifestList:
    every: list[tuple[str, int]] = []
    data: list[Manifest] = []
    deletes: list[Manifest] = []
    is_enough, encrypted = True, 0
    rows: int | None = 0
    for manifest in manifests:
        every.append((manifest.manifest_path, manifest.manifest_length))
        counts = (
            manifest.added_files_count,
            manifest.existing_files_count,
            manifest.deleted_files_count,
        )
        added, existing, deleted = (count or 0 for count in counts)
        is_countable = None not in counts and not manifest.key_metadata
        encrypted += bool(manifest.key_metadata)
        if is_countable and not added + existing:
            continue
        if manifest.content != ManifestContent.DATA or not is_countable:
            is_enough = False
        added_rows, existing_rows = manifest.added_rows_count, manifest.existing_rows_count
        if rows is None or added_rows is None or existing_rows is None:
            rows = None
        elif manifest.content == ManifestContent.DATA:
            rows += added_rows + existing_rows
        (data if manifest.content == ManifestContent.DATA else deletes).append(
            Manifest(
                path=manifest.manifest_path,
                length=manifest.manifest_length,
                spec_id=manifest.partition_spec_id,
                files=added + existing if None not in counts else _UNKNOWN,
                entries=added + existing + deleted,
                summaries=tuple(manifest.partitions or ()),
            )
        )
    return ManifestList(tuple(every), tuple(data), is_enough, tuple(deletes), encrypted, rows)


def live_files(io: FileIO, path: str) -> Sequence[DataFile]:
    """Read the live files of one manifest as pyiceberg does."""
    described = ManifestFile.from_args(
        manifest_path=path,
        manifest_length=0,
        partition_spec_id=0,
        content=ManifestContent.DATA,
        sequence_number=0,
        min_sequence_number=0,
        added_snapshot_id=0,
    )
    return [entry.data_file for entry in described.fetch_manifest_entry(io)]


def _by_pyiceberg(io: FileIO, manifest: Manifest) -> Block:
    """Decode a manifest that the extension does not read: another codec, or statistics that are missing.

    Partition values of floating fields are left out: pyiceberg 0.12.0 rounds a double to a float (iceberg-python 3808).
    """
    files = live_files(io, manifest.path)
    columns: dict[str, pa.Array] = {
        PATH: pa.array([file.file_path for file in files], pa.string()),
        FORMAT: pa.array([file.file_format.value for file in files], pa.string()),
        ROWS: pa.array([file.record_count for file in files], pa.int64()),
        LENGTH: pa.array([file.file_size_in_bytes for file in files], pa.int64()),
        CONTENT: pa.array([int(file.content or 0) for file in files], pa.int32()),
    }
    for name, kind, maps in (
        (NULLS, pa.int64(), [file.null_value_counts for file in files]),
        (NANS, pa.int64(), [file.nan_value_counts for file in files]),
        (LOWER, pa.binary(), [file.lower_bounds for file in files]),
        (UPPER, pa.binary(), [file.upper_bounds for file in files]),
    ):
        keys = [list(ids or ()) for ids in maps]
        values = [list((ids or {}).values()) for ids in maps]
        columns[f"{name}_ids"] = pa.array(keys, pa.list_(pa.int32()))
        columns[f"{name}_values"] = pa.array(values, pa.list_(kind))
    for position in range(len(files[0].partition) if files else 0):
        values = pa.array([file.partition[position] for file in files])
        if not pa.types.is_floating(values.type):
            columns[f"p{position}"] = values
    return Block(pa.table(columns))


#: DuckDB reserves room for a whole batch of rows, a million by default, and the table keeps it: 112 MB for the columns
#: of a manifest of one file (DuckDB 1.5.5). Longer files give several batches.
_MAX_RESERVED_ROWS = 100_000


class AvroReader:
    """Thread-safe; ``close`` removes its scratch files."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._numbers = itertools.count()

    def read(self, file: Path, columns: str, rows: int) -> pa.Table:
        """Return ``columns``, SQL expressions, over the rows of an Avro file, of which ``rows`` are expected.

        Raises duckdb.Error: it is not Avro, or has no such columns.
        """
        with contextlib.closing(self._opened()[0]) as cursor:
            return cursor.execute(
                f"SELECT {columns} FROM read_avro(?)",  # noqa: S608 - expressions of our own
                [str(file)],
            ).to_arrow_table(max(1, min(rows, _MAX_RESERVED_ROWS)))

    @contextlib.contextmanager
    def scratch(self, content: bytes) -> Iterator[Path]:
        file = self._opened()[1] / f"{next(self._numbers)}.avro"
        try:
            file.write_bytes(content)
            yield file
        finally:
            file.unlink(missing_ok=True)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            if self._scratch is not None:
                self._scratch.cleanup()
            self._connection = self._scratch = None

    def _opened(self) -> tuple[duckdb.DuckDBPyConnection, Path]:
        with self._lock:
            if self._connection is None or self._scratch is None:
                # One thread: callers bring their own, and a manifest is one task.
                connection = duckdb.connect(
                    ":memory:",
                    config={
                        "threads": "1",
                        "autoinstall_known_extensions": "false",
                        "autoload_known_extensions": "false",
                    },
                )
                duckdb_extensions.load(connection, duckdb_extensions.AVRO)
                connection.execute("SET GLOBAL TimeZone = 'UTC'")
                self._connection = connection
                self._scratch = tempfile.TemporaryDirectory(prefix="thermocline-avro-")
            return self._connection.cursor(), Path(self._scratch.name)
