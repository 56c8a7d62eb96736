import time

import pytest

from connectors.spark.errors import pack, unpack
from connectors.spark.publish.parquet_files import ParquetFile
from connectors.spark.publish.splits import TaskReport, TaskReportsParam
from connectors.spark.publish.stage import new_run, started_s
from planner.errors import LogUnavailable, OffsetsExpired
from planner.offsets import OffsetRange
from planner.reading.shares import share_out
from planner.seam.watermark import Outcomes


def splits(*lengths: int) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange(p, 10, 10 + length) for p, length in enumerate(lengths))


@pytest.mark.parametrize(
    ("lengths", "count", "tasks"),
    [
        ((), 2, []),
        ((5,), 2, [[0]]),
        ((5, 5, 5, 5), 1, [[0, 1, 2, 3]]),
        ((5, 5, 5, 5), 2, [[0, 1], [2, 3]]),
        ((100, 100, 100), 3, [[0], [1], [2]]),
        ((60, 60, 60, 60, 60), 3, [[0, 1], [2], [3, 4]]),
        # A split is never cut.
        ((900, 1, 1), 10, [[0], [1, 2]]),
        ((1, 1, 900), 10, [[0, 1], [2]]),
    ],
)
def test_small_splits_share_a_task(
    lengths: tuple[int, ...], count: int, tasks: list[list[int]]
) -> None:
    shared = share_out(splits(*lengths), count)
    assert [[split.partition for split in task] for task in shared] == tasks
    assert [split for task in shared for split in task] == list(splits(*lengths))


def test_splits_of_one_partition_that_share_a_task_are_one_range() -> None:
    """A consumer takes one start per partition: librdkafka refuses two, and the round failed."""
    halves = tuple(OffsetRange(p, start, start + 5) for p in range(2) for start in (0, 5))
    assert share_out(halves, 2) == (
        (OffsetRange(0, 0, 10),),
        (OffsetRange(1, 0, 10),),
    )


def test_a_thousand_small_partitions_make_as_many_files_as_run_at_once() -> None:
    assert len(share_out(splits(*[3] * 1_000), 4)) == 4


def test_a_task_that_ran_twice_counts_once() -> None:
    """Its files, too: each attempt wrote its own, and the table gets those of one."""
    param = TaskReportsParam()
    first, second = (
        {("run", 0): TaskReport(Outcomes(rows=3), 3, 99, (_file(name),))}
        for name in ("first", "second")
    )
    value = param.addInPlace(param.addInPlace(param.zero({}), first), second)
    assert value == second


def _file(name: str) -> ParquetFile:
    return ParquetFile(name, 1, 3, (), split_offsets=(4,), nans=(), unbounded=())


def test_an_executors_error_survives_as_text() -> None:
    error = OffsetsExpired('flows/0: "gone"\nfor good', topic="flows", partition=0)
    text = f"Job aborted: PythonException: Traceback\n{pack(error)}\n\tat org.apache.spark"
    result = unpack(text)
    assert type(result) is OffsetsExpired
    assert (result.message, result.facts) == (error.message, error.facts)
    assert unpack("Job aborted: PythonException: KeyError: 'x'") is None


def test_only_planner_errors_come_out_of_a_text() -> None:
    text = str(pack(LogUnavailable("x"))).replace("LogUnavailable", "annotations")
    assert type(unpack(text)).__name__ == "InternalError"


def test_a_run_names_its_time() -> None:
    before = time.time()
    assert before - 0.01 <= started_s(new_run()) <= time.time() + 0.01
    assert len({new_run() for _ in range(1_000)}) == 1_000
