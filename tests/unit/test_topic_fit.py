"""What is said of the topic of a new keyed table."""

from __future__ import annotations

import pytest

from planner.errors import BadConfig
from planner.tiering.topic_fit import judge_topic

COMPACTED = {
    "cleanup.policy": "compact",
    "delete.retention.ms": "86400000",
    "min.compaction.lag.ms": "7200000",
}
_LAG = (
    "topic flows has min.compaction.lag.ms 0: a cut or a ticket that ends between two changes of a key may lack its row once "
    "the log is compacted; 7,200,000 or more keep them."
)


@pytest.mark.parametrize(
    ("settings", "sentences"),
    [
        (COMPACTED, ()),
        (COMPACTED | {"min.compaction.lag.ms": "0"}, (_LAG,)),
        ({"cleanup.policy": "compact"}, (_LAG,)),
        (
            {},
            (
                "topic flows has cleanup.policy delete: where retention removes the last change of a key, the table keeps its "
                "row, and no rebuild could bring it back; a topic of a keyed table is best compacted.",
            ),
        ),
        (
            COMPACTED | {"cleanup.policy": "compact,delete"},
            (
                "topic flows has cleanup.policy compact,delete: where retention removes the last change of a key, the table "
                "keeps its row, and no rebuild could bring it back.",
            ),
        ),
    ],
)
def test_settings_that_do_not_go_well_are_said(
    settings: dict[str, str], sentences: tuple[str, ...]
) -> None:
    assert judge_topic("flows", settings) == sentences


def test_deletes_that_leave_the_log_before_they_are_tiered_are_refused() -> None:
    with pytest.raises(BadConfig) as caught:
        judge_topic("flows", COMPACTED | {"delete.retention.ms": "60000"})
    assert caught.value.message == (
        "topic flows has delete.retention.ms 60,000: a delete may leave the log before it is tiered, which may take 3,600,000, "
        "and the row would stay for ever; set it to so much at least."
    )
