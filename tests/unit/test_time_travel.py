import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import BadParameter, CutExpired
from planner.names import TableName
from planner.offsets import OffsetRange, OffsetVector
from planner.seam.binding import decoding_key
from planner.seam.cut import Pin, TableCut, cold_cut, plan_cut
from planner.seam.snapshots import Retained
from planner.seam.time_travel import (
    AtCut,
    AtVersion,
    CutEntry,
    cut_until,
    decodes_as,
    ended,
    format_cut,
    names_cut,
    needs_log,
    pack,
    parse_cut,
    parse_version,
    same_snapshot,
)
from planner.seam.watermark import era_after
from planner.statement.references import AtClause
from tests.harness.builders import BINDING, FLOWS, bounds, pin, schema, vector, watermark

HOSTS = TableName("lake", ("net",), "hosts")
NOW = plan_cut(pin(10, 20), bounds((0, 15), (5, 20)))
PLAIN = replace(cold_cut(pin(binding=None)), table=HOSTS)
KEY = decoding_key(schema(), BINDING)
ERA = era_after(watermark(10, 20), KEY)
EARLIER = AtClause("VERSION", '{"value":{"value":1}}')
EARLIEST = AtClause("VERSION", '{"value":{"value":0}}')


def test_the_text_of_a_cut_reads_back() -> None:
    text = format_cut({(HOSTS, None): PLAIN, (FLOWS, None): NOW})
    file = "00001-a.metadata.json"
    assert parse_cut(text) == AtCut(
        (
            CutEntry(FLOWS, "table-1", file, 1, 0, "topic-1", vector(15, 20), KEY, ERA),
            CutEntry(HOSTS, "table-1", file, 1, 0),
        )
    )
    # The same cut, the same text: whoever compares two texts compares two cuts.
    assert format_cut({(FLOWS, None): NOW, (HOSTS, None): PLAIN}) == text
    assert parse_version(text) == parse_cut(text)


def test_a_text_of_version_1_says_no_decoding_and_means_what_it_meant() -> None:
    (value,) = parse_cut(packed(entry())).tables
    assert value == CutEntry(FLOWS, "u", "f", 1, 0, "t", vector(1))
    other = replace(pin(0), binding=replace(BINDING, on_error="skip"))
    assert decodes_as(value, other)


def published(*offsets: Any, **changes: Any) -> Pin:
    """The table after tierers that decoded as ``NOW`` published up to these offsets."""
    mark = replace(watermark(*offsets), decoding=KEY, era=ERA)
    return replace(pin(*offsets), watermark=replace(mark, **changes))


def test_a_snapshot_answers_a_cut_that_decodes_as_the_cut() -> None:
    (value,) = parse_cut(format_cut({(FLOWS, None): NOW})).tables
    skipping = replace(BINDING, on_error="skip")
    assert decodes_as(value, pin(10, 20))
    assert decodes_as(value, published(12, 20))
    assert decodes_as(value, published(90, 90))
    # Rolled back below the cut's watermark, within the era: what was cold is decoded again, alike.
    watermark = published(12, 20).watermark
    assert watermark is not None
    late = replace(value, era=watermark.era)
    assert decodes_as(late, published(11, 20))
    # All of the cut is cold, as it was: what would be decoded now does not matter. Of the tail it does.
    assert decodes_as(value, replace(published(15, 20), binding=skipping))
    assert not decodes_as(value, replace(published(14, 20), binding=skipping))
    assert not decodes_as(value, replace(pin(10, 20), binding=skipping))
    # Tiered by a program that did not say how it decoded, otherwise, or alike after that.
    assert not decodes_as(value, pin(15, 20))
    assert not decodes_as(value, published(15, 20, decoding="other"))
    assert not decodes_as(value, published(15, 20, era="later"))


def test_cold_rows_without_a_topic_are_not_decoded() -> None:
    (value,) = parse_cut(format_cut({(HOSTS, None): PLAIN})).tables
    assert value.decoding is None
    assert decodes_as(value, pin(binding=None))
    (bound,) = parse_cut(format_cut({(FLOWS, None): NOW})).tables
    assert decodes_as(bound, pin(binding=None))


def test_a_table_without_a_snapshot_has_a_cut_too() -> None:
    empty = replace(PLAIN, cold=replace(PLAIN.cold, snapshot_id=None))
    (snapshot,) = parse_cut(format_cut({(HOSTS, None): empty})).tables
    assert snapshot.snapshot_id is None


def test_a_statement_without_tables_has_no_cut() -> None:
    assert format_cut({}) == ""


def test_a_table_read_at_several_times_counts_as_it_is() -> None:
    then = cold_cut(pin(3))
    both = parse_cut(format_cut({(FLOWS, EARLIER): then, (FLOWS, None): NOW}))
    assert both.of(FLOWS).end == vector(15, 20)
    alone = parse_cut(format_cut({(FLOWS, EARLIER): then}))
    assert alone.of(FLOWS).end == vector(3)
    unclear: dict[tuple[TableName, AtClause | None], TableCut] = {
        (FLOWS, EARLIER): then,
        (FLOWS, EARLIEST): NOW,
    }
    assert format_cut(unclear) == ""
    assert [
        table.table for table in parse_cut(format_cut(unclear | {(HOSTS, None): PLAIN})).tables
    ] == [HOSTS]


def test_a_cut_says_nothing_of_other_tables() -> None:
    with pytest.raises(BadParameter, match="of a statement that did not read this table"):
        parse_cut(format_cut({(FLOWS, None): NOW})).of(HOSTS)


def entry(**changes: object) -> dict[str, object]:
    value = {
        "table": ["lake", ["net"], "flows"],
        "uuid": "u",
        "file": "f",
        "snapshot": 1,
        "schema": 0,
        "topic": "t",
        "end": [[0, 1]],
    }
    return value | changes


def packed(*tables: object, version: object = 1) -> str:
    return pack("c:", {"v": version, "tables": list(tables)})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "c:",
        "c:!!!!",
        "p:" + packed(entry())[2:],
        packed(entry(), version=2),
        packed(entry(decoding=["key", "era"]), version=3),
        packed(entry(decoding=["key", "era"]), version=True),
        packed(entry(decoding=None), version=2),
        packed(entry(decoding=["key"]), version=2),
        packed(entry(decoding=["key", 1]), version=2),
        packed("x"),
        packed(entry(table=["lake", "flows"])),
        packed(entry(uuid=None)),
        packed(entry(file=3)),
        packed(entry(snapshot="1")),
        packed(entry(snapshot=True)),
        packed(entry(schema=None)),
        packed(entry(topic=1)),
        packed(entry(topic=None)),
        packed(entry(end=None)),
        packed(entry(end=[[0, -1]])),
        packed(entry(end=[[0, 2**63]])),
        packed(entry(end=[[0, 1], [0, 2]])),
    ],
)
def test_what_is_no_cut_is_refused(text: str) -> None:
    with pytest.raises(BadParameter, match="not one a server gave out"):
        parse_cut(text)


def test_a_version_is_a_snapshot_or_a_cut() -> None:
    assert parse_version(3) == parse_version("3") == AtVersion(3)
    for wrong in ("main", "-3", "9" * 20, True, 1.5, None):
        with pytest.raises(
            BadParameter, match="takes the id of a snapshot, or the text of a cut"
        ):
            parse_version(wrong)


def test_what_names_a_cut_is_known_before_it_is_read() -> None:
    for value, expected in (("c:x", True), ("3", False), (3, False), (None, False)):
        text = json.dumps({"value": {"value": value}})
        assert names_cut(AtClause("VERSION", text)) is expected
    assert not names_cut(AtClause("TIMESTAMP", '{"function_name":"now"}'))


def rows(cut: TableCut) -> set[tuple[int, int]]:
    return {
        (span.partition, offset)
        for span in (*cut.new_cold, *cut.new_hot)
        for offset in range(span.start, span.stop)
    }


@given(
    st.lists(st.tuples(*[st.integers(0, 12)] * 3), min_size=1, max_size=4),
    st.lists(st.integers(0, 12), min_size=1, max_size=4),
)
def test_every_snapshot_whose_tail_the_log_holds_gives_the_same_past(
    facts: list[tuple[int, int, int]], until: list[int]
) -> None:
    """Wherever the watermark is, before the end or behind it."""
    log = [(min(a, b), max(a, b)) for a, b, _ in facts]
    marks = [min(c, end) for (_, end), (_, _, c) in zip(log, facts, strict=True)]
    end = vector(*(min(want, stop) for want, (_, stop) in zip(until, log, strict=False)))
    value = pin(*marks)
    gap = any(stop > marks[at] and log[at][0] > marks[at] for at, stop in end)
    if gap:
        with pytest.raises(CutExpired, match="the log of flows/"):
            cut_until(value, end, bounds(*log))
        return
    cut = cut_until(value, end, bounds(*log))
    assert rows(cut) == {(at, offset) for at, stop in end for offset in range(stop)}
    assert set(cut.new_cold).isdisjoint(cut.new_hot)
    assert needs_log(value, end) == bool(cut.new_hot)
    assert cut.end.as_dict() == {at: end.get(at) or 0 for at in range(len(marks))}


def test_a_past_below_the_watermark_needs_no_log() -> None:
    assert not needs_log(pin(10, 20), vector(10, 3))
    assert needs_log(pin(10), vector(10, 3))
    assert not needs_log(pin(binding=None), vector(1))
    assert rows(cut_until(pin(2, 2), vector(2, 1), None)) == {(0, 0), (0, 1), (1, 0)}


def test_a_past_that_nobody_holds_is_refused() -> None:
    def why(*log: tuple[int, int], **changes: object) -> str:
        with pytest.raises(CutExpired) as refused:
            cut_until(pin(10), vector(15), bounds(*log, **changes))
        return str(refused.value)

    assert why((12, 20)) == (
        "lake.net.flows: the cut cannot be read any more: the log of flows/0 begins at offset 12, and Iceberg "
        "holds the records below 10 only. Take a new one with thermocline_cut()."
    )
    assert "the log of flows/0 ends before offset 15" in why((0, 14))
    assert "the log of flows/0 ends before offset 15" in why()
    assert "topic flows was created again" in why((0, 20), topic_id="another")
    assert "topic flows was created again" in why((0, 20), cluster_id="another")


def test_a_past_of_what_has_no_log_is_a_bug() -> None:
    with pytest.raises(ValueError, match="has no topic"):
        cut_until(pin(binding=None), vector(1), None)
    with pytest.raises(ValueError, match="was not measured"):
        cut_until(pin(1), vector(2), None)
    with pytest.raises(ValueError, match="has no topic"):
        ended(PLAIN, vector(1))


def test_a_cut_is_shortened_where_an_end_is_given() -> None:
    whole = plan_cut(pin(10, 10, 10), bounds((0, 15), (0, 15), (0, 15)))
    cut = ended(whole, OffsetVector(((0, 4), (1, 12), (7, 3))))
    assert cut.end == vector(4, 12, 15)
    assert cut.new_cold == (
        OffsetRange(0, 0, 4),
        OffsetRange(1, 0, 10),
        OffsetRange(2, 0, 10),
    )
    assert cut.new_hot == (OffsetRange(1, 10, 12), OffsetRange(2, 10, 15))
    assert ended(whole, vector(99)).end == whole.end


def test_a_table_without_a_topic_is_its_snapshot() -> None:
    value = CutEntry(FLOWS, "table-1", "f", 1, 0)
    assert same_snapshot(value, pin(binding=None)) == cold_cut(pin(binding=None))
    with pytest.raises(CutExpired, match="it was bound to a topic since"):
        same_snapshot(value, pin(3))


def test_the_snapshot_of_a_time_is_the_one_that_was_current() -> None:
    retained = Retained(frozenset({1, 2}), ((10, 1), (20, 2), (30, 1)))
    assert [retained.current_at(time) for time in (9, 10, 19, 20, 30, 99)] == [
        None,
        1,
        1,
        2,
        1,
        1,
    ]
