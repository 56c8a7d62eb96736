import datetime as dt

import pyarrow as pa

from planner.evolution.ledger import UNKNOWN, UNREADABLE, SchemaLedger
from planner.offsets import OffsetRange
from planner.seam.binding import Binding
from planner.seam.boundary import RetentionBoundary
from planner.seam.cut import HotSlice, plan_cut
from planner.seam.formats import AvroFormat
from planner.seam.schemas_table import SCHEMAS_SCHEMA, RangesOfIds, SchemaFacts, schema_rows
from planner.seam.seam_table import (
    SEAM_SCHEMA,
    SNAPSHOTS_SCHEMA,
    PinFacts,
    TailFacts,
    seam_rows,
    snapshot_rows,
)
from planner.seam.snapshots import Retained
from planner.seam.time_travel import cut_until
from planner.seam.watermark import Skip
from tests.harness.builders import bounds, pin, vector, watermark


def test_the_seam_shows_every_partition_of_the_cut() -> None:
    value = pin(10, 20)
    decided = {"gaps": (OffsetRange(1, 5, 9),), "skips": (Skip(0, 11),), "accepted": (3, 4)}
    object.__setattr__(value, "watermark", watermark(10, 20, **decided))
    rows = seam_rows(plan_cut(value, bounds((0, 15), (5, 20), (0, 2))))
    table = pa.Table.from_pylist(rows, schema=SEAM_SCHEMA)
    assert table.column_names == SEAM_SCHEMA.names
    access_filter = [
        (row["kafka_partition"], row["watermark"], row["log_end"], row["tail_offsets"])
        for row in table.to_pylist()
    ]
    assert access_filter == [(0, 10, 15, 5), (1, 20, 20, 0), (2, 0, 2, 2)]
    assert table["accepted_gap_offsets"].to_pylist() == [0, 4, 0]
    assert table["skipped_records"].to_pylist() == [1, 0, 0]
    assert table["accepted_snapshots"].to_pylist() == [2, 2, 2]
    assert table["pin_age_s"].null_count == 3
    assert table["tiered_shape"].to_pylist() == table["binding_shape"].to_pylist()
    assert table["expired_before"].null_count == table["expired_field_id"].null_count == 3


def test_the_seam_shows_which_rows_aged_out() -> None:
    value = pin(10, 20)
    boundary = RetentionBoundary(3, 86_400_000_000)
    object.__setattr__(value, "watermark", watermark(10, 20, boundary=boundary))
    rows = seam_rows(plan_cut(value, bounds((0, 15), (5, 20))))
    table = pa.Table.from_pylist(rows, schema=SEAM_SCHEMA)
    day = dt.datetime(1970, 1, 2, tzinfo=dt.UTC)
    assert table["expired_before"].to_pylist() == [day, day]
    assert table["expired_field_id"].to_pylist() == [3, 3]


def test_a_cut_that_ends_below_the_watermark_has_no_tail() -> None:
    rows = seam_rows(cut_until(pin(10, 20), vector(4, 23), bounds((0, 15), (5, 25))))
    assert [(row["watermark"], row["log_end"], row["tail_offsets"]) for row in rows] == [
        (10, 4, 0),
        (20, 23, 3),
    ]


def test_the_seam_tells_how_long_the_catalog_has_been_silent() -> None:
    value = PinFacts(age_s=3600.0, failing_s=3590.0, error="CatalogUnavailable")
    (row,) = seam_rows(plan_cut(pin(10), bounds((0, 15))), value)
    assert (row["pin_age_s"], row["catalog_failing_s"]) == (3600.0, 3590.0)
    assert row["catalog_error"] == "CatalogUnavailable"


def test_the_seam_tells_what_is_read_of_the_tail_and_when_the_rest_is() -> None:
    cut = plan_cut(pin(10, 20), bounds((0, 15), (5, 26), (0, 2)))
    names = ("tail_offsets", "tail_read_offsets", "tail_rest_s")

    def columns_of(tail: TailFacts | None) -> list[tuple[object, ...]]:
        return [tuple(row[name] for name in names) for row in seam_rows(cut, None, tail)]

    assert columns_of(None) == [(5, None, None), (6, None, None), (2, None, None)]
    assert columns_of(TailFacts({})) == [(5, 0, None), (6, 0, None), (2, 0, None)]
    assert columns_of(TailFacts({0: 12, 1: 30}, 4.0)) == [
        (5, 2, 1.25),
        (6, 6, 1.25),
        (2, 0, 1.25),
    ]
    assert columns_of(TailFacts({0: 15, 1: 26, 2: 2})) == [
        (5, 5, 0.0),
        (6, 6, 0.0),
        (2, 2, 0.0),
    ]


def test_an_unbound_table_has_no_seam() -> None:
    assert seam_rows(plan_cut(pin(binding=None), None)) == []


def test_the_seam_tells_how_many_schemas_the_ledger_has() -> None:
    def facts(binding: Binding) -> list[tuple[object, object]]:
        value = pin(10)
        object.__setattr__(value, "binding", binding)
        rows = seam_rows(plan_cut(value, bounds((0, 15))))
        return [(row["schema_ids"], row["schema_era"]) for row in rows]

    ledger = SchemaLedger({7: "a", 8: UNKNOWN}, 3)
    assert facts(Binding("flows", AvroFormat(ledger=ledger))) == [(2, 3)]
    assert facts(Binding("flows")) == [(None, None)]


def test_the_schemas_of_a_cut_are_those_of_its_ledger_and_what_the_tail_had() -> None:
    ledger = SchemaLedger({5: "a", 6: "b", 7: "c", 8: UNKNOWN, 9: UNREADABLE})
    facts = [
        SchemaFacts(5, "a", "shop.Order", (("orders-value", 1), ("orders-value", 3))),
        SchemaFacts(6, "other", "shop.Order", (("orders-value", 2),)),
        SchemaFacts(8, "found since"),
        SchemaFacts(11, "d", "shop.Return"),
        SchemaFacts(12, UNKNOWN),
    ]
    rows = schema_rows(Binding("orders", AvroFormat(ledger=ledger)), facts)
    table = pa.Table.from_pylist(rows, schema=SCHEMAS_SCHEMA)
    assert table.column("tail").null_count == len(table)
    assert [tuple(row.values())[:-1] for row in table.to_pylist()] == [
        (5, "orders-value", 1, "shop.Order", "same"),
        (5, "orders-value", 3, "shop.Order", "same"),
        (6, "orders-value", 2, "shop.Order", "changed"),
        (7, None, None, None, "not asked"),
        (8, None, None, None, "unknown"),
        (9, None, None, None, "unknown"),
        (11, None, None, "shop.Return", "new"),
        (12, None, None, None, "unknown"),
    ]
    assert schema_rows(Binding("flows"), []) == []


def test_rows_of_an_id_are_where_segments_have_it_or_may_have_any() -> None:
    hot = HotSlice("orders", "t", (OffsetRange(0, 10, 20), OffsetRange(2, 0, 5)))
    binding = Binding("orders", AvroFormat(ledger=SchemaLedger({5: "a", 6: "b"})))

    def tails(ranges: RangesOfIds) -> list[object]:
        rows = schema_rows(binding, [], hot, ranges)
        table = pa.Table.from_pylist(rows, schema=SCHEMAS_SCHEMA)
        return [
            each and [tuple(span.values()) for span in each]
            for each in table.column("tail").to_pylist()
        ]

    # Below the watermark, beyond the cut, and of a partition without a tail, there is nothing of it.
    lists = [OffsetRange(0, 0, 10), OffsetRange(1, 0, 9), OffsetRange(2, 1, 3)]
    own: RangesOfIds = {5: lists}
    assert tails(own) == [[(2, 1, 2)], None]
    assert tails({5: [OffsetRange(0, 0, 12), OffsetRange(0, 17, 30)]}) == [[(0, 10, 19)], None]
    any_id: RangesOfIds = {None: [OffsetRange(0, 14, 16)]}
    assert tails({**own, **any_id}) == [[(0, 14, 15), (2, 1, 2)], [(0, 14, 15)]]


def test_snapshots_are_those_that_are_retained_each_time_they_were_current() -> None:
    retained = Retained(frozenset((7, 9, 11)), ((1_000, 3), (2_000, 7), (3_000, 9), (4_000, 7)))
    table = pa.Table.from_pylist(snapshot_rows(retained), schema=SNAPSHOTS_SCHEMA)
    rows = zip(
        table["snapshot_id"].to_pylist(),
        table["current_since"].cast(pa.int64()).to_pylist(),
        strict=True,
    )
    assert list(rows) == [(7, 2_000), (9, 3_000), (7, 4_000)]
    assert snapshot_rows(Retained(frozenset())) == []
