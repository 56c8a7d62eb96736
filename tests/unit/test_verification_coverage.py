from dataclasses import replace

from planner.offsets import OffsetRange, OffsetVector
from planner.seam.watermark import Outcomes
from planner.verification.chain import Carrier
from planner.verification.coverage import TieredSegment, plan_coverage, segments
from planner.verification.findings import Coverage, Fault, Kind, Report, span_text
from tests.harness.builders import bounds, snapshot, watermark

CREATED = Carrier(snapshot(1, None), watermark(4, 0))


def test_all_from_the_log_start_to_the_watermark_is_compared() -> None:
    plan = plan_coverage(watermark(10, 20), bounds((4, 12), (5, 20)), [CREATED])
    assert plan.coverage == (
        Coverage(OffsetRange(0, 4, 10), 4, 10),
        Coverage(OffsetRange(1, 5, 20), 0, 20),
    )
    assert plan.findings == ()
    assert plan.unchecked == (
        "partition 1, offsets 0 to 4: the log starts at 5, so only that no row is there twice",
    )


def test_of_a_keyed_table_no_key_may_be_there_twice() -> None:
    plan = plan_coverage(watermark(10, key=(4,)), bounds((5, 12)), [])
    assert plan.unchecked == (
        "partition 0, offsets 0 to 4: the log starts at 5, so only that no key is there twice",
    )


def test_where_creation_expired_the_table_may_have_covered_everything() -> None:
    expired = replace(CREATED, snapshot=snapshot(9, 8))
    for chain in ([expired], []):
        plan = plan_coverage(watermark(10), bounds((4, 12)), chain)
        assert plan.coverage == (Coverage(OffsetRange(0, 4, 10), 0, 10),)


def test_since_leaves_out_what_was_tiered_before() -> None:
    since = OffsetVector.of([(0, 7)])
    plan = plan_coverage(watermark(10, 20), bounds((4, 12), (5, 20)), [CREATED], since)
    assert [value.compared for value in plan.coverage] == [
        OffsetRange(0, 7, 10),
        OffsetRange(1, 5, 20),
    ]


def test_another_log_is_a_finding_and_nothing_is_compared() -> None:
    for changes, message in (
        ({"cluster_id": "other"}, "the watermark names cluster cluster-1, the log has other"),
        ({"topic_id": "other"}, "the watermark names topic id topic-1, the log has other"),
    ):
        plan = plan_coverage(watermark(10), bounds((0, 10), **changes), [])
        assert plan.coverage == ()
        assert [f.message for f in plan.findings] == [message]


def test_a_log_that_does_not_reach_the_watermark_is_a_finding() -> None:
    plan = plan_coverage(watermark(10, 10, 10), bounds((0, 6), (12, 15)), [CREATED])
    assert [(f.kind, f.message) for f in plan.findings] == [
        (Kind.LOG, "cold covers partition 0 up to offset 10, the log ends at 6"),
        (
            Kind.LOG,
            "partition 1: offsets 10 to 11 were removed from the log before they were tiered; "
            "`thermocline gap accept` goes on without them",
        ),
        (Kind.LOG, "cold covers partition 2, which the topic has not"),
    ]
    assert [value.compared for value in plan.coverage] == [
        OffsetRange(0, 4, 6),
        OffsetRange(1, 10, 10),
    ]


def test_segments_are_cut_where_schema_or_shape_changed() -> None:
    chain = [
        Carrier(snapshot(5, 4), watermark(50, 5, shape="b")),
        Carrier(snapshot(4, 3), watermark(40, 5, shape="a")),
        Carrier(snapshot(3, 2), watermark(30)),
        Carrier(snapshot(2, 1), watermark(20)),
    ]
    schema_ids = {2: 0, 3: 0, 4: 1, 5: 1}
    shape = watermark().shape
    compared = [OffsetRange(0, 10, 45), OffsetRange(1, 0, 5)]
    assert segments(compared, chain, schema_ids) == (
        TieredSegment((OffsetRange(0, 10, 20),), None, None),
        TieredSegment((OffsetRange(0, 20, 30),), 0, shape),
        TieredSegment((OffsetRange(0, 30, 40), OffsetRange(1, 0, 5)), 1, "a"),
        TieredSegment((OffsetRange(0, 40, 45),), 1, "b"),
    )
    assert segments(compared, [], {}) == ()
    newest = [OffsetRange(0, 42, 45)]
    assert segments(newest, chain, schema_ids) == (
        TieredSegment((OffsetRange(0, 42, 45),), 1, "b"),
    )


def test_a_rebuild_tiered_all_that_is_below_it() -> None:
    rebuild = snapshot(3, 2, "overwrite", added_records=7, total_records=7)
    chain = [
        Carrier(snapshot(4, 3), watermark(40, key=(4,), shape="b")),
        Carrier(rebuild, watermark(30, key=(4,), shape="a")),
    ]
    assert segments([OffsetRange(0, 10, 40)], chain, {3: 0, 4: 1}) == (
        TieredSegment((OffsetRange(0, 10, 30),), 0, "a"),
        TieredSegment((OffsetRange(0, 30, 40),), 1, "b"),
    )


def test_a_report_knows_whether_it_is_clean_and_how_far_it_went() -> None:
    report = Report(
        "t", "flows", 1, True, (), (), (), (Coverage(OffsetRange(0, 4, 10), 0, 10),),
        Outcomes(), 6, (), (),
    )  # fmt: skip
    assert report.is_clean
    assert (report.compared_offsets, report.covered_offsets) == (6, 10)
    assert not replace(report, findings=(Fault(Kind.TAG, "moved"),)).is_clean


def test_a_place_is_said_inclusively() -> None:
    assert span_text(OffsetRange(2, 7, 8)) == "partition 2, offset 7"
    assert span_text(OffsetRange(2, 7, 10)) == "partition 2, offsets 7 to 9"
