"""What is read of a table: every decision of ``plan_read``, and the shares that it is split into."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import pyarrow as pa
import pytest

from planner.errors import UnknownTable
from planner.names import Side
from planner.offsets import OffsetRange
from planner.ports import ArrowRelation, SqlRelation
from planner.reading.filters import (
    EVERY_FILE,
    EVERYTHING,
    NO_FILE,
    Condition,
    FileSpan,
    ScanFilter,
)
from planner.reading.needs import StatementNeeds
from planner.reading.plan import (
    ALL_COLUMNS,
    ColdMode,
    ColumnRead,
    ReadShare,
    TableRead,
    counted_rows,
    plan_read,
    plan_rows,
    schema_of,
    side_of,
)
from planner.reading.shares import split_ranges, split_read
from planner.schema import Column
from planner.seam.cut import Increment, TableCut, cold_cut, plan_cut
from planner.seam.incremental import narrow, parse_after
from planner.seam.schemas_table import SCHEMAS_SCHEMA
from planner.seam.seam_table import SEAM_SCHEMA, SNAPSHOTS_SCHEMA
from planner.seam.time_travel import cut_until
from planner.statement.conditions import conjuncts
from planner.statement.references import ResolvedTable
from tests.harness.builders import FLOWS, bounds, pin, schema, vector
from tests.harness.sql import parse

TABLE = ResolvedTable(FLOWS)
PIN = replace(
    pin(10, 20), schema=schema(Column(4, "n", pa.int64()), Column(5, "d", pa.float64()))
)
CUT = plan_cut(PIN, bounds((0, 15), (5, 20), (0, 4)))
TAIL = (OffsetRange(0, 10, 15), OffsetRange(2, 0, 4))
#: A cut of the past: of partition 0 it ends inside of the snapshot.
PAST = cut_until(PIN, vector(4, 20), bounds((0, 15), (5, 20)))
FOLLOWER = narrow(CUT, parse_after("beginning"))
NEEDS = StatementNeeds(equals_zero=False)


def conditions(partition: int) -> ScanFilter:
    return ((Condition("kafka_partition", "=", (pa.scalar(partition, pa.int32()),)),),)


def read(
    needs: StatementNeeds = NEEDS, cut: TableCut = CUT, side: Side = Side.BOTH
) -> TableRead:
    return plan_read(needs, ResolvedTable(FLOWS, side), cut, is_open=True)


@pytest.mark.parametrize(
    ("side", "cold", "tail"),
    [
        (Side.BOTH, ColdMode.WHOLE, TAIL),
        (Side.COLD, ColdMode.WHOLE, ()),
        (Side.TAIL, ColdMode.NONE, TAIL),
        (Side.SEAM, ColdMode.NONE, ()),
        (Side.SCHEMAS, ColdMode.NONE, ()),
        (Side.SNAPSHOTS, ColdMode.NONE, ()),
    ],
)
def test_a_side_is_read_alone(
    side: Side, cold: ColdMode, tail: tuple[OffsetRange, ...]
) -> None:
    value = read(side=side)
    assert (value.side, value.cold, value.tail) == (side, cold, tail)
    assert value.scans_cold is (cold is ColdMode.WHOLE)
    facts = {
        Side.SEAM: SEAM_SCHEMA,
        Side.SCHEMAS: SCHEMAS_SCHEMA,
        Side.SNAPSHOTS: SNAPSHOTS_SCHEMA,
    }
    assert schema_of(side, PIN.schema) is facts.get(side, PIN.schema)


def test_of_a_cut_that_ends_in_the_snapshot_ranges_are_read() -> None:
    value = read(cut=PAST)
    assert (value.cold, value.tail) == (ColdMode.RANGES, ())
    assert value.cold_ranges == (OffsetRange(0, 0, 4), OffsetRange(1, 0, 20))
    filtered = plan_rows(Side.BOTH, PAST, conditions(1))
    assert filtered.cold_ranges == (OffsetRange(1, 0, 20),)
    assert plan_rows(Side.BOTH, PAST, conditions(7)).cold is ColdMode.NONE
    assert (
        plan_rows(Side.BOTH, cut_until(PIN, vector(), bounds((0, 15), (5, 20)))).cold
        is ColdMode.NONE
    )


def test_rows_that_came_from_no_record_are_read_of_a_whole_snapshot_only() -> None:
    assert plan_rows(Side.COLD, CUT).cold is ColdMode.WHOLE
    records = plan_rows(Side.COLD, CUT, records_only=True)
    assert (records.cold, records.cold_ranges) == (ColdMode.RANGES, CUT.new_cold)


def test_a_follower_reads_what_is_new() -> None:
    value = read(cut=replace(CUT, increment=Increment(vector(12, 20))))
    assert (value.cold, value.tail) == (ColdMode.NONE, (OffsetRange(0, 12, 15), TAIL[1]))
    assert (
        value.since_us,
        read(cut=replace(CUT, increment=Increment(vector(), since_us=7))).since_us,
    ) == (None, 7)


def test_conditions_leave_out_ranges_of_the_tail_where_one_side_is_read() -> None:
    def tail(needs: StatementNeeds, side: Side = Side.BOTH) -> tuple[OffsetRange, ...]:
        table = ResolvedTable(FLOWS, side)
        return plan_read(needs, table, CUT, is_open=True, rows=conditions(2)).tail

    assert tail(NEEDS) == TAIL[1:]
    shared = frozenset(ResolvedTable(FLOWS, side) for side in (Side.BOTH, Side.COLD))
    assert tail(replace(NEEDS, shared=shared)) == TAIL
    assert tail(replace(NEEDS, shared=shared), Side.COLD) == ()


def test_a_bare_count_reads_no_cold_rows_where_all_count() -> None:
    count = replace(NEEDS, count_only=True)
    value = read(count)
    assert (value.cold, value.scans_cold, value.tail) == (ColdMode.COUNTED, False, TAIL)
    assert counted_rows([value.counted(5, lambda _: None)]) == 5
    # Files do not tell.
    assert value.counted(None, lambda _: None) == replace(value, cold=ColdMode.WHOLE)
    assert counted_rows([value.counted(None, lambda _: None)]) is None
    assert read(count, side=Side.COLD).cold is ColdMode.COUNTED
    assert read(count, side=Side.TAIL).cold is ColdMode.NONE
    assert read(count, PAST).cold is ColdMode.RANGES
    assert read(count, FOLLOWER).cold is ColdMode.WHOLE
    assert plan_read(count, TABLE, CUT, is_open=False).cold is ColdMode.WHOLE


def test_enough_rows_of_the_tail_need_no_others() -> None:
    look = replace(NEEDS, any_rows=3)
    value = read(look)
    assert value.any_rows == 3
    assert value.with_tail(2) == value
    enough = value.with_tail(3)
    assert (enough.cold, enough.newest_first) == (ColdMode.NONE, True)
    for other in (
        read(look, PAST),
        read(look, FOLLOWER),
        plan_read(look, TABLE, CUT, is_open=False),
    ):
        assert other.any_rows is None
        assert other.with_tail(3) == other


def test_columns_that_are_named_are_read() -> None:
    needs = replace(NEEDS, columns=frozenset(["n", "d", "other"]), compared=frozenset(["n"]))
    assert read(needs).columns == ColumnRead(
        ("n", "d"), uncompared=frozenset("d"), has_constant=True
    )
    # Without a column, rows could not be counted.
    none = replace(NEEDS, columns=frozenset())
    assert read(none).columns == ColumnRead(("kafka_partition",), has_constant=True)
    named = replace(NEEDS, columns=frozenset(["__tc:row"]))
    assert not read(named).columns.has_constant
    # Of a cut whose rows are left out by their offsets, and under a policy, all are read.
    assert read(needs, PAST).columns == read(needs, FOLLOWER).columns == ALL_COLUMNS
    hidden = plan_read(needs, TABLE, CUT, is_open=False)
    assert hidden.columns == ColumnRead(equals_zero=True)
    assert [field.name for field in read(needs).columns.of(PIN.schema.arrow)] == ["n", "d"]
    assert ALL_COLUMNS.of(PIN.schema.arrow) == PIN.schema.arrow


def test_statistics_of_floating_columns_answer_what_they_tell() -> None:
    nan, zero = frozenset("ab"), frozenset("a")
    assert ColumnRead().floats_exact(nan, zero) == nan
    assert ColumnRead(equals_zero=True).floats_exact(nan, zero) == zero
    assert ColumnRead(uncompared=frozenset("c")).floats_exact(nan, zero) == frozenset("abc")


def test_a_table_without_a_topic_has_one_side() -> None:
    plain = pin(binding=None)
    by_contract = ResolvedTable(FLOWS, Side.TAIL, by_contract=True)
    assert side_of(TABLE, plain) is Side.BOTH
    assert side_of(by_contract, plain) is Side.BOTH
    assert side_of(ResolvedTable(FLOWS, Side.COLD), plain) is Side.COLD
    assert side_of(by_contract, CUT) is Side.TAIL
    with pytest.raises(UnknownTable, match=r'lake.net.flows is not bound.* no "flows\$tail"'):
        plan_read(NEEDS, ResolvedTable(FLOWS, Side.TAIL), cold_cut(plain), is_open=True)


def test_a_share_reads_its_files_and_ranges() -> None:
    span = FileSpan(5, 9)
    share = plan_read(
        NEEDS, TABLE, CUT, is_open=True, rows=conditions(0), share=ReadShare(span, TAIL)
    )
    assert (share.cold, share.files, share.tail) == (ColdMode.WHOLE, span, TAIL[:1])
    tail = plan_read(NEEDS, TABLE, CUT, is_open=True, share=ReadShare(NO_FILE, TAIL[1:]))
    assert (tail.cold, tail.tail) == (ColdMode.NONE, TAIL[1:])


def test_a_divisible_read_is_split() -> None:
    scan = replace(NEEDS, plain_scan=True)
    assert not read(scan, FOLLOWER).is_divisible
    assert not read().is_divisible
    value = read(scan)
    assert value.is_divisible
    files = [(3, 10), (1 << 63, 10)]

    def split(
        value: TableRead, count: int, when: int = 5, *, hides: bool = False
    ) -> tuple[ReadShare, ...]:
        return split_read(value, files, count, statement_time_us=when, hides_count=hides)

    shares = split(value, 2)
    assert sorted(item for share in shares for item in share.ranges) == list(TAIL)
    assert {share.split for share in shares} == {shares[0].split}
    assert shares[0].split
    assert split(value, 1) == ()
    # The name holds the moment where the answer does.
    assert split(value, 2, when=6) == shares
    timed = read(replace(scan, tells_time=True))
    assert split(timed, 2)[0].split != split(timed, 2, when=6)[0].split
    hidden = split(value, 6, hides=True)
    assert [share.split for share in hidden] == [""] * 6
    assert hidden[-1] == ReadShare(NO_FILE, ())


def test_ranges_are_split_for_tasks() -> None:
    assert split_ranges(TAIL, 3) == (
        (OffsetRange(0, 10, 12),),
        (OffsetRange(0, 12, 15),),
        (OffsetRange(2, 0, 2),),
        (OffsetRange(2, 2, 4),),
    )
    assert split_ranges(TAIL, 3, 1) == (TAIL,)
    assert split_ranges((), 3, 9) == ()


def test_rows_in_arrow_are_left_out_by_range_and_time() -> None:
    rows = pa.Table.from_pylist(
        [
            {"kafka_partition": p, "kafka_offset": o, "kafka_timestamp": o * 10}
            for p in (0, 1)
            for o in range(4)
        ],
        pa.schema(
            [
                ("kafka_partition", pa.int32()),
                ("kafka_offset", pa.int64()),
                ("kafka_timestamp", pa.timestamp("us", tz="UTC")),
            ]
        ),
    )
    part = ArrowRelation(rows).within([OffsetRange(1, 1, 4)])
    assert part.table["kafka_offset"].to_pylist() == [1, 2, 3]
    late = ArrowRelation(rows).within([OffsetRange(1, 1, 4)], 20)
    assert late.table["kafka_offset"].to_pylist() == [2, 3]
    empty = ArrowRelation(rows.slice(0, 0))
    assert empty.within([OffsetRange(1, 1, 4)]) is empty


def test_needs_tell_tables_by_what_is_asked_of_them() -> None:
    sql = "SELECT n FROM t WHERE kafka_offset > 3 AND n = 1"
    document = parse(sql)
    [positions] = conjuncts(document).values()
    cold = ResolvedTable(FLOWS, Side.COLD)
    needs = StatementNeeds.of(document, {TABLE: positions, cold: ((),)})
    assert needs.offset_bound == {TABLE}
    assert needs.shared == {TABLE, cold}
    # Of one table alone.
    assert not needs.plain_scan
    assert StatementNeeds.of(document, {TABLE: positions}).plain_scan
    assert EVERYTHING == ((),)
    assert EVERY_FILE.is_whole


def test_rows_of_a_relation_within_ranges_are_those_of_its_sql() -> None:
    rows = SqlRelation(
        "SELECT 0::INTEGER AS kafka_partition, unnest([4, 5, 6]) AS kafka_offset"
    )
    answer = duckdb.sql(rows.within([OffsetRange(0, 5, 7)]).sql).fetchall()
    assert sorted(answer) == [(0, 5), (0, 6)]
