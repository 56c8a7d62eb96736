"""How a publish is written: the number of tasks, and so of files, and how rows get to them.

Rows are read where they are written (``none``) while that gives files of a good size. A shuffle by partition
value (``hash``) costs network and disk, and is worth it when each task would otherwise leave a small file in
every partition. Never ``range``, which reads the log twice to sample it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.row_order import RowOrder
from planner.triggers import ColdSurvey

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
