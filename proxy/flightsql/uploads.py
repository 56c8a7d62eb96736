"""Arrow data that clients upload, checked before anything looks at it.

Arrow's reader takes offsets, sizes, indices and run ends as they come: it looks whether each buffer lies inside its
message, not whether what one buffer says fits another. Reading such a value, slicing it or working out its size
reads memory that belongs to others, or ends the process. So nothing but ``num_rows`` and the sizes of whole buffers is
looked at before ``validate(full=True)`` has passed.

What the reader itself does with a message comes before all this, and only Arrow guards it: it verifies flatbuffers,
bounds their nesting, and validates dictionaries before it joins them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from planner.errors import BadParameter, FederationError
from proxy.flightsql.messages import Malformed
from proxy.session import time_zones

#: One row of parameters: more than a statement ever needs, less than would hurt.
MAX_PARAMETER_BYTES = 4 << 20
#: Names and metadata of all columns; pandas describes each of its columns in about 200 bytes.
MAX_SCHEMA_BYTES = 4 << 20
#: Fields of all levels: no statement has more expressions (``planner.statement.gate``), so no more parameters.
MAX_FIELDS = 20_000
#: Levels of lists, structs and maps below a column.
MAX_DEPTH = 16
#: Messages of one upload. A query takes one row; some clients send empty batches beside it.
MAX_BATCHES = 1_000

#: Extension types with a value of their own. Others would run code of the library that registered them.
_EXTENSIONS = frozenset({"arrow.uuid", "arrow.json", "arrow.bool8", "arrow.opaque"})
#: Intervals of months, and of days and milliseconds: pyarrow reads them and cannot say what they hold.
_WITHOUT_ARRAYS = frozenset({pa.lib.Type_INTERVAL_MONTHS, pa.lib.Type_INTERVAL_DAY_TIME})
#: Types that hold nothing but a value: of thousands of columns most are such, and are passed over quickly.
_PLAIN = frozenset(
    kind.id
    for kind in (
        pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
        pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.string_view(),
        pa.binary(), pa.large_binary(), pa.binary_view(), pa.date32(), pa.date64(),
    )
)  # fmt: skip
_FIXED_OFFSET = re.compile(r"[+-](?:0\d|1\d|2[0-3]):[0-5]\d")


def checked(reader: Any) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an upload, read one by one; each is valid in every value.

    ``reader`` gives a ``schema``, and chunks with ``data`` (a batch, or None for a message of metadata alone).

    Raises:
        Malformed: it is not an Arrow stream.
        BadParameter: it is, and what it holds is too much, of a type no parameter has, or not valid.
    """
    try:
        schema = _schema(reader)
        if schema is not None:
            check_schema(schema)
        for count, chunk in enumerate(reader):
            _check_count(count)
            if chunk.data is not None:
                _check_described(schema)
                check_batch(chunk.data)
                yield chunk.data
    except FederationError:
        raise
    except Exception as error:
        # A decoder raises many kinds of errors for malformed bytes.
        raise Malformed("The uploaded rows are not a valid Arrow stream.") from error


def _schema(reader: Any) -> pa.Schema | None:
    """The schema; None where there is none, as of clients that upload nothing: then no rows may follow."""
    try:
        return reader.schema
    except Exception:  # noqa: BLE001  what is wrong with it, reading on says
        return None


def _check_described(schema: pa.Schema | None) -> None:
    if schema is None:
        raise Malformed("The uploaded rows are not a valid Arrow stream.")


def _check_count(before: int) -> None:
    if before >= MAX_BATCHES:
        raise BadParameter(
            f"The upload has more than {MAX_BATCHES:,} messages; send one row of parameters."
        )


def check_schema(schema: pa.Schema) -> None:
    """Look at a schema before the first of its rows is decoded.

    Raises:
        BadParameter: it is too large, or has types that no parameter has.
    """
    count, depth = len(schema), 0
    level: Iterable[tuple[str, pa.DataType]] = ()
    if count <= MAX_FIELDS:
        level = zip(schema.names, schema.types, strict=True)
    while count <= MAX_FIELDS and depth <= MAX_DEPTH:
        inside = itertools.chain.from_iterable(
            _children(name, kind) for name, kind in level if kind.id not in _PLAIN
        )
        level = list(itertools.islice(inside, MAX_FIELDS + 1))
        if not level:
            break
        count, depth = count + len(level), depth + 1
    if count > MAX_FIELDS or depth > MAX_DEPTH:
        raise BadParameter(
            f"The parameters have more than {MAX_FIELDS:,} fields, or are nested deeper than {MAX_DEPTH} levels; "
            f"bind fewer, or flatter ones."
        )
    size = schema.serialize().size
    if size > MAX_SCHEMA_BYTES:
        raise BadParameter(
            f"The schema of the parameters has {size:,} bytes; {MAX_SCHEMA_BYTES:,} is the limit. Shorten names and "
            f"metadata."
        )


def check_batch(batch: pa.RecordBatch) -> None:
    """Look at what a batch holds.

    Raises:
        BadParameter: it is too large, or not valid.
    """
    # Of whole buffers: ``nbytes`` goes by their offsets.
    size = batch.get_total_buffer_size()
    if size > MAX_PARAMETER_BYTES:
        raise BadParameter(
            f"The parameters have {size:,} bytes; {MAX_PARAMETER_BYTES:,} is the limit."
        )
    try:
        batch.validate(full=True)
    except (pa.ArrowException, ValueError, LookupError) as error:
        # Arrow's own words may show bytes of the value.
        raise BadParameter(
            f"{_invalid(batch)} is not valid Arrow data: what it says of offsets, sizes, indices, nulls or text does "
            f"not fit what was sent. Build it with an Arrow library and send it again."
        ) from error


def _invalid(batch: pa.RecordBatch) -> str:
    for position, field in enumerate(batch.schema):
        try:
            batch.column(position).validate(full=True)
        except (pa.ArrowException, ValueError, LookupError):
            return f"Parameter {position + 1}, of type {_type_name(field.type)},"
    return "The row of parameters"


def _children(name: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """The names and types one level below a field.

    Raises:
        BadParameter: no parameter is of such a type.
    """
    name = name[:80]
    if kind.id in _WITHOUT_ARRAYS:
        raise BadParameter(
            f"Parameter {name!r} is of the type {kind}, of which this server has no values; send an interval of "
            f"months, days and nanoseconds."
        )
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name not in _EXTENSIONS:
            raise BadParameter(
                f"Parameter {name!r} is of the extension type {kind.extension_name[:80]!r}, which is not known "
                f"here; send its storage."
            )
        yield name, kind.storage_type
    elif pa.types.is_dictionary(kind):
        yield name, kind.value_type
    elif pa.types.is_timestamp(kind) and kind.tz is not None and not is_time_zone(kind.tz):
        raise BadParameter(
            f"Parameter {name!r} has the time zone {kind.tz[:80]!r}, which does not exist; use a name such as "
            f"Europe/Berlin, UTC, or an offset such as +02:00."
        )
    for position in range(kind.num_fields):
        child = kind.field(position)
        yield child.name, child.type


def is_time_zone(name: str) -> bool:
    """Whether a text names a time zone, or an offset. Never looked up as a file."""
    return name in time_zones() or _FIXED_OFFSET.fullmatch(name) is not None


def _type_name(kind: pa.DataType) -> str:
    text = str(kind)
    return text if len(text) <= 80 else text[:79] + "…"
