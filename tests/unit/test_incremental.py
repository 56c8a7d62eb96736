"""Following: consecutive rounds hold every offset once, wherever the watermark went."""

import base64
import dataclasses
import json
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import BadParameter, LogTruncated, TopicRecreated, UnsupportedStatement
from planner.offsets import OffsetVector
from planner.seam.cut import Increment, TableCut, cold_cut, plan_cut
from planner.seam.incremental import (
    After,
    check_followed,
    format_position,
    narrow,
    parse_after,
)
from planner.seam.time_travel import MAX_PACKED_BYTES
from tests.harness.builders import FLOWS, bounds, pin, vector


def cut(watermarks: list[int], ends: list[int]) -> TableCut:
    return plan_cut(pin(*watermarks), bounds(*((0, end) for end in ends)))


def ranges_of(round_: TableCut) -> list[tuple[int, int]]:
    return [
        (span.partition, offset)
        for span in (*round_.new_cold, *round_.new_hot)
        for offset in range(span.start, span.stop)
    ]


#: Rounds of a log that grows, may get partitions, and is tiered to anywhere below its end.
growth = st.lists(
    st.lists(st.tuples(st.integers(0, 6), st.floats(0, 1)), min_size=1, max_size=4), min_size=1
)


@settings(deadline=None)  # what it measures is the machine
@given(growth)
def test_every_offset_is_in_exactly_one_round(steps: list[list[tuple[int, float]]]) -> None:
    ends: list[int] = []
    watermarks: list[int] = []
    text = "beginning"
    items: list[tuple[int, int]] = []
    for step in steps:
        for partition, (grown, tiered) in enumerate(step):
            if partition == len(ends):
                ends.append(0)
                watermarks.append(0)
            ends[partition] += grown
            watermarks[partition] = max(watermarks[partition], int(ends[partition] * tiered))
        whole = cut(watermarks, ends)
        items += ranges_of(narrow(whole, parse_after(text)))
        text = format_position([whole])
    assert sorted(items) == [(p, n) for p, end in enumerate(ends) for n in range(end)]
    assert len(items) == len(set(items))


def test_now_holds_nothing_and_beginning_everything() -> None:
    whole = cut([3, 0], [5, 2])
    assert ranges_of(narrow(whole, parse_after("now"))) == []
    assert ranges_of(narrow(whole, parse_after("beginning"))) == ranges_of(whole)
    assert len(ranges_of(whole)) == 7


def test_a_time_is_kept_for_the_first_round_only() -> None:
    whole = cut([3], [5])
    first = narrow(whole, parse_after("since:1700000000000000"))
    assert first.increment == Increment(OffsetVector(), 1_700_000_000_000_000)
    then = narrow(whole, parse_after(format_position([first])))
    assert then.increment == Increment(vector(5))


def test_a_table_without_a_topic_is_read_whole() -> None:
    plain = plan_cut(pin(binding=None), None)
    assert narrow(plain, parse_after("now")) == plain
    assert cold_cut(pin(binding=None)).new_cold == cold_cut(pin(3)).new_hot == ()
    position = format_position([plain, cut([0], [4])])
    assert [table.table for table in parse_after(position).tables] == [FLOWS]


def test_a_position_of_other_tables_another_topic_or_a_longer_log_is_refused() -> None:
    whole = cut([3], [5])
    with pytest.raises(BadParameter, match="of a statement without this table"):
        narrow(whole, After())
    value = parse_after(format_position([whole]))
    other = dataclasses.replace(value.tables[0], topic_id="topic-0")
    with pytest.raises(TopicRecreated, match="position is of a topic with id topic-0"):
        narrow(whole, After(tables=(other,)))
    longer = dataclasses.replace(value.tables[0], next=vector(6))
    with pytest.raises(LogTruncated, match=r"up to offset 6 were answered .* ends at 5 now"):
        narrow(whole, After(tables=(longer,)))


def packed(document: object) -> str:
    data = zlib.compress(json.dumps(document).encode())
    return "p:" + base64.urlsafe_b64encode(data).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "later",
        "since:",
        "since:-1",
        "since:99999999999999999999",
        "p:",
        "p:!!!!",
        "p:AAAA",
        packed(1),
        packed({"v": 2, "tables": []}),
        packed({"v": 1}),
        packed({"v": 1, "tables": [{"table": ["a", [], "b"], "topic": 1, "next": []}]}),
        packed(
            {"v": 1, "tables": [{"table": ["a", [], "b"], "topic": "t", "next": [[0, "1"]]}]}
        ),
        packed(
            {"v": 1, "tables": [{"table": ["a", [], "b"], "topic": "t", "next": [[0, -1]]}]}
        ),
        packed("x" * (MAX_PACKED_BYTES + 1)),
    ],
)
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(BadParameter, match="not one this server gave out"):
        parse_after(text)


def test_a_thousand_partitions_fit_a_header() -> None:
    # gRPC takes 16 KiB of headers; offsets of one topic are alike, but not that alike.
    ends = [10**9 + (n * 7_919 * 104_729) % 10**7 for n in range(1_000)]
    assert len(format_position([cut([0] * 1_000, ends)])) < 12_000


def test_sides_and_statements_without_a_topic_are_refused() -> None:
    check_followed([FLOWS], [])
    with pytest.raises(UnsupportedStatement, match=r"a.b.c\$cold cannot be followed"):
        check_followed([FLOWS], ["a.b.c$tail", "a.b.c$cold"])
    with pytest.raises(UnsupportedStatement, match="nothing to follow"):
        check_followed([], [])
