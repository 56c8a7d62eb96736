import base64
import json
import zlib
from dataclasses import make_dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import WatermarkUnreadable
from planner.offsets import OffsetRange, OffsetVector
from planner.seam import watermark as watermark_module
from planner.seam.snapshots import WatermarkEntries
from planner.seam.watermark import (
    COMPRESS_ABOVE_BYTES,
    LastPublish,
    Outcomes,
    Skip,
    Watermark,
    format_watermark,
    parse_watermark,
)
from tests.harness.builders import watermark

offsets = st.integers(0, 2**63 - 1)
vectors = st.dictionaries(st.integers(0, 60), offsets, max_size=20).map(
    lambda stops: OffsetVector.of(stops.items())
)
ranges = st.tuples(st.integers(0, 9), offsets, offsets).map(
    lambda item: OffsetRange(item[0], min(item[1:]), max(item[1:]))
)
watermarks = st.builds(
    Watermark,
    cluster_id=st.text(),
    topic=st.text(),
    topic_id=st.text(),
    next=vectors,
    shape=st.text(),
    run=st.text(),
    epochs=vectors,
    prev_snapshot_id=st.none() | offsets,
    gaps=st.lists(ranges, max_size=3).map(tuple),
    accepted=st.lists(offsets, max_size=3).map(tuple),
    skips=st.lists(st.builds(Skip, st.integers(0, 9), offsets, st.text()), max_size=3).map(
        tuple
    ),
    outcomes=st.builds(Outcomes, offsets, offsets, offsets, offsets),
)


published = st.builds(
    LastPublish,
    offsets,
    st.none() | offsets,
    st.builds(Outcomes, offsets, offsets, offsets, offsets),
)
renewed = st.builds(replace, watermarks, publish=published)
decoded = st.builds(replace, watermarks, decoding=st.text(min_size=1), era=st.text())


@given(watermarks | decoded | renewed)
def test_the_text_form_reads_back_equal(watermark: Watermark) -> None:
    assert parse_watermark(format_watermark(watermark)) == watermark


def test_the_text_form_is_this_one() -> None:
    """Stored in tables: a change here orphans every table ever tiered."""
    value = watermark(
        1204,
        99,
        epochs=OffsetVector.of([(0, 7), (1, 7)]),
        prev_snapshot_id=41,
        gaps=(OffsetRange(1, 5, 9),),
        accepted=(40,),
        outcomes=Outcomes(3, 1, 2, 4),
        shape="abc",
    )
    assert format_watermark(value) == (
        '{"accepted":["40"],"cluster":"cluster-1","dead":1,"gaps":[[1,5,9]],"prev":"41","rows":3,'
        '"run":"run-1","shape":"abc","skipped":2,"tombstones":4,"topics":{"flows":{"epoch":[7,7],'
        '"id":"topic-1","next":[1204,99]}},"v":1}'
    )
    # Written by a publish, ignored by readers that do not know it.
    text = format_watermark(replace(value, decoding="key", era="begun"))
    assert json.loads(text) == json.loads(format_watermark(value)) | {
        "decoding": ["key", "begun"]
    }


def test_a_partition_absent_from_the_text_starts_at_zero() -> None:
    record = watermark(5)
    assert record.offset(0) == 5
    assert record.offset(9) == 0


def test_ten_thousand_partitions_stay_small_and_read_back() -> None:
    value = watermark(*range(10_000_000, 10_010_000))
    text = format_watermark(value)
    assert text.startswith("z:")
    assert len(text) < 40_000
    assert parse_watermark(text) == value
    assert len(format_watermark(watermark(1))) < COMPRESS_ABOVE_BYTES


def test_a_newer_version_is_refused_not_guessed() -> None:
    for version in (4, True, "1", None):
        newer = json.loads(format_watermark(watermark(1))) | {"v": version}
        with pytest.raises(
            WatermarkUnreadable, match=rf"has version {version!r} .* versions 1 to 3"
        ):
            parse_watermark(json.dumps(newer))


def test_skips_make_version_2_which_older_readers_refuse() -> None:
    value = watermark(1, skips=(Skip(0, 7, "no JSON"), Skip(2, 1)))
    document = json.loads(format_watermark(value))
    assert document["v"] == 2
    assert document["skips"] == [[0, 7, "no JSON"], [2, 1, ""]]
    assert value.skipped == ((0, 7), (2, 1))
    assert json.loads(format_watermark(watermark(1)))["v"] == 1


def test_a_keyed_table_makes_version_3_which_older_readers_refuse() -> None:
    counted = Outcomes(rows=3, skipped=1, superseded=5, deletes=2)
    value = watermark(11, key=(4, 7), outcomes=counted)
    document = json.loads(format_watermark(value))
    assert {
        key: document[key] for key in ("v", "key", "skips", "rows", "superseded", "deletes")
    } == {
        "v": 3,
        "key": [4, 7],
        "skips": [],
        "rows": 3,
        "superseded": 5,
        "deletes": 2,
    }
    assert parse_watermark(format_watermark(value)) == value
    skipping = replace(value, skips=(Skip(0, 7, "no key"),))
    assert parse_watermark(format_watermark(skipping)) == skipping
    behind = replace(value, whole_ms=7)
    assert parse_watermark(format_watermark(behind)) == behind
    assert counted.records == 11
    assert counted.bad == 1


def test_a_fold_leaves_every_record_one_outcome() -> None:
    decoded = Outcomes(rows=7, skipped=1, deletes=3)
    folded = decoded.folded(rows=4, deletes=2)
    assert folded == Outcomes(rows=4, skipped=1, deletes=2, superseded=4)
    assert folded.records == decoded.records


def test_a_skip_names_a_record() -> None:
    for place in ((-1, 0), (0, -1)):
        with pytest.raises(ValueError, match="not a record"):
            Skip(*place)


def test_decisions_of_people_are_compared_with_the_shape() -> None:
    value = watermark(1)
    assert value.same_decisions(watermark(9, run="other"))
    for change in (
        {"shape": "other"},
        {"gaps": (OffsetRange(0, 1, 2),)},
        {"accepted": (4,)},
        {"skips": (Skip(0, 1),)},
    ):
        assert not value.same_decisions(watermark(1, **change))


good = json.loads(format_watermark(watermark(1)))
bomb = "z:" + base64.b64encode(zlib.compress(b" " * 80_000_000)).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "nonsense",
        "z:!!!",
        "z:" + base64.b64encode(b"not zlib").decode(),
        bomb,
        "[" * 100_000,
        *(
            json.dumps({key: value for key, value in good.items() if key != gone})
            for gone in good
            if gone != "v"
        ),
        json.dumps(good | {"topics": {}}),
        json.dumps(good | {"topics": [1]}),
        json.dumps(good | {"cluster": 1}),
        json.dumps(good | {"rows": "7"}),
        json.dumps(good | {"rows": True}),
        json.dumps(good | {"prev": 7}),
        json.dumps(good | {"prev": "x"}),
        json.dumps(good | {"gaps": [[0, 5, 1]]}),
        json.dumps(good | {"decoding": ["key"]}),
        json.dumps(good | {"decoding": ["key", 1]}),
        json.dumps(good | {"v": 2}),
        json.dumps(good | {"v": 2, "skips": [[0, 5]]}),
        json.dumps(good | {"v": 2, "skips": [[0, -5, ""]]}),
        json.dumps(good | {"v": 3, "skips": [], "key": []}),
        json.dumps(good | {"topics": {"flows": {"id": "i", "next": [-1], "epoch": []}}}),
    ],
)
def test_a_damaged_text_is_a_named_error(text: str) -> None:
    with pytest.raises(WatermarkUnreadable, match="watermark text"):
        parse_watermark(text)


def test_the_compare_and_set_compares_the_log_and_its_offsets_only() -> None:
    value = watermark(5, 6)
    assert value.same_position(watermark(5, 6, run="other", shape="other"))
    assert not value.same_position(watermark(5, 7))
    assert not value.same_position(watermark(5, 6, topic_id="other"))
    assert not value.same_position(watermark(5, 6, cluster_id="other"))


def test_outcomes_add_up() -> None:
    total = Outcomes(1, 2, 3, 4) + Outcomes(10, 20, 30, 40)
    assert total == Outcomes(11, 22, 33, 44)
    assert total.records == 110
    assert total.bad == 55


def test_outcomes_are_said_in_order_and_dead_ones_where_there_are_some() -> None:
    assert Outcomes(1000, 0, 0, 4).texts == ["1,000 rows", "0 skipped", "4 tombstones"]
    assert Outcomes(1, 2, 3, 4).texts == ["1 rows", "2 dead", "3 skipped", "4 tombstones"]


def test_a_new_outcome_is_one_more_field(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves the texts of tables without such records as they are, and is counted wherever the others are."""
    before = format_watermark(watermark(1, outcomes=Outcomes(rows=1)))
    more: Any = make_dataclass(
        "More", [("late", int, 0)], bases=(Outcomes,), frozen=True, slots=True
    )
    monkeypatch.setattr(watermark_module, "Outcomes", more)
    assert parse_watermark(before).outcomes == more(rows=1)
    assert format_watermark(watermark(1, outcomes=more(rows=1))) == before
    total = more(rows=1, late=2) + more(late=3)
    value = watermark(1, outcomes=total)
    assert parse_watermark(format_watermark(value)).outcomes == total == more(rows=1, late=5)
    assert (total.records, total.bad, total.texts[-1]) == (6, 5, "5 late")


def test_a_commit_writes_one_text_into_its_summary_and_the_mirror() -> None:
    mark = watermark(5)
    text = format_watermark(mark)
    assert WatermarkEntries.of(mark) == WatermarkEntries(
        summary={"thermocline.watermark": text}, properties={"thermocline.watermark": text}
    )


def test_a_commit_that_moves_no_offset_carries_the_last_publish_on() -> None:
    first = watermark(10, 20, outcomes=Outcomes(rows=7, tombstones=1), skips=(Skip(0, 3),))
    last = LastPublish(1_000, 4, first.outcomes)
    again = first.renewed(last, run="run-2", head=5)
    assert (again.run, again.prev_snapshot_id, again.outcomes) == ("run-2", 5, Outcomes())
    assert again.same_position(first)
    assert again.same_decisions(first)
    assert again.publish_outcomes == first.publish_outcomes == first.outcomes
    # The next one knows it from the text alone.
    third = parse_watermark(format_watermark(again)).renewed(
        LastPublish(2_000, None, Outcomes()), run="run-3", head=6
    )
    assert third.publish == last
    document = json.loads(format_watermark(third))
    assert document["publish"] == [
        1000,
        4,
        {"rows": 7, "dead": 0, "skipped": 0, "tombstones": 1},
    ]
    assert document["v"] == 2
