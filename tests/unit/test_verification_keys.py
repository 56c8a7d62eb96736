"""What is wrong with the row of one key, by its newest changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.offsets import OffsetRange
from planner.verification.findings import Fault, Kind
from planner.verification.keys import KeyChange, KeyState, Unsure, judge


def row(offset: int, partition: int = 0) -> OffsetRange:
    return OffsetRange(partition, offset, offset + 1)


def upsert(offset: int, partition: int = 0) -> KeyChange:
    return KeyChange(partition, 2 * offset)


def delete(offset: int, partition: int = 0) -> KeyChange:
    return KeyChange(partition, 2 * offset + 1)


#: Cold has the row of offset 5, and the log nothing of its key.
UNKNOWN = KeyState(1, row(5), is_retained=True, own=None, any=None, has_delete=False)
#: The log has a change of it, and cold no row.
ROWLESS = KeyState(0, None, is_retained=False, own=None, any=upsert(7), has_delete=False)


def of_own(change: KeyChange) -> KeyState:
    return replace(UNKNOWN, own=change, any=change, has_delete=change.is_delete)


@pytest.mark.parametrize(
    ("key", "kind", "place", "message"),
    [
        (
            of_own(upsert(7)),
            Kind.STALE,
            row(5),
            "partition 0, offset 5: cold has a row of a key whose newest change below the watermark is at offset 7",
        ),
        (
            of_own(delete(7)),
            Kind.UNDELETED,
            row(5),
            "partition 0, offset 5: cold has a row of a key that was deleted at offset 7",
        ),
        (
            of_own(delete(5)),
            Kind.UNDELETED,
            row(5),
            "partition 0, offset 5: cold has a row of a key that was deleted at offset 5",
        ),
        (
            ROWLESS,
            Kind.MISSING,
            row(7),
            "partition 0, offset 7: the log has the newest change of a key there, and cold has no row of it",
        ),
        (
            replace(ROWLESS, rows=1),
            Kind.MISSING,
            row(7),
            "partition 0, offset 7: the log has the newest change of a key there, and cold has no row of it",
        ),
        (
            replace(ROWLESS, rows=1, any=delete(7), has_delete=True),
            Kind.UNDELETED,
            row(7),
            "partition 0, offset 7: cold has a row of a key that was deleted there",
        ),
        (
            UNKNOWN,
            Kind.SURPLUS,
            row(5),
            "partition 0, offset 5: cold has a row of a key that has no change there in the log",
        ),
        (
            of_own(upsert(3)),
            Kind.SURPLUS,
            row(5),
            "partition 0, offset 5: cold has a row of a key that has no change there in the log",
        ),
        (
            replace(of_own(upsert(5)), rows=3),
            Kind.DUPLICATE_KEY,
            row(5),
            "partition 0, offset 5: cold has 3 rows of one key",
        ),
        (
            replace(UNKNOWN, rows=2, row=None),
            Kind.DUPLICATE_KEY,
            None,
            "rows without an offset: cold has 2 rows of one key",
        ),
    ],
)
def test_a_fault_says_where_and_what(
    key: KeyState, kind: Kind, place: OffsetRange | None, message: str
) -> None:
    fault = judge(key, is_compacted=False)
    assert fault == Fault(kind, message, place, max(1, key.rows))


@pytest.mark.parametrize(
    "key",
    [
        of_own(upsert(5)),
        # The log does not reach back to it, or the watermark is below it, which is another finding.
        replace(UNKNOWN, is_retained=False),
        replace(of_own(upsert(3)), is_retained=False),
        # Deleted in one partition: that may have been the last change.
        replace(ROWLESS, has_delete=True),
        # A row of another writer, of which the log knows nothing.
        replace(UNKNOWN, row=None),
    ],
)
def test_what_is_right_has_no_verdict(key: KeyState) -> None:
    for is_compacted in (True, False):
        assert judge(key, is_compacted=is_compacted) is None


def test_of_a_compacted_log_a_row_without_its_change_may_be_right() -> None:
    for key in (UNKNOWN, of_own(upsert(3))):
        assert judge(key, is_compacted=True) is Unsure.CLEANED


def test_changes_elsewhere_do_not_say_whether_an_older_row_is_right() -> None:
    key = replace(UNKNOWN, is_retained=False, any=upsert(9, partition=1))
    assert judge(key, is_compacted=False) is Unsure.ORDER
