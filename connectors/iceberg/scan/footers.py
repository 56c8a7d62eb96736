"""Checks by their footers whether Parquet files can be read by field id as they are.

DuckDB 1.5.5's ``read_parquet(schema => ...)`` finds top-level columns by field id, but nested fields by name
(``renaming``), and no column without an id. A file's footer never changes, so each is read once per process.

The engine asks an object store for a file's length and footer before it reads columns, one after the other. So it opens
the file while its footer is read here; not where the store tells another length than the manifest, since the engine
would keep that (DuckDB 1.5.5).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from cachetools import FIFOCache

from connectors.iceberg.errors import decoding
from connectors.iceberg.file_io import OwnFiles
from connectors.iceberg.scan.metrics import NARROW, Block
from planner.schema import TableSchema, field_id_if_any

#: Footers remembered: a reference to one of few shapes each.
MAX_REMEMBERED = 200_000
_READERS = 8
#: What the engine opens ahead of a statement, or a new snapshot's files: of more, it may need few.
MAX_OPENED = 64
#: A store that is silent holds the engine for longer than a statement should wait for help, and others' files may be
#: opened in that time.
_OPENING_S, _OPENERS = 5.0, 2 * _READERS


@dataclass(frozen=True, slots=True)
class _Shape:
    """The columns of a file by field id; None where it has no ids, or types Arrow does not know."""

    columns: tuple[tuple[int, str], ...] | None
    types: tuple[pa.DataType, ...] = ()


#: Types of nested columns by field id, with the names that all files have for their members instead of the table's.
Written: TypeAlias = Mapping[int, pa.DataType]


class Fit(IntEnum):
    """How files give the columns of a schema: not at all, by field id, or by their names too, types unchanged."""

    NOT = 0
    BY_ID = 1
    BY_NAME = 2


class Footers:
    """Thread-safe; ``close`` ends its threads."""

    def __init__(self, open_file: Callable[[str], None] | None) -> None:
        self._open_file = open_file
        self._lock = threading.Lock()
        self._shapes: FIFOCache[tuple[str, str], _Shape] = FIFOCache(MAX_REMEMBERED)
        self._shapes_by_text: dict[str, _Shape] = {}
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="footers")
        self._openers = ThreadPoolExecutor(_OPENERS, thread_name_prefix="openers")
        self._slots = threading.BoundedSemaphore(_OPENERS)

    def fit(
        self,
        io: OwnFiles,
        files: Mapping[str, int],
        schema: TableSchema,
        required: frozenset[int],
        names: Collection[str] | None = None,
    ) -> tuple[Fit, Written]:
        """Return how every file gives the columns of ``schema``, and which under other names of their members.

        ``files`` are lengths in bytes by path. ``required`` are fields that a file must have itself: others may be their
        default or null. ``names`` are the columns that are read, by default all: only these need the names and types of
        today to be found by name.

        Raises FileNotFoundError, DamagedFile: a file is gone, or is damaged.
        """
        shapes = {id(shape): shape for shape in self._shapes_of(io, files)}.values()
        written = _written(shapes, schema)
        fit = min(
            (_fit(shape, schema, required, names, written) for shape in shapes),
            default=Fit.BY_NAME,
        )
        return fit, {field_id: _as_written(kind) for field_id, kind in written.items()}

    def read_ahead(self, io: OwnFiles, blocks: Iterable[Block]) -> None:
        """Read the footers of the first new files of some manifests. Raises FileNotFoundError, DamagedFile, OSError."""
        files = itertools.chain.from_iterable(
            zip(block.paths.to_pylist(), block.lengths.to_pylist(), strict=True)
            for block in blocks
        )
        with self._lock:
            new = (file for file in files if (io.catalog, file[0]) not in self._shapes)
            chosen = dict(itertools.islice(new, MAX_OPENED))
        self._shapes_of(io, chosen)

    def close(self) -> None:
        self._openers.shutdown(wait=False, cancel_futures=True)
        self._readers.shutdown(cancel_futures=True)

    def _shapes_of(self, io: OwnFiles, files: Mapping[str, int]) -> Sequence[_Shape]:
        with self._lock:
            cached = {path: self._shapes.get((io.catalog, path)) for path in files}
        missing = [path for path, shape in cached.items() if shape is None]
        is_opened = self._open_file is not None and len(missing) <= MAX_OPENED
        read = self._readers.map(
            partial(self._read, io, is_opened=is_opened),
            missing,
            [files[path] for path in missing],
        )
        cached.update(zip(missing, read, strict=True))
        return [shape for shape in cached.values() if shape is not None]

    def _open(self, path: str) -> None:
        try:
            if self._open_file is not None:
                self._open_file(path)
        finally:
            self._slots.release()

    def _read(self, io: OwnFiles, path: str, length: int, *, is_opened: bool) -> _Shape:
        opening: list[Future[None]] = []
        with decoding("data files"), io.new_input(path).open() as stream:
            # pyiceberg's type of a stream has no size; Arrow's, which all are, has.
            if is_opened and stream.size() == length and self._slots.acquire(blocking=False):  # type: ignore[attr-defined]
                opening.append(self._openers.submit(self._open, path))
            try:
                shape = _shape(pq.read_schema(stream))
            except pa.ArrowNotImplementedError:
                shape = _Shape(None)
        wait(opening, _OPENING_S)
        with self._lock:
            # Few files differ: files of equal shape share one object.
            shape = self._shapes_by_text.setdefault(repr(shape), shape)
            self._shapes[io.catalog, path] = shape
        return shape


def _shape(schema: pa.Schema) -> _Shape:
    ids = [field_id_if_any(field) for field in schema]
    if None in ids:
        return _Shape(None)
    return _Shape(
        tuple((field_id, field.name) for field_id, field in zip(ids, schema, strict=True)),  # type: ignore[misc]
        tuple(_plain(field.type) for field in schema),
    )


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type as the planner spells it: one Arrow type per Parquet type, members as ``id name``.

    The name of a nested field and its id both count, so that equal types are read alike.
    """
    return _named(kind, lambda field: f"{field_id_if_any(field)} {field.name}")


def _unnamed(kind: pa.DataType) -> pa.DataType:
    """Return a plain type with members by their ids alone."""
    return _named(kind, lambda field: field.name.partition(" ")[0])


def _as_written(kind: pa.DataType) -> pa.DataType:
    """Return a plain type with members by their names alone."""
    return _named(kind, lambda field: field.name.partition(" ")[2])


def _named(kind: pa.DataType, name: Callable[[pa.Field], str]) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([(name(field), _named(field.type, name)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_named(kind.value_type, name))
    if pa.types.is_map(kind):
        return pa.map_(_named(kind.key_type, name), _named(kind.item_type, name))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def _written(shapes: Iterable[_Shape], schema: TableSchema) -> Written:
    """Return the plain types of columns that all files have alike, and the table with other names of members alone."""
    kinds: dict[int, set[pa.DataType]] = {}
    for shape in shapes:
        for (field_id, _), kind in zip(shape.columns or (), shape.types, strict=True):
            if pa.types.is_nested(kind):
                kinds.setdefault(field_id, set()).add(kind)
    written: dict[int, pa.DataType] = {}
    for column in schema.columns:
        kind, *others = kinds.get(column.field_id, ()) or (None,)
        target = _plain(column.type)
        if kind not in (None, target) and not others and _unnamed(kind) == _unnamed(target):
            written[column.field_id] = kind
    return written


def _fit(
    shape: _Shape,
    schema: TableSchema,
    required: frozenset[int],
    names: Collection[str] | None,
    written: Written,
) -> Fit:
    if shape.columns is None:
        return Fit.NOT
    types: Mapping[int, pa.DataType] = {
        field_id: kind for (field_id, _), kind in zip(shape.columns, shape.types, strict=True)
    }
    if len(types) != len(shape.columns) or not required <= types.keys():
        return Fit.NOT
    columns = [(column.field_id, column.name, _plain(column.type)) for column in schema.columns]
    if not all(
        field_id not in types or field_id in written or _reads_as(types[field_id], kind)
        for field_id, _, kind in columns
    ):
        return Fit.NOT
    # DuckDB takes names for the same in any case.
    are_distinct = len({name.lower() for _, name in shape.columns}) == len(shape.columns)
    is_unchanged = all(
        (field_id, name) in shape.columns and types[field_id] == kind
        for field_id, name, kind in columns
        if names is None or name in names
    )
    return Fit.BY_NAME if are_distinct and is_unchanged else Fit.BY_ID


def _reads_as(kind: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_decimal(kind) and pa.types.is_decimal(target):
        return bool(kind.scale == target.scale and kind.precision <= target.precision)
    return bool(kind == target or NARROW.get(target) == kind)
