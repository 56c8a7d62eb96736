"""How a publish is written: the number of tasks, and so of files, and how rows get to them.

Rows are read where they are written (``none``) while that gives files of a good size. A shuffle by partition
value (``hash``) costs network and disk, and is worth it when each task would otherwise leave a small file in
every partition. Never ``range``, which reads the log twice to sample it.

By what rows are brought together in partitions, where Spark's own order does not do that. Pure.

Iceberg's writer takes a partition's rows one after the other, and refuses a partition that comes back. It has Spark sort
them, by the values that Spark has: there a UUID is a text, which falls into another bucket, and -0.0 is equal to 0.0,
which are two partitions (Iceberg spec, "Partition Transforms": identity changes no value).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa

from planner.schema import TableSchema, field_id_if_any
from planner.tiering.triggers import ColdSurvey

#: A file of a quarter of the target is good enough to let another core work.
GOOD_SHARE = 0.25

#: Parquet writers a task keeps open at once before rows are sorted by partition instead: each holds a row group.
MAX_OPEN_FILES = 16


@dataclass(frozen=True, slots=True)
class Layout:
    """``fanout``: a task keeps a file open per partition value; without it, its rows are sorted first.

    ``order``: what they are shuffled and sorted by; None: what Iceberg asks of Spark.
    """

    tasks: int
    distribution: Literal["none", "hash"]
    fanout: bool
    order: RowOrder | None = None


def plan_layout(
    offsets: int,
    survey: ColdSurvey,
    *,
    bytes_per_offset: float,
    parallelism: int,
    max_task_offsets: int,
    order: RowOrder | None = None,
) -> Layout:
    """Choose the layout of ``offsets`` offsets on ``parallelism`` cores.

    ``max_task_offsets`` bounds what a lost task has to read again. The number of partitions is that of the last
    publish. Without one, rows are sorted by partition: a backfill may have thousands. ``order``: as ``own_order``.
    """
    values = survey.partition_values or 1
    good_bytes = GOOD_SHARE * survey.options.target_file_bytes
    total_bytes = offsets * survey.bytes_per_row(bytes_per_offset)
    by_size = int(total_bytes / (good_bytes * values))
    bounded = -(-offsets // max_task_offsets)
    distribution = survey.options.distribution
    few = values <= MAX_OPEN_FILES
    fanout = few and survey.partition_values is not None
    shuffle = survey.partitioned and (
        distribution == "hash" or (distribution == "auto" and not few)
    )
    if order is not None and fanout and not shuffle and not order.sort:
        order = None  # open files take rows as they come
    fanout = fanout and order is None
    if shuffle:
        # Reading is apart from writing here: all cores read.
        return Layout(max(parallelism, bounded), "hash", fanout, order)
    return Layout(max(1, bounded, min(parallelism, by_size)), "none", fanout, order)


_TRANSFORM = re.compile(r"(identity|year|month|day|hour|bucket|truncate)(?:\[(\d+)\])?")


@dataclass(frozen=True, slots=True)
class PartitionTerm:
    """One field of a partition spec, as metadata writes it: ``transform`` may be any."""

    name: str
    source_id: int
    transform: str


@dataclass(frozen=True, slots=True)
class SortTerm:
    """One field of a sort order, likewise."""

    source_id: int
    transform: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class RowKey:
    """What rows are sorted by: a transform, with its number if it has one, of the value of type ``kind`` at ``path``."""

    path: tuple[str, ...]
    kind: pa.DataType
    transform: str
    number: int | None = None
    descending: bool = False
    nulls_first: bool = True

    @property
    def is_uuid_bucket(self) -> bool:
        return self.transform == "bucket" and self.kind == pa.uuid()

    @property
    def is_plain_float(self) -> bool:
        return self.transform == "identity" and pa.types.is_floating(self.kind)


@dataclass(frozen=True, slots=True)
class RowOrder:
    """``partition`` tells partitions apart; within them rows have the table's own order, ``sort``."""

    partition: tuple[RowKey, ...]
    sort: tuple[RowKey, ...]


def own_order(
    schema: TableSchema, partitions: Iterable[PartitionTerm], sort: Sequence[SortTerm]
) -> RowOrder | None:
    """Return what rows are to be sorted by; None: what Iceberg asks of Spark is enough.

    So it is where a term's transform is unknown: Iceberg refuses to write such a table.
    """
    keys = [_key(schema, term) for term in partitions if term.transform != "void"]
    within = [_key(schema, term) for term in sort]
    partition = tuple(key for key in keys if key is not None)
    rest = tuple(key for key in within if key is not None)
    if len(partition) + len(rest) < len(keys) + len(within):
        return None
    misread = [key for key in partition if key.is_uuid_bucket or key.is_plain_float]
    misread += [key for key in rest if key.is_uuid_bucket]
    return RowOrder(partition, rest) if misread else None


def _key(schema: TableSchema, term: PartitionTerm | SortTerm) -> RowKey | None:
    match = _TRANSFORM.fullmatch(term.transform)
    path = _path_to(schema.arrow, term.source_id)
    if match is None or path is None:
        return None
    key = RowKey(*path, match[1], None if match[2] is None else int(match[2]))
    if isinstance(term, PartitionTerm):
        return key
    return replace(key, descending=term.descending, nulls_first=term.nulls_first)


def _path_to(
    fields: Iterable[pa.Field], source_id: int
) -> tuple[tuple[str, ...], pa.DataType] | None:
    """Return the names down to a column or a field of a struct, and its type."""
    for field in fields:
        if field_id_if_any(field) == source_id:
            return (field.name,), field.type
        if pa.types.is_struct(field.type):
            inner = _path_to(field.type, source_id)
            if inner is not None:
                return (field.name, *inner[0]), inner[1]
    return None
