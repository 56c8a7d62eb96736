"""Refuses snapshots with files that DuckDB's iceberg extension does not read, by name, before it opens them.

Writers may leave ORC, Avro or encrypted files, which the extension, 1.5.5, refuses in its own words; and what it cannot
decode of a manifest ends the process, unless a statement reads it. So a statement does, before the scan. A manifest never
changes: each is checked once.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import duckdb
from cachetools import LRUCache, cachedmethod
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import META_SCHEMA, AvroFileHeader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus

from connectors.iceberg.errors import UnreadableFiles, decoding
from connectors.iceberg.file_io import OwnFiles
from connectors.iceberg.scan.manifests import AvroReader, Manifests, live_files
from connectors.iceberg.scan.snapshot_facts import Facts
from connectors.store.locations import local_path
from planner.errors import BadStatement, InternalError, UnsupportedStatement

#: Manifests and manifest lists remembered: a word and a count or two each.
MAX_REMEMBERED = 200_000
_READERS = 8
PARQUET = "PARQUET"
#: Formats that the extension reads; deletion vectors are Puffin.
_READ = frozenset({PARQUET, "PUFFIN"})
#: Codecs of Avro files that the extension knows.
_CODECS = frozenset({"null", "deflate", "snappy"})
_CODEC = "avro.codec"
_ENCRYPTED = "encrypted"
_WRITE_ANEW = (
    "write its files anew (CALL system.rewrite_data_files, options => map('rewrite-all', 'true', "
    "'remove-dangling-deletes', 'true'))"
)
_DATA = ("data files", "rewrite_data_files")
_DELETES = ("delete files", "rewrite_position_delete_files")
_ENTRIES = (
    "status, upper(data_file.file_format) AS format, "
    "data_file.key_metadata IS NOT NULL AS is_encrypted"
)


@dataclass(frozen=True, slots=True)
class _Content:
    """One manifest or manifest list; ``unread`` counts its live files of each format that is not read."""

    codec: str
    unread: Mapping[str, int] = field(default_factory=dict)


class ExtensionCheck:
    """Thread-safe; ``close`` ends its threads and removes its scratch files."""

    def __init__(
        self, manifests: Manifests, try_manifests: Callable[[str, int], None] | None
    ) -> None:
        self._try_manifests = try_manifests
        self._manifests = manifests
        self._avro = AvroReader()
        self._lock = threading.Lock()
        self._contents: LRUCache[tuple[str, str], _Content] = LRUCache(MAX_REMEMBERED)
        #: Manifest lists that passed.
        self._checked: LRUCache[tuple[str, str], None] = LRUCache(MAX_REMEMBERED)
        #: Snapshots that the extension has read.
        self._tried: LRUCache[tuple[str, int], None] = LRUCache(MAX_REMEMBERED)
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="formats")

    @cachedmethod(
        lambda self: self._checked,
        key=lambda _, io, location: (io.catalog, location),
        lock=lambda self: self._lock,
    )
    def check(self, io: OwnFiles, location: str) -> None:
        """Check every manifest of the snapshot whose manifest list is at ``location``.

        Raises:
            UnreadableFiles: the extension does not read all of it.
            FileNotFoundError, DamagedFile: a manifest is missing or damaged.
        """
        listed = self._manifests.list(io, location)
        if listed.encrypted:
            raise UnreadableFiles(
                f"has {listed.encrypted} encrypted manifests, and Thermocline reads plain files; set encryption.key-id "
                f"away and write the table anew."
            )
        paths = [path for path, _ in listed.every]
        contents = dict(
            zip(paths, self._readers.map(partial(self._content, io), paths), strict=True)
        )
        codecs = {content.codec for content in contents.values()}
        codecs.add(self._content(io, location, entries=False).codec)
        if not codecs <= _CODECS:
            unknown = min(codecs - _CODECS)
            raise UnreadableFiles(
                f"has manifests of codec {unknown}, which can be read only where there are no delete files; set "
                f"write.manifest.compression-codec to gzip and apply the deletes (CALL system.rewrite_data_files, options "
                f"=> map('rewrite-all', 'true', 'remove-dangling-deletes', 'true'))."
            )
        data = {manifest.path for manifest in listed.data}
        for deletes in (False, True):
            counts = [
                each.unread for path, each in contents.items() if (path in data) != deletes
            ]
            check_formats(counts, deletes=deletes)

    @cachedmethod(
        lambda self: self._tried,
        key=lambda _, metadata_location, snapshot_id: (metadata_location, snapshot_id),
        lock=lambda self: self._lock,
    )
    def try_read(self, metadata_location: str, snapshot_id: int) -> None:
        """Have the extension read every manifest of a snapshot where an error harms nothing; once.

        Raises:
            UnreadableFiles: it cannot.
            FederationError: a file is gone, or the store does not answer.
        """
        if self._try_manifests is None:
            return
        try:
            self._try_manifests(metadata_location, snapshot_id)
        except (BadStatement, UnsupportedStatement, InternalError) as error:
            raise UnreadableFiles(
                f"has manifests that DuckDB's Iceberg extension cannot read, which it needs for the deletes or old files of "
                f"this table; {_WRITE_ANEW}."
            ) from error

    def close(self) -> None:
        self._readers.shutdown(cancel_futures=True)
        self._avro.close()

    @cachedmethod(
        lambda self: self._contents,
        key=lambda _, io, path, **_entries: (io.catalog, path),
        lock=lambda self: self._lock,
    )
    def _content(self, io: OwnFiles, path: str, *, entries: bool = True) -> _Content:
        with io.new_input(path).open() as stream:
            content = stream.read()
        with decoding("manifests"):
            reader = construct_reader(META_SCHEMA, {-1: AvroFileHeader})
            header = reader.read(new_decoder(content))
            codec = header.meta.get(_CODEC, "null")
        if not entries or codec not in _CODECS:
            return _Content(codec)
        try:
            file = local_path(path)
            if file is not None:
                table = self._avro.read(file, _ENTRIES, 1)
            else:
                with self._avro.scratch(content) as copy:
                    table = self._avro.read(copy, _ENTRIES, 1)
        except duckdb.Error:
            with decoding("manifests"):
                return _Content(codec, _by_pyiceberg(io, path))
        live = (
            _ENCRYPTED if entry["is_encrypted"] else entry["format"]
            for entry in table.to_pylist()
            if entry["status"] != ManifestEntryStatus.DELETED
        )
        return _Content(codec, unread(live))


def check_names_for_extension(facts: Facts) -> None:
    """Refuse, as UnreadableFiles, a table whose partition fields have names that the extension may not survive."""
    if facts.odd_partition_field is not None:
        raise UnreadableFiles(
            f"has a partition field, {facts.odd_partition_field}, whose name is not of ASCII letters, digits and "
            f"underscores alone; such a table can be read only where it has no delete files and every data file has its "
            f"columns' ids; {_WRITE_ANEW}."
        )


def check_formats(counts: Iterable[Mapping[str, int]], *, deletes: bool = False) -> None:
    """Refuse, as UnreadableFiles, files of unsupported formats, counted by format; ``deletes``: delete files."""
    total: Counter[str] = sum(map(Counter, counts), Counter())
    if not total:
        return
    what, procedure = _DELETES if deletes else _DATA
    listed = ", ".join(f"{number} {name}" for name, number in sorted(total.items()))
    key = f"write.{'delete.' if deletes else ''}format.default"
    cause = "encryption.key-id away" if _ENCRYPTED in total else f"{key} to parquet"
    raise UnreadableFiles(
        f"has {what} that are not read ({listed}), only Parquet is; set {cause} and rewrite them (CALL "
        f"system.{procedure}, options => map('rewrite-all', 'true'))."
    )


def unread(formats: Iterable[str]) -> Mapping[str, int]:
    return Counter(name for name in formats if name not in _READ)


def _by_pyiceberg(io: FileIO, path: str) -> Mapping[str, int]:
    return unread(
        _ENCRYPTED if file.key_metadata else file.file_format.value.upper()
        for file in live_files(io, path)
    )
