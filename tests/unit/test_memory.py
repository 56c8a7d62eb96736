"""A server has a limit of memory by default, which leaves some to others."""

from __future__ import annotations

import psutil
import pytest

from proxy.process.memory import memory_limits, total_memory

GB = 1 << 30


@pytest.mark.parametrize(
    ("engine", "process", "total", "limits"),
    [
        (None, None, 20 * GB, (10 * GB, 16 * GB)),
        (2 * GB, None, 20 * GB, (2 * GB, 16 * GB)),
        (20 * GB, None, 20 * GB, (20 * GB, 25 * GB)),
        (None, 10 * GB, 20 * GB, (6.25 * GB, 10 * GB)),
        (None, 19 * GB, 20 * GB, (10 * GB, 19 * GB)),
        (2 * GB, 4 * GB, 20 * GB, (2 * GB, 4 * GB)),
        (2 * GB, 4 * GB, None, (2 * GB, 4 * GB)),
        (None, 10 * GB, None, (6.25 * GB, 10 * GB)),
        (None, None, None, (None, None)),
    ],
)
def test_limits_are_those_given_or_shares(
    engine: int | None, process: int | None, total: int | None, limits: tuple[float | None, ...]
) -> None:
    assert memory_limits(engine, process, total) == limits


def test_there_is_so_much_as_the_machine_has_or_less() -> None:
    total = total_memory()
    assert total is not None
    assert 256 << 20 < total <= psutil.virtual_memory().total
