"""When a table was last published, as Spark's programs read it of the metadata file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from connectors.spark.metadata import last_publish, parse_state, renewed_publish
from planner.seam.snapshots import TAG
from planner.seam.watermark import (
    SUMMARY_KEY,
    LastPublish,
    Outcomes,
    Watermark,
    format_watermark,
)
from tests.harness.builders import watermark

#: Its newest watermark is that of snapshot 1.
MARK = watermark(10, outcomes=Outcomes(rows=10))
EARLIER = LastPublish(7, 3, Outcomes(rows=2))


def metadata(mark: Watermark) -> dict[str, Any]:
    """Two rewrites of another writer above a publish, which expired the first of them."""
    text = {SUMMARY_KEY: format_watermark(mark)}
    publish = {"snapshot-id": 1, "timestamp-ms": 1_000, "sequence-number": 1}
    rewrite = {"snapshot-id": 3, "parent-snapshot-id": 2, "timestamp-ms": 9_000}
    return {
        "table-uuid": "u",
        "current-snapshot-id": 3,
        "current-schema-id": 0,
        "schemas": [{"schema-id": 0}],
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0,
        "snapshots": [
            {**publish, "summary": {"operation": "append", **text}},
            {**rewrite, "sequence-number": 3, "summary": {"operation": "replace"}},
        ],
        "refs": {TAG: {"snapshot-id": 1}},
    }


@pytest.mark.parametrize(
    ("mark", "publish"),
    [
        (MARK, LastPublish(1_000, None, MARK.outcomes)),
        (replace(MARK, publish=EARLIER), EARLIER),
    ],
    ids=["a publish", "a commit without rows"],
)
def test_of_a_line_that_expiry_broke_the_tagged_commit_says_when_it_was_published(
    mark: Watermark, publish: LastPublish
) -> None:
    state = parse_state(metadata(mark))
    assert last_publish(state) == publish
    assert renewed_publish(state) == publish


def test_without_a_tag_nothing_says_it() -> None:
    state = parse_state({**metadata(MARK), "refs": {}})
    assert last_publish(state) is None
    assert renewed_publish(state) == LastPublish(9_000, None, Outcomes())
