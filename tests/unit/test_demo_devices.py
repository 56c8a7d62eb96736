"""The demo's keyed table: an answer that is not the newest row of each device is told."""

from __future__ import annotations

import pytest

from thermocline.demo.devices import DeviceChange, DeviceLedger, DeviceRows, Rows

CHANGES = (
    DeviceChange(0, 0, "a", ("online", 1)),
    DeviceChange(1, 0, "b", ("online", 2)),
    DeviceChange(0, 2, "a", ("idle", 3)),
    DeviceChange(1, 1, "b", None),
    DeviceChange(0, 3, "c", ("online", 4)),
)


def ledger() -> DeviceLedger:
    value = DeviceLedger()
    for change in CHANGES:
        value.add(change)
    return value


@pytest.mark.parametrize(
    ("ends", "rows", "off_by"),
    [
        ({0: 4, 1: 2}, {"a": ("idle", 3), "c": ("online", 4)}, 0),
        ({0: 2, 1: 1}, {"a": ("online", 1), "b": ("online", 2)}, 0),
        ({0: 4, 1: 2}, {"a": ("online", 1), "c": ("online", 4)}, 2),
        ({0: 4, 1: 2}, {"a": ("idle", 3), "b": ("online", 2), "c": ("online", 4)}, 1),
        ({0: 4, 1: 2}, {"a": ("idle", 3)}, 1),
    ],
    ids=["newest", "earlier cut", "old row", "deleted row", "missing row"],
)
def test_an_answer_is_the_newest_row_of_each_device_at_its_end(
    ends: dict[int, int], rows: Rows, off_by: int
) -> None:
    value = ledger()
    value.take(DeviceRows(rows, ends, 0.0))
    assert (value.checked, value.off_by) == (1, off_by)


def test_an_answer_waits_for_acknowledgements_and_not_for_ever() -> None:
    value = ledger()
    value.take(
        DeviceRows({"a": ("idle", 3), "b": ("idle", 5), "c": ("online", 4)}, {0: 4, 1: 3}, 0.0)
    )
    assert value.checked == 0
    value.add(DeviceChange(1, 2, "b", ("idle", 5)))
    value.settle(1.0)
    assert (value.checked, value.off_by) == (1, 0)
    value.take(DeviceRows({}, {0: 9}, 1.0))
    value.settle(5.9)
    assert value.checked == 1
    value.settle(6.1)
    assert (value.checked, value.off_by) == (2, 2)
