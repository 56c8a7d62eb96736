"""What every cold store does, in memory and over pyiceberg with a SQLite catalog."""

from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest

from planner.errors import (
    BadBinding,
    BadConfig,
    CutExpired,
    ForeignCommit,
    SnapshotExpired,
    UnknownTable,
    UnsupportedType,
    WatermarkMissing,
    WatermarkUnreadable,
)
from planner.names import TableName
from planner.schema import Column
from planner.seam.binding import Binding
from planner.seam.cut import Pin
from tests.fixtures.cold import ColdHarness, cold_slice
from tests.harness.builders import FLOWS, watermark
from tests.harness.cold_answers import BASE, offsets, refused, watermark_of

OTHER = TableName("lake", ("net", "eu"), "flows")


# Listing and first pins.


def test_a_new_table_stands_on_its_first_watermark_and_has_no_rows(cold: ColdHarness) -> None:
    cold.create(first=watermark(5, 0), comment="flows of the day")
    pin = cold.store.pin(FLOWS)
    assert pin.snapshot_id is not None
    assert pin.watermark is not None
    assert pin.watermark.next.as_dict() == {0: 5, 1: 0}
    assert pin.binding == Binding("flows")
    assert pin.binding.table_uuid == pin.table_uuid != ""
    assert pin.comment == "flows of the day"
    assert pin.schema.names == (
        "kafka_partition",
        "kafka_offset",
        "kafka_timestamp",
        "host",
        "bytes",
    )
    assert [column.field_id for column in pin.schema.columns] == [1, 2, 3, 4, 5]
    assert pin.schema.columns[3].doc == "who sent it"
    assert cold.read(cold_slice(pin)).num_rows == 0


def test_tables_of_all_namespaces_are_listed_in_order(cold: ColdHarness) -> None:
    assert cold.store.tables() == ()
    cold.create(OTHER)
    cold.create()
    cold.create_plain(TableName("lake", ("net",), "hosts"), None)
    assert cold.store.tables() == (
        FLOWS,
        TableName("lake", ("net",), "hosts"),
        OTHER,
    )


@pytest.mark.parametrize(
    "name",
    [
        TableName("lake", ("net",), "nothing"),
        TableName("lake", ("nowhere", "at all"), "flows"),
    ],
)
def test_a_name_nobody_created_is_unknown(cold: ColdHarness, name: TableName) -> None:
    cold.create()
    with pytest.raises(UnknownTable, match="there is no such table"):
        cold.store.pin(name)


def test_a_dropped_table_is_unknown(cold: ColdHarness) -> None:
    cold.create()
    cold.drop()
    with pytest.raises(UnknownTable):
        cold.store.pin(FLOWS)


def test_a_table_is_not_created_twice(cold: ColdHarness) -> None:
    cold.create()
    with pytest.raises(BadConfig, match="the table exists already"):
        cold.create()


def test_an_unbound_table_is_pinned_without_a_watermark(cold: ColdHarness) -> None:
    hosts = TableName("lake", ("net",), "hosts")
    cold.create_plain(hosts, pa.table({"name": ["a", "b"], "seen": pa.array([1, None])}))
    pin = cold.store.pin(hosts)
    assert (pin.binding, pin.watermark) == (None, None)
    assert cold.read(cold_slice(pin)).to_pydict() == {"name": ["a", "b"], "seen": [1, None]}


def test_a_table_without_a_snapshot_has_typed_columns_and_no_rows(cold: ColdHarness) -> None:
    hosts = TableName("lake", ("net",), "hosts")
    cold.create_plain(hosts, None)
    pin = cold.store.pin(hosts)
    assert pin.snapshot_id is None
    assert cold.read(cold_slice(pin)).schema.equals(pa.schema({"id": pa.int64()}))


# The watermark comes from the pinned snapshot's own ancestry.


def test_tiering_moves_rows_and_watermark_together(cold: ColdHarness) -> None:
    cold.create()
    before = cold.store.pin(FLOWS)
    snapshot = cold.tier(BASE, 3, 0)
    after = cold.store.pin(FLOWS)
    assert after.snapshot_id == snapshot
    assert watermark_of(cold) == {0: 3, 1: 0}
    assert offsets(cold, after) == [0, 1, 2]
    assert offsets(cold, before) == []


def test_an_advance_without_rows_is_an_advance(cold: ColdHarness) -> None:
    cold.create()
    cold.tier([], 7, 0)
    assert watermark_of(cold) == {0: 7, 1: 0}


def test_a_compaction_keeps_the_watermark(cold: ColdHarness) -> None:
    cold.create()
    cold.tier(BASE, 3, 0)
    compacted = cold.compact()
    pin = cold.store.pin(FLOWS)
    assert pin.snapshot_id == compacted
    assert watermark_of(cold) == {0: 3, 1: 0}
    assert offsets(cold, pin) == [0, 1, 2]


def test_a_deleted_row_leaves_the_watermark(cold: ColdHarness) -> None:
    cold.create()
    cold.tier(BASE, 3, 0)
    cold.delete(1)
    assert watermark_of(cold) == {0: 3, 1: 0}
    assert offsets(cold, cold.store.pin(FLOWS)) == [0, 2]


def test_deleting_the_last_row_leaves_the_watermark(cold: ColdHarness) -> None:
    cold.create()
    cold.tier(BASE[:1], 1, 0)
    cold.delete(0)
    assert watermark_of(cold) == {0: 1, 1: 0}
    assert offsets(cold, cold.store.pin(FLOWS)) == []


def test_an_update_below_the_watermark_is_allowed(cold: ColdHarness) -> None:
    cold.create()
    cold.tier(BASE, 3, 0)
    cold.update(1, "changed")
    pin = cold.store.pin(FLOWS)
    assert watermark_of(cold) == {0: 3, 1: 0}
    assert sorted(cold.read(cold_slice(pin))["host"].to_pylist()) == ["a", "c", "changed"]


def test_an_update_of_a_file_with_several_partitions_is_looked_up_row_by_row(
    cold: ColdHarness,
) -> None:
    # Partition 1 ends at 2 and partition 0 at 9: only per partition does offset 8 lie below.
    cold.create()
    cold.tier([(0, 8, "a", 1), (1, 1, "b", 2)], 9, 2)
    cold.update(8, "changed")
    assert watermark_of(cold) == {0: 9, 1: 2}


def test_an_update_that_moves_a_row_above_the_watermark_is_refused(cold: ColdHarness) -> None:
    cold.create()
    cold.tier([(0, 8, "a", 1), (1, 1, "b", 2)], 9, 2)
    snapshot = cold.move(1, 7)
    refused(cold, ForeignCommit, str(snapshot), "offset 7 of partition 1")


def test_rows_another_writer_appended_are_refused(cold: ColdHarness) -> None:
    cold.create()
    cold.tier(BASE, 3, 0)
    snapshot = cold.append([(0, 1, "twice", 1)])
    refused(cold, ForeignCommit, str(snapshot), "roll the table back")


def test_a_refused_append_is_refused_behind_a_compaction_too(cold: ColdHarness) -> None:
    cold.create()
    cold.append([(0, 0, "x", 1)])
    cold.compact()
    refused(cold, ForeignCommit, "appended rows")


def test_a_rollback_takes_the_watermark_back(cold: ColdHarness) -> None:
    cold.create()
    first = cold.tier(BASE, 3, 0)
    cold.tier([(0, 3, "d", 4)], 4, 0)
    cold.rollback(first)
    assert watermark_of(cold) == {0: 3, 1: 0}
    assert offsets(cold, cold.store.pin(FLOWS)) == [0, 1, 2]


def test_tiering_goes_on_after_a_rollback(cold: ColdHarness) -> None:
    cold.create()
    first = cold.tier(BASE, 3, 0)
    cold.tier([(0, 3, "d", 4)], 4, 0)
    cold.rollback(first)
    cold.tier([(0, 3, "d", 4), (0, 4, "e", 5)], 5, 0)
    assert watermark_of(cold) == {0: 5, 1: 0}
    assert offsets(cold, cold.store.pin(FLOWS)) == [0, 1, 2, 3, 4]


def test_rolling_back_a_foreign_append_makes_the_table_answer_again(cold: ColdHarness) -> None:
    cold.create()
    ours = cold.tier(BASE, 3, 0)
    cold.append([(0, 1, "twice", 1)])
    cold.rollback(ours)
    assert watermark_of(cold) == {0: 3, 1: 0}


# Expiry.


def test_expiry_keeps_what_the_head_carries(cold: ColdHarness) -> None:
    cold.create()
    created = cold.store.pin(FLOWS).snapshot_id
    first = cold.tier(BASE, 3, 0)
    cold.tier([(0, 3, "d", 4)], 4, 0)
    assert created is not None
    cold.expire(created, first)
    assert watermark_of(cold) == {0: 4, 1: 0}
    assert offsets(cold, cold.store.pin(FLOWS)) == [0, 1, 2, 3]


def test_the_tag_carries_the_watermark_over_two_compactions_and_an_expiry(
    cold: ColdHarness,
) -> None:
    cold.create()
    cold.tier(BASE, 3, 0)
    hidden = cold.compact()
    cold.compact()
    cold.expire(hidden)
    cold.lose_older_files()
    assert watermark_of(cold) == {0: 3, 1: 0}
    assert offsets(cold, cold.store.pin(FLOWS)) == [0, 1, 2]


def test_an_expired_carrier_without_a_tag_is_refused(cold: ColdHarness) -> None:
    cold.create()
    created = cold.store.pin(FLOWS).snapshot_id
    ours = cold.tier(BASE, 3, 0)
    cold.compact()
    cold.tag(None)
    assert created is not None
    cold.expire(created, ours)
    cold.lose_older_files()
    refused(cold, WatermarkMissing)


def test_a_mirror_that_disagrees_with_the_tag_proves_nothing(cold: ColdHarness) -> None:
    cold.create()
    cold.tier(BASE, 3, 0)
    hidden = cold.compact()
    cold.compact()
    cold.expire(hidden)
    cold.set_properties(watermark="{}")
    cold.lose_older_files()
    refused(cold, WatermarkMissing, "the tag and the mirror property disagree")


def test_the_mirror_alone_changes_nothing_while_the_ancestry_speaks(cold: ColdHarness) -> None:
    cold.create()
    cold.tier(BASE, 3, 0)
    cold.set_properties(watermark=None)
    assert watermark_of(cold) == {0: 3, 1: 0}


def test_a_slice_of_an_expired_snapshot_is_a_stale_plan(cold: ColdHarness) -> None:
    cold.create()
    cold.tier(BASE, 3, 0)
    pin = cold.store.pin(FLOWS)
    cold.lose_files(pin)
    with pytest.raises(SnapshotExpired, match="plan the statement again") as caught:
        cold.read(cold_slice(pin))
    assert "/" not in caught.value.message


# Binding and schema.


def test_a_topic_on_a_table_without_a_watermark_is_refused(cold: ColdHarness) -> None:
    hosts = TableName("lake", ("net",), "flows")
    cold.create_plain(hosts, None)
    cold.set_properties(topic="flows")
    with pytest.raises(BadBinding, match="no column kafka_partition"):
        cold.store.pin(hosts)


def test_a_typing_error_in_a_binding_is_refused(cold: ColdHarness) -> None:
    cold.create()
    cold.set_properties(on_eror="skip")
    refused(cold, BadBinding, "thermocline.on_eror")


def test_taking_the_topic_away_serves_plain_rows(cold: ColdHarness) -> None:
    cold.create()
    cold.tier(BASE, 3, 0)
    cold.set_properties(topic=None)
    pin = cold.store.pin(FLOWS)
    assert pin.binding is None
    assert offsets(cold, pin) == [0, 1, 2]


def test_an_epoch_unit_reaches_its_column_by_field_id(cold: ColdHarness) -> None:
    cold.create()
    cold.set_properties(**{"epoch_unit.5": "ms"})
    units = {column.name: column.epoch_unit for column in cold.store.pin(FLOWS).schema.columns}
    assert units["bytes"] == "ms"
    assert set(units.values()) == {None, "ms"}


def test_rows_tiered_before_a_column_was_added_are_null_in_it(cold: ColdHarness) -> None:
    cold.create()
    cold.tier(BASE, 3, 0)
    cold.add_column("asn", pa.int64())
    pin = cold.store.pin(FLOWS)
    assert pin.schema.columns[-1].field_id == 6
    assert cold.read(cold_slice(pin))["asn"].to_pylist() == [None, None, None]


def test_a_renamed_column_keeps_its_rows_and_the_key_it_had(cold: ColdHarness) -> None:
    cold.create()
    cold.tier(BASE, 3, 0)
    cold.rename_column("host", "source")
    pin = cold.store.pin(FLOWS)
    column = pin.schema.columns[3]
    assert (column.name, column.field_id, column.keys) == ("source", 4, ("source", "host"))
    assert sorted(cold.read(cold_slice(pin))["source"].to_pylist()) == ["a", "b", "c"]


def test_a_widened_column_keeps_its_rows(cold: ColdHarness) -> None:
    cold.create()
    cold.tier(BASE, 3, 0)
    cold.widen_column("bytes")
    cold.tier([(0, 3, "d", 2**40)], 4, 0)
    pin = cold.store.pin(FLOWS)
    read = cold.read(cold_slice(pin))
    assert pin.schema.columns[4].type == pa.int64()
    assert read.schema.field("bytes").type == pa.int64()
    assert sorted(read["bytes"].to_pylist()) == [1, 2, 3, 2**40]


def test_a_column_dropped_and_added_again_does_not_show_its_old_values(
    cold: ColdHarness,
) -> None:
    cold.create()
    cold.tier(BASE, 3, 0)
    cold.drop_column("host")
    cold.add_column("host", pa.string())
    pin = cold.store.pin(FLOWS)
    assert cold.read(cold_slice(pin))["host"].to_pylist() == [None, None, None]


def test_an_old_pin_keeps_its_columns_while_the_table_moves_on(cold: ColdHarness) -> None:
    cold.create()
    cold.tier(BASE, 3, 0)
    old = cold.store.pin(FLOWS)
    cold.rename_column("host", "source")
    cold.tier([(0, 3, "d", 4)], 4, 0)
    read = cold.read(cold_slice(old))
    assert read.column_names == list(old.schema.names)
    assert sorted(read["host"].to_pylist()) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "kind", [pa.time64("us"), pa.timestamp("ns"), pa.timestamp("ns", tz="UTC")]
)
def test_a_bound_table_cannot_hold_types_spark_cannot_load(
    cold: ColdHarness, kind: pa.DataType
) -> None:
    with pytest.raises(UnsupportedType, match="column at holds time"):
        cold.create(columns=[Column(0, "at", kind)])
    assert cold.store.tables() == ()


def test_a_time_column_added_later_is_refused_by_name(cold: ColdHarness) -> None:
    cold.create()
    cold.add_column("at", pa.time64("us"))
    refused(cold, UnsupportedType, "column at holds time")


def test_a_watermark_of_a_newer_version_is_refused(cold: ColdHarness) -> None:
    cold.create()
    cold.tier_text('{"v":4}')
    with pytest.raises(WatermarkUnreadable, match="run a newer Thermocline"):
        cold.store.pin(FLOWS)


# Pins of other replicas.


def test_the_pin_of_a_ticket_is_built_again_from_its_metadata_file(cold: ColdHarness) -> None:
    cold.create()
    cold.tier(BASE, 3, 0)
    old = cold.store.pin(FLOWS)
    cold.tier([(0, 3, "d", 4)], 4, 0)
    assert pin_again(cold, old) == old
    assert offsets(cold, pin_again(cold, old)) == [0, 1, 2]


def test_the_pin_of_another_table_under_the_same_name_is_stale(cold: ColdHarness) -> None:
    cold.create()
    old = cold.store.pin(FLOWS)
    cold.drop()
    cold.create()
    with pytest.raises(SnapshotExpired, match="plan the statement again"):
        pin_again(cold, old)


def test_a_metadata_file_the_table_never_had_is_stale(cold: ColdHarness) -> None:
    cold.create()
    pin = cold.store.pin(FLOWS)
    for wrong in (
        dataclasses.replace(pin, metadata_location="elsewhere/00009-x.metadata.json"),
        dataclasses.replace(pin, snapshot_id=1234567),
    ):
        with pytest.raises(SnapshotExpired):
            pin_again(cold, wrong)


# Versions: other snapshots that the newest metadata file retains.


def test_a_version_stands_on_its_own_watermark(cold: ColdHarness) -> None:
    cold.create()
    first = cold.tier(BASE, 3, 0)
    second = cold.tier([(0, 3, "d", 4), (1, 0, "e", 5)], 4, 1)
    cold.delete(0)
    newest = cold.store.pin(FLOWS)
    for snapshot, rows, mark in (
        (first, [0, 1, 2], watermark(3, 0)),
        (second, [0, 0, 1, 2, 3], watermark(4, 1)),
    ):
        pin = cold.store.pin_version(newest, snapshot)
        assert pin.snapshot_id == snapshot
        assert pin.watermark is not None
        assert pin.watermark.next == mark.next
        assert pin.metadata_location == newest.metadata_location
        assert offsets(cold, pin) == rows
        assert pin_again(cold, pin) == pin
        assert cold.store.totals(cold_slice(pin)).records == len(rows)
    assert offsets(cold, newest) == [1, 2, 3]


def test_a_version_has_the_columns_it_was_written_with(cold: ColdHarness) -> None:
    cold.create()
    first = cold.tier(BASE, 3, 0)
    cold.rename_column("host", "source")
    cold.add_column("port", pa.int32())
    between = cold.store.pin(FLOWS)
    second = cold.tier([(0, 3, "d", 4)], 4, 0)
    newest = cold.store.pin(FLOWS)
    old = cold.store.pin_version(newest, first)
    assert old.schema.names[3:] == ("host", "bytes")
    assert sorted(cold.read(cold_slice(old))["host"].to_pylist()) == ["a", "b", "c"]
    assert cold.store.pin_version(newest, second).schema == newest.schema
    # The head is pinned in the current schema, and as a version in its own.
    assert between.snapshot_id == first
    assert between.schema.names[3:] == ("source", "bytes", "port")
    assert cold.store.pin_version(between, first).schema == old.schema
    for pin in (old, between, cold.store.pin_version(between, first)):
        assert pin_again(cold, pin) == pin
        assert offsets(cold, pin) == [0, 1, 2]
    with pytest.raises(SnapshotExpired):
        pin_again(
            cold, dataclasses.replace(old, schema=dataclasses.replace(old.schema, schema_id=9))
        )


def test_a_version_of_another_line_is_no_foreign_commit(cold: ColdHarness) -> None:
    cold.create()
    first = cold.tier(BASE, 3, 0)
    foreign = cold.append([(None, None, "x", 9)])
    cold.rollback(first)
    pin = cold.store.pin(FLOWS)
    assert offsets(cold, cold.store.pin_version(pin, first)) == [0, 1, 2]
    with pytest.raises(ForeignCommit):
        cold.store.pin_version(pin, foreign)


def test_a_version_is_retained_or_refused_by_name(cold: ColdHarness) -> None:
    cold.create()
    first = cold.tier(BASE, 3, 0)
    second = cold.tier([(0, 3, "d", 4)], 4, 0)
    before = cold.store.pin(FLOWS)
    cold.expire(first)
    pin = cold.store.pin(FLOWS)
    assert first in cold.store.retained(before).ids
    assert first not in cold.store.retained(pin).ids
    assert second in cold.store.retained(pin).ids
    with pytest.raises(
        CutExpired, match=rf"lake.net.flows: snapshot {first} is not one of the \d that"
    ):
        cold.store.pin_version(pin, first)


def test_what_was_current_when_is_told(cold: ColdHarness) -> None:
    cold.create()
    first = cold.tier(BASE, 3, 0)
    second = cold.tier([(0, 3, "d", 4)], 4, 0)
    result = cold.store.retained(cold.store.pin(FLOWS))
    assert [snapshot for _, snapshot in result.log][-2:] == [first, second]
    assert result.current_at(result.log[0][0] - 1) is None
    assert result.current_at(2**62) == second


def pin_again(cold: ColdHarness, pin: Pin) -> Pin:
    return cold.store.pin_at(pin.reference)
