"""A column comes or widens: what is read again of the tail, and that nobody notices but by the values."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from connectors.registry.decoders import Decoders
from connectors.registry.texts import UnknownSchema, WriterText
from planner.errors import LogUnavailable, UndecodableRecord
from planner.schema import Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.boundary import RetentionBoundary
from planner.seam.formats import AvroFormat
from planner.seam.schemas_table import SCHEMAS_SCHEMA, SchemaFacts, schema_rows
from proxy.tail import followed_table, generations
from tests.harness.avro_decoder import framed
from tests.harness.builders import FLOWS, schema
from tests.harness.tails import LIMITS, TailHarness, tail_harness

ANSWERS = {
    number: WriterText(
        number, f'{{"type":"record","name":"R","fields":[{fields}]}}', {}, "AVRO"
    )
    for number, fields in {
        1: '{"name":"n","type":"int"}',
        2: '{"name":"n","type":"int"},{"name":"x","type":"int"}',
        3: '{"name":"n","type":"long"}',
        4: '{"name":"n","type":"int"},{"name":"t","type":{"type":"long","logicalType":"local-timestamp-micros"}}',
    }.items()
}
N, WIDE = Column(10, "n", pa.int32()), Column(10, "n", pa.int64())
X = Column(11, "x", pa.int32())
BEFORE, AFTER = schema(N), replace(schema(N, X), schema_id=1)
WIDER = replace(schema(WIDE), schema_id=2)
SEGMENT_ROWS = 10
#: -4 as Avro writes it, and 2^31.
VALUE, BEYOND = b"\7", b"\x80\x80\x80\x80\x10"
OLD, NEW, LONG = framed(1, VALUE), framed(2, VALUE + VALUE), framed(3, VALUE)


@contextmanager
def tails_of(**options: Any) -> Iterator[TailHarness]:
    """Tails whose topic's schemas are known."""
    on_error = options.pop("on_error", "fail")
    binding = Binding(
        "flows", AvroFormat(), on_error=on_error, boundary=options.pop("boundary", None)
    )
    decoders = Decoders()
    decoders.add(str(FLOWS), binding, ANSWERS)
    with tail_harness(binding=binding, decoders=decoders, **options) as harness:
        yield harness


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generations, "SEGMENT_ROWS", SEGMENT_ROWS)


def values(harness: TailHarness, columns: TableSchema, *watermark: int) -> list[Any]:
    """Read all rows: partition, offset and the columns of the payload."""
    cut = harness.cut(*(watermark or (0, 0)), columns=columns)
    names = ", ".join(["kafka_partition", "kafka_offset", *(c.name for c in columns.payload)])
    with harness.tails.read(cut, lambda: None) as tail:
        return harness.rows(tail, names)


def newly_decoded(harness: TailHarness, columns: TableSchema, *watermark: int) -> int:
    """Read all rows under a schema; return how many records were decoded for it."""
    before = harness.decoded
    values(harness, columns, *watermark)
    return harness.decoded - before


def steps(harness: TailHarness, *batches: tuple[int, bytes, int]) -> None:
    """Write so many records of a partition, and have each batch followed by itself."""
    for partition, value, count in batches:
        harness.write(partition, *[value] * count)
        values(harness, BEFORE)


def test_a_column_that_no_record_has_is_null_at_once() -> None:
    with tails_of() as harness:
        steps(harness, (0, OLD, 25), (1, OLD, 7), (0, OLD, 3))
        assert newly_decoded(harness, AFTER) == 0
        assert values(harness, AFTER) == [
            *((0, at, -4, None) for at in range(28)),
            *((1, at, -4, None) for at in range(7)),
        ]
        # What comes then is read under the new schema.
        harness.write(0, NEW)
        assert values(harness, AFTER)[28] == (0, 28, -4, -4)
        assert newly_decoded(harness, AFTER) == 0


def test_segments_that_have_the_field_are_fetched_again() -> None:
    with tails_of() as harness:
        # An id that comes up closes the segment before; the log gives seven records at a time.
        steps(harness, (0, OLD, 25), (1, OLD, 3), (0, NEW, 2), (0, OLD, 4), (1, OLD, 30))
        assert newly_decoded(harness, AFTER) == 2 + 4 + 7
        assert values(harness, AFTER) == [
            *((0, at, -4, -4 if at in (25, 26) else None) for at in range(31)),
            *((1, at, -4, None) for at in range(33)),
        ]


def test_a_tail_tells_between_which_offsets_an_id_has_rows() -> None:
    def tail_of(harness: TailHarness, *watermark: int) -> dict[object, object]:
        cut = harness.cut(*watermark, columns=BEFORE)
        ranges = harness.tails.ranges_of_ids(cut)
        rows = schema_rows(cut.binding, map(SchemaFacts, (1, 2, 3)), cut.hot, ranges)
        table = pa.Table.from_pylist(rows, schema=SCHEMAS_SCHEMA)
        return {
            row["schema_id"]: row["tail"] and [tuple(each.values()) for each in row["tail"]]
            for row in table.to_pylist()
        }

    with tails_of() as harness:
        assert tail_of(harness, 0, 0) == {1: None, 2: None, 3: None}
        # Records of id 2 are at 25 and 26; those behind them are in the same segment.
        steps(harness, (0, OLD, 25), (1, OLD, 3), (0, NEW, 2), (0, OLD, 4))
        assert tail_of(harness, 0, 0) == {1: [(0, 0, 30), (1, 0, 2)], 2: [(0, 25, 30)], 3: None}
        assert tail_of(harness, 28, 3) == {1: [(0, 28, 30)], 2: [(0, 28, 30)], 3: None}


def test_a_wider_column_has_its_values_and_is_written_anew_behind() -> None:
    with tails_of() as harness:
        steps(harness, (0, OLD, 25), (0, LONG, 5))
        for _ in range(2):
            harness.tails.pack()
        assert harness.state().packed
        assert newly_decoded(harness, WIDER) == 0
        expected = [(0, at, -4) for at in range(30)]
        assert values(harness, WIDER) == expected
        with harness.tails.read(harness.cut(0, 0, columns=WIDER), lambda: None) as tail:
            assert all("CAST" in part.sql for part in tail.relations)
        for _ in range(2):
            harness.tails.pack()
        with harness.tails.read(harness.cut(0, 0, columns=WIDER), lambda: None) as tail:
            assert not any("CAST" in part.sql for part in tail.relations)
            assert harness.rows(tail) == expected


def test_a_number_beyond_the_column_is_an_error_until_it_is_widened() -> None:
    with tails_of() as harness:
        steps(harness, (0, OLD, 3))
        harness.write(0, framed(3, BEYOND))
        with pytest.raises(UndecodableRecord, match="is beyond int"):
            values(harness, BEFORE)
        assert values(harness, WIDER)[-1] == (0, 3, 2**31)


def test_records_that_were_skipped_for_their_number_are_rows_of_the_wider_column() -> None:
    """Also where a step had no row at all."""
    with tails_of(on_error="skip") as harness:
        harness.write(0, framed(3, BEYOND))
        assert values(harness, BEFORE) == []
        steps(harness, (0, OLD, 3))
        assert values(harness, WIDER) == [(0, 0, 2**31), *((0, at, -4) for at in (1, 2, 3))]


def test_records_of_an_unknown_id_are_read_again() -> None:
    binding, decoders = Binding("flows", AvroFormat(), on_error="skip"), Decoders()
    decoders.add(str(FLOWS), binding, {1: ANSWERS[1], 2: UnknownSchema("schema id 2")})
    with tail_harness(binding=binding, decoders=decoders) as harness:
        steps(harness, (0, OLD, 12))
        harness.write(0, OLD, NEW, OLD)
        assert len(values(harness, BEFORE)) == 14
        decoders.add(str(FLOWS), binding, ANSWERS)
        assert values(harness, AFTER)[13] == (0, 13, -4, -4)


@pytest.mark.parametrize("name", [None, "u"], ids=["dropped", "renamed"])
def test_rows_that_aged_out_by_a_column_are_rows_without_it(name: str | None) -> None:
    """As the tierer decodes them: what was left out under the schema of before must be read again."""
    time = Column(12, "t", pa.timestamp("us"))
    columns = schema(N, time)
    after = schema(N, *([] if name is None else [replace(time, name=name)]))
    with tails_of(boundary=RetentionBoundary(12, 1)) as harness:
        harness.write(0, *[framed(4, VALUE + moment) for moment in (b"\0", b"\2", b"\0")])
        assert values(harness, columns) == [(0, 1, -4, dt.datetime(1970, 1, 1, 0, 0, 0, 1))]
        # A column elsewhere in the schema leaves them where they are.
        beside = replace(schema(N, time, X), schema_id=1)
        assert newly_decoded(harness, beside) == 0
        rows = values(harness, replace(after, schema_id=2))
        assert rows == [(0, offset, -4, *[None] * (name is not None)) for offset in range(3)]


def test_old_cuts_keep_their_rows_and_what_is_lent_outlives_its_owner() -> None:
    with tails_of() as harness:
        steps(harness, (0, OLD, 25), (0, NEW, 5))
        ticket = harness.cut(0, 0, columns=BEFORE)
        new = values(harness, AFTER)
        assert len(harness.read(ticket)) == 30
        tail = harness.tails.read(ticket, lambda: None)
        harness.now_s = 11
        assert values(harness, AFTER) == new
        harness.now_s = 22
        values(harness, AFTER)
        harness.tails.tend()
        assert [each.schema_id for each in harness.tails.states()] == [AFTER.schema_id]
        assert len(harness.rows(tail)) == 30
        tail.close()
        assert values(harness, AFTER) == new
        # And a schema after that one.
        later = replace(schema(WIDE, X, Column(12, "y", pa.string())), schema_id=3)
        assert newly_decoded(harness, later) == 0
        assert values(harness, later) == [(*row, None) for row in new]


def test_rows_that_are_lent_on_keep_what_each_schema_made_of_them() -> None:
    with tails_of() as harness:
        steps(harness, (0, OLD, 25), (0, NEW, 5))
        new = values(harness, AFTER)
        later = replace(schema(WIDE, X, Column(12, "y", pa.string())), schema_id=3)
        assert newly_decoded(harness, later) == 0
        assert values(harness, later) == [(*row, None) for row in new]


def test_a_cut_that_begins_below_the_rows_that_are_left_has_all_of_its_own() -> None:
    with tails_of() as harness:
        steps(harness, (0, OLD, 30))
        # Statements at this watermark need no row below it, and one at another does.
        harness.now_s = 1000
        harness.tails.note_pin(harness.pin(21, 0, columns=BEFORE))
        values(harness, BEFORE, 21, 0)
        assert harness.state().ranges[0].start > 0
        assert values(harness, AFTER) == [(0, at, -4, None) for at in range(30)]


def test_records_without_rows_behind_the_last_row_are_not_read_again() -> None:
    with tails_of(on_error="skip") as harness:
        steps(harness, (0, OLD, 12), (0, b"no id", 30))
        assert newly_decoded(harness, AFTER) == 0
        assert values(harness, AFTER) == [(0, at, -4, None) for at in range(12)]


def test_what_was_tiered_is_not_fetched_again() -> None:
    with tails_of() as harness:
        steps(harness, (0, NEW, 12), (0, OLD, 12), (1, OLD, 20))
        # Those with the field are in Iceberg by now, and the log has lost them.
        harness.log.delete_records("flows", 0, 12)
        assert newly_decoded(harness, AFTER, 12, 5) == 0
        assert values(harness, AFTER, 12, 5) == [
            *((0, at, -4, None) for at in range(12, 24)),
            *((1, at, -4, None) for at in range(5, 20)),
        ]


def test_a_fetch_that_fails_leaves_the_rest_to_the_follower(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tails_of() as harness:
        steps(harness, (0, OLD, 25), (0, NEW, 5), (0, OLD, 20))

        def fail(*_: Any, **__: Any) -> Any:
            raise LogUnavailable("no broker answers")

        expected = [(0, at, -4, -4 if 25 <= at < 30 else None) for at in range(50)]
        with monkeypatch.context() as patch:
            patch.setattr(harness.log, "fetch", fail)
            with pytest.raises(LogUnavailable):
                values(harness, AFTER)
        assert values(harness, AFTER) == expected
        assert newly_decoded(harness, AFTER) == 0


def test_what_is_too_much_to_fetch_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_table, "FETCHED_RECORDS", 4)
    with tails_of() as harness:
        steps(harness, (0, OLD, 25), (0, NEW, 5), (0, OLD, 20))
        assert newly_decoded(harness, AFTER) == 25
        assert [row[3] for row in values(harness, AFTER)] == [
            *[None] * 25,
            *[-4] * 5,
            *[None] * 20,
        ]


def test_a_segment_on_disk_is_read_there_and_one_in_memory_may_go_there(tmp_path: Path) -> None:
    with tails_of(scratch=tmp_path) as harness:
        steps(harness, (0, OLD, 25), (0, OLD, 8))
        (entry,) = harness.tails._every()
        assert entry.generation.spill()
        assert newly_decoded(harness, WIDER) == 0
        (entry,) = [e for e in harness.tails._every() if e.source.schema == WIDER]
        while entry.generation.spill():
            pass
        assert entry.generation.memory_size == 0
        assert values(harness, WIDER) == [(0, at, -4) for at in range(33)]


def test_a_tail_under_another_policy_begins_anew() -> None:
    with tails_of() as harness:
        steps(harness, (0, OLD, 5))
        harness.binding = replace(harness.binding, on_error="skip")
        assert newly_decoded(harness, AFTER) == 5


def test_readers_of_both_schemas_over_a_growing_log_are_always_exact() -> None:
    """Followers, readers and the keeper at once, generations that come and go."""
    later = [
        replace(schema(WIDE, X, Column(12 + at, f"y{at}", pa.int32())), schema_id=9 + at)
        for at in range(6)
    ]
    schemas, stop = [BEFORE, AFTER, *later], threading.Event()
    written: list[list[bytes]] = [[], []]

    def grow() -> None:
        chance = Random(1)
        while not stop.is_set():
            at, value = chance.randint(0, 1), chance.choice([OLD, OLD, OLD, NEW])
            written[at] += [value] * 3
            harness.write(at, *[value] * 3)
            stop.wait(0.005)

    def keep() -> None:
        while not stop.is_set():
            harness.now_s += 0.001
            harness.tails.tend()
            harness.tails.pack()
            stop.wait(0.05)

    def read(number: int) -> None:
        chance = Random(number)
        for at in range(12):
            columns = schemas[min(at // 2 + chance.randint(0, 1), len(schemas) - 1)]
            cut = harness.cut(0, 0, columns=columns)
            assert cut.hot is not None
            names = ", ".join(
                ["kafka_partition", "kafka_offset", *(c.name for c in columns.payload)]
            )
            with harness.tails.read(cut, lambda: None) as tail:
                rows = harness.rows(tail, names)
            more = len(columns.payload) - 2
            x = [[-4 if value == NEW else None for value in values] for values in written]
            assert rows == [
                (
                    item.partition,
                    offset,
                    -4,
                    *[x[item.partition][offset], *[None] * more][: more + 1],
                )
                for item in cut.hot.ranges
                for offset in range(item.stop)
            ]

    with tails_of(threads=True, limits=replace(LIMITS, fetch_timeout_s=60)) as harness:
        harness.write(0, OLD)
        written[0].append(OLD)
        with ThreadPoolExecutor(6) as pool:
            helpers = [pool.submit(grow), pool.submit(keep)]
            try:
                for reader in [pool.submit(read, number) for number in range(4)]:
                    reader.result()
            finally:
                stop.set()
            for helper in helpers:
                helper.result()


def test_tails_of_json_begin_anew() -> None:
    with tail_harness(decoders=Decoders()) as harness:
        harness.write(0, b'{"n": 1, "x": 5}')
        assert values(harness, BEFORE) == [(0, 0, 1)]
        assert values(harness, AFTER) == [(0, 0, 1, 5)]


def test_ids_that_come_up_one_after_another_make_few_segments() -> None:
    answers = {at: replace(ANSWERS[1], id=at) for at in range(1, 60)}
    binding, decoders = Binding("flows", AvroFormat()), Decoders()
    decoders.add(str(FLOWS), binding, answers)
    with tail_harness(binding=binding, decoders=decoders) as harness:
        steps(harness, *((0, framed(at, VALUE), 1) for at in answers))
        assert harness.segments() < 30
        assert newly_decoded(harness, AFTER) == 0
