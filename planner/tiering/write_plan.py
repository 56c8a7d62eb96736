"""Decides how one publish is written: by whom, in how many tasks, in which order of rows, with which options. Pure.

Tasks write files from the Arrow they decoded where they can: that spares each row the way through the JVM, which was half
of tiering's CPU. Iceberg's Spark writer can do more: it sorts, shuffles, and obeys properties that Arrow has no option
for. A table is left to it unless all of its properties are known to give the same files.

Everyone who may alter a table sets its properties, and Iceberg's writer obeys them. Properties of the layout stay; those
that make files unreadable are overridden, or refused before anything is written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import pyarrow as pa

from planner.column_statistics import STATISTICS, fields_without_statistics
from planner.errors import UnsupportedFile
from planner.names import LEADING_COLUMNS, TableName
from planner.schema import TableSchema
from planner.seam.formats import bad_property
from planner.tiering.layout import Layout, PartitionTerm, SortTerm, own_order, plan_layout
from planner.tiering.triggers import WRITER, ColdSurvey

Transform = Literal["identity", "year", "month", "day", "hour"]
Codec = Literal["zstd", "snappy", "gzip", "lz4_raw", "none"]
_PARQUET = "write.parquet."
_CODEC = _PARQUET + "compression-codec"
_LEVEL = _PARQUET + "compression-level"
_GROUP_BYTES = _PARQUET + "row-group-size-bytes"
_PAGE_BYTES = _PARQUET + "page-size-bytes"
_PAGE_ROWS = _PARQUET + "page-row-limit"
_DICTIONARY_BYTES = _PARQUET + "dict-size-bytes"
#: How often Iceberg's writer looks at the size of a row group: no matter here, where it is known.
_CHECKS = (
    _PARQUET + "row-group-check-min-record-count",
    _PARQUET + "row-group-check-max-record-count",
)
_OBEYED = frozenset(
    {_CODEC, _LEVEL, _GROUP_BYTES, _PAGE_BYTES, _PAGE_ROWS, _DICTIONARY_BYTES, *_CHECKS}
)
#: What a batch's values of partitions are numbered with, together, in 64 bits.
MAX_PARTITION_FIELDS = 4
#: Smaller pages and dictionaries are for Iceberg's writer to take or to refuse.
_LEAST_BYTES = 4096
_MIB = 1024 * 1024
#: Levels that Java's codec and Arrow's both take, and what Java's is without one.
_LEVELS: dict[str, tuple[range, int]] = {"zstd": (range(1, 23), 3), "gzip": (range(1, 10), 6)}
LOCATION_PROVIDER = "write.location-provider.impl"
_HASHED = "write.object-storage.enabled"
#: Identity of other types would need Iceberg's way to write a value into a path, and equality of floats.
_IDENTITY = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_string, pa.types.is_date32)
_MICROSECONDS = (pa.timestamp("us"), pa.timestamp("us", tz="UTC"))
#: Parquet codecs that Spark writes and DuckDB reads. Not ``lz4``: that is Hadoop's own framing of it.
_CODECS = frozenset({"uncompressed", "snappy", "gzip", "zstd", "lz4_raw"})
_DEFAULT_CODEC = "zstd"
_ENCRYPTION_KEY = "encryption.key-id"
_METRICS = "write.metadata.metrics."
#: Properties that Iceberg's writer and commits read as numbers, and those that must be above 0.
_NUMBER = re.compile(
    r"write\.parquet\..*-(?:bytes|limit|count|level)|commit\..*-(?:retries|ms|bytes|merge)"
    r"|write\.metadata\.previous-versions-max"
)
_SIZE = re.compile(r"write\.parquet\..*-(?:bytes|limit|count)")
_WHOLE = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """A field of a partition spec that a task works out.

    ``index`` is that of its column among the table's. ``is_date``: its values are days, which Iceberg writes as dates.
    """

    name: str
    index: int
    transform: Transform
    is_date: bool


@dataclass(frozen=True, slots=True)
class ParquetOptions:
    """How files are written. ``level`` None: the codec has none. Sizes are in bytes.

    ``without_statistics``: ids of columns that get none.
    """

    codec: Codec
    level: int | None
    group_bytes: int
    page_bytes: int
    page_rows: int
    dictionary_bytes: int
    target_file_bytes: int
    partitions: tuple[PartitionColumn, ...]
    without_statistics: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class SparkWriter:
    """The table is left to Iceberg's Spark writer, because of ``reason``."""

    reason: str


@dataclass(frozen=True, slots=True)
class WritingFacts:
    """What is known of a table and of one publish of ``offsets`` offsets on ``parallelism`` cores.

    ``schema`` is the plan's; ``properties``, ``partitions`` and ``sort`` are the table's, ``sort_id`` 0 without a sort order.
    ``max_task_offsets`` bounds what a lost task has to read again. ``obstacle``: why tasks cannot write where the table's
    files go, if they cannot.
    """

    schema: TableSchema
    offsets: int
    bytes_per_offset: float
    survey: ColdSurvey
    properties: Mapping[str, str]
    partitions: Sequence[PartitionTerm]
    sort_id: int
    sort: Sequence[SortTerm]
    parallelism: int
    max_task_offsets: int
    obstacle: str | None


@dataclass(frozen=True, slots=True)
class WritePlan:
    """How one publish is written. ``spark_options`` are those of Iceberg's Spark writer, where it is the writer."""

    layout: Layout
    writer: ParquetOptions | SparkWriter
    spark_options: Mapping[str, str]


def plan_write(facts: WritingFacts) -> WritePlan:
    """Decide. Numbers among the properties have been checked (``check_properties``)."""
    layout = plan_layout(
        facts.offsets,
        facts.survey,
        bytes_per_offset=facts.bytes_per_offset,
        parallelism=facts.parallelism,
        max_task_offsets=facts.max_task_offsets,
        order=own_order(facts.schema, facts.partitions, facts.sort),
    )
    codec = facts.properties.get(_CODEC, _DEFAULT_CODEC).lower()
    if codec not in _CODECS:
        codec = _DEFAULT_CODEC
    return WritePlan(
        layout, _writer(facts, layout, codec), _spark_options(layout, facts.sort_id, codec)
    )


def _spark_options(layout: Layout, sort_id: int, codec: str) -> dict[str, str]:
    options = {
        "write-format": "parquet",
        "compression-codec": codec,
        "distribution-mode": layout.distribution,
        "fanout-enabled": str(layout.fanout).lower(),
    }
    if layout.order is not None:
        options["use-table-distribution-and-ordering"] = "false"
        options["output-sort-order-id"] = str(sort_id)
    return options


def _writer(facts: WritingFacts, layout: Layout, codec: str) -> ParquetOptions | SparkWriter:
    reason = _not_ours(facts, layout, codec)
    if reason is not None:
        return SparkWriter(reason)
    partitions: list[PartitionColumn] = []
    for term in facts.partitions:
        column = _partition_column(facts.schema, term)
        if column is None:
            return SparkWriter(f"partitions by {term.transform} of {term.name}")
        partitions.append(column)
    return _parquet_options(facts, tuple(partitions), codec)


def _not_ours(facts: WritingFacts, layout: Layout, codec: str) -> str | None:
    properties = facts.properties
    if facts.survey.options.writer == "spark":
        return f"property {WRITER}"
    if facts.sort_id != 0:
        return "a sort order"
    if layout.distribution != "none":
        return "rows are shuffled by partition"
    if facts.partitions and not layout.fanout:
        return "partitions without a count"
    if len(facts.partitions) > MAX_PARTITION_FIELDS:
        return f"more than {MAX_PARTITION_FIELDS} partition fields"
    if facts.obstacle is not None:
        return facts.obstacle
    if LOCATION_PROVIDER in properties or properties.get(_HASHED, "false").lower() != "false":
        return "paths of a location provider"
    for key, text in properties.items():
        is_obeyed = key in _OBEYED or key.startswith(STATISTICS)
        if key.startswith(_PARQUET) and not is_obeyed:
            return f"property {key}"
        if key in (_PAGE_BYTES, _DICTIONARY_BYTES) and int(text) < _LEAST_BYTES:
            return f"property {key}"
    level = properties.get(_LEVEL)
    if level is not None and codec in _LEVELS and int(level) not in _LEVELS[codec][0]:
        return f"property {_LEVEL}"
    return None


def _partition_column(schema: TableSchema, term: PartitionTerm) -> PartitionColumn | None:
    ids = [column.field_id for column in schema.columns]
    if term.source_id not in ids:
        return None  # a field of a struct
    index = ids.index(term.source_id)
    kind = schema.columns[index].type
    match term.transform:
        case "identity":
            fits = any(accepts(kind) for accepts in _IDENTITY)
        case "year" | "month" | "day":
            fits = kind in _MICROSECONDS or pa.types.is_date32(kind)
        case "hour":
            fits = kind in _MICROSECONDS
        case _:
            return None
    if not fits:
        return None
    is_date = term.transform == "day" or (
        term.transform == "identity" and pa.types.is_date32(kind)
    )
    return PartitionColumn(term.name, index, term.transform, is_date)


def _parquet_options(
    facts: WritingFacts, partitions: tuple[PartitionColumn, ...], name: str
) -> ParquetOptions:
    properties = facts.properties
    # Iceberg's defaults, "Write properties".
    return ParquetOptions(
        codec=name if name in get_args(Codec) else "none",  # type: ignore[arg-type]
        level=int(properties.get(_LEVEL, _LEVELS[name][1])) if name in _LEVELS else None,
        group_bytes=int(properties.get(_GROUP_BYTES, 128 * _MIB)),
        page_bytes=int(properties.get(_PAGE_BYTES, _MIB)),
        page_rows=int(properties.get(_PAGE_ROWS, 20_000)),
        dictionary_bytes=int(properties.get(_DICTIONARY_BYTES, 2 * _MIB)),
        target_file_bytes=facts.survey.options.target_file_bytes,
        partitions=partitions,
        without_statistics=fields_without_statistics(facts.schema.arrow, properties),
    )


def check_properties(table: TableName, properties: Mapping[str, str]) -> None:
    """Refuse properties that no writer of ours obeys, or that Iceberg's would fail on.

    Raises:
        UnsupportedFile: the table asks for encrypted files.
        BadBinding: a property that the writer reads as a number is not one.
    """
    if properties.get(_ENCRYPTION_KEY):
        raise UnsupportedFile(
            f"{table}: property {_ENCRYPTION_KEY} asks for encrypted files, which Thermocline neither writes nor reads; "
            f"unset it, and the table is tiered again.",
            table=str(table),
            property=_ENCRYPTION_KEY,
        )
    for key, text in properties.items():
        if _NUMBER.fullmatch(key) and not _is_number(key, text):
            above = " above 0" if _SIZE.fullmatch(key) else ""
            what = f"property {key} is {text!r}; it must be a whole number{above}."
            raise bad_property(table, key, what)


def leading_metrics() -> dict[str, str]:
    """Return the properties that make Iceberg write whole bounds of the leading columns, and of no other.

    The resolver, pruning and ``verify`` use these bounds; without them, each has to read the columns.
    """
    columns = {f"{_METRICS}column.{name}": "full" for name in LEADING_COLUMNS}
    return {f"{_METRICS}default": "none", **columns}


def _is_number(key: str, text: str) -> bool:
    return bool(_WHOLE.fullmatch(text)) and (int(text) > 0 or not _SIZE.fullmatch(key))
