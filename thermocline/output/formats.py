"""Results as bytes: CSV, JSON, JSON lines, Arrow and Parquet, streamed.

A result may be larger than memory: a batch is written before the next one is asked for. Parquet gathers a row
group. What a format has no value for is written as text: nested values in CSV as JSON, binary as hexadecimal
there and as base64 in JSON.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa

from thermocline.output.values import is_far, plain_values

Batches = Iterable[pa.RecordBatch]

#: Rows of one Parquet row group, and bytes where rows are wide.
ROW_GROUP_ROWS = 131_072
ROW_GROUP_BYTES = 64 << 20

#: Exit code: the output's reader went away; a shell's own for a program that SIGPIPE ends.
NOBODY_READS = 141

_SUFFIXES = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".parquet": "parquet",
}


def format_of(path: str) -> str | None:
    """Name the format a file name asks for; None where it says nothing."""
    return _SUFFIXES.get(Path(path).suffix.lower())


@contextlib.contextmanager
def opened(path: str | None) -> Iterator[BinaryIO]:
    """Open a file to write, or standard output. A file appears under its name when it is whole, or not at all."""
    if path is None or path == "-":
        try:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            # The reader of our output has enough (`| head`). What is left to flush goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(NOBODY_READS) from None
        return
    target = Path(path)
    if target.exists() and not stat.S_ISREG(target.stat().st_mode):
        with target.open("wb") as device:  # /dev/null, a named pipe: cannot be replaced
            yield device
        return
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as sink:
            yield sink
        umask = os.umask(0)
        os.umask(umask)
        partial.chmod(0o666 & ~umask)
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def csv_rows(sink: BinaryIO) -> Callable[[pa.Schema, Batches], None]:
    """Return a function that writes more rows of the same schema each time; the header comes first, once.

    NULL is nothing at all, an empty text is ``""``.
    """
    from pyarrow import csv

    begun = False

    def write(schema: pa.Schema, batches: Batches) -> None:
        nonlocal begun
        # Of one type each: a time that Arrow writes as another one makes its batch's column a text.
        for flat, group in itertools.groupby(map(_flat, batches), attrgetter("schema")):
            _write(flat, group)
        if not begun:
            _write(pa.schema([(field.name, _csv_type(field.type)) for field in schema]), ())

    def _write(flat: pa.Schema, group: Batches) -> None:
        nonlocal begun
        options = csv.WriteOptions(include_header=not begun)
        begun = True
        with csv.CSVWriter(sink, flat, write_options=options) as writer:
            for batch in group:
                writer.write_batch(batch)

    return write


def write_json(sink: BinaryIO, schema: pa.Schema, batches: Batches) -> None:
    separator = b"["
    for line in json_rows(schema, batches):
        sink.write(separator + b"\n" + line)
        separator = b","
    sink.write(b"\n]\n" if separator == b"," else b"[]\n")


def write_jsonl(sink: BinaryIO, schema: pa.Schema, batches: Batches) -> None:
    for line in json_rows(schema, batches):
        sink.write(line + b"\n")


def write_arrow(sink: BinaryIO, schema: pa.Schema, batches: Batches) -> None:
    """Write an IPC file where the sink can seek, else an IPC stream."""
    new = pa.ipc.new_file if sink.seekable() else pa.ipc.new_stream
    with new(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def write_parquet(sink: BinaryIO, schema: pa.Schema, batches: Batches) -> None:
    from pyarrow import parquet

    with parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
        for group in _row_groups(schema, batches):
            writer.write_table(group)


WRITERS: dict[str, Callable[[BinaryIO, pa.Schema, Batches], None]] = {
    "csv": lambda sink, schema, batches: csv_rows(sink)(schema, batches),
    "json": write_json,
    "jsonl": write_jsonl,
    "arrow": write_arrow,
    "parquet": write_parquet,
}
#: Several results one after the other are still a file of this format.
CONCATENATED = frozenset({"jsonl"})


def json_rows(schema: pa.Schema, batches: Batches) -> Iterator[bytes]:
    names = unique_names(schema)
    encoder = msgspec.json.Encoder(enc_hook=str)
    for batch in batches:
        columns = [plain_values(column) for column in batch.columns]
        for values in zip(*columns, strict=True):
            yield encoder.encode(dict(zip(names, values, strict=True)))


def unique_names(schema: pa.Schema) -> list[str]:
    """Return the columns' names; the second ``a`` is ``a_2``: an object has each name once."""
    counts: Counter[str] = Counter()
    names = []
    for name in schema.names:
        counts[name] += 1
        names.append(name if counts[name] == 1 else f"{name}_{counts[name]}")
    return names


def _csv_type(kind: pa.DataType) -> pa.DataType:
    is_text = pa.types.is_nested(kind) or _is_binary(kind) or pa.types.is_interval(kind)
    return pa.string() if is_text else kind


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _flat(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch of columns that CSV has."""
    columns = [
        _csv_column(column, pa.string() if is_far(column) else _csv_type(column.type))
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _csv_column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    text: Callable[[Any], str] = str
    if _is_binary(column.type):
        text = bytes.hex
    elif pa.types.is_nested(column.type):
        encode = msgspec.json.Encoder(enc_hook=str).encode
        text = lambda value: encode(value).decode()  # noqa: E731
    values = plain_values(column)
    return pa.array([None if value is None else text(value) for value in values], kind)


def _row_groups(schema: pa.Schema, batches: Batches) -> Iterator[pa.Table]:
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        pending.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(pending, schema)
            pending, rows, size = [], 0, 0
    if pending:
        yield pa.Table.from_batches(pending, schema)
