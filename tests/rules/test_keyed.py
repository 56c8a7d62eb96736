"""The rules of docs/seam-rules.md about keyed tables, as a statement meets them: real statements over the doubles."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.compute as pc
import pytest

from connectors.cuts import cut_tables
from connectors.decoding.registry import decoder_for
from connectors.repairs import Repairs
from planner.errors import ForeignCommit, KeyInTwoPartitions, TombstonesExpired
from planner.seam.watermark import Skip
from proxy.tail.housekeeping import Keeper
from tests.doubles.amending import MemoryRepairCommitter
from tests.doubles.log import MemoryRecord
from tests.harness.keyed import partition_of
from tests.harness.keyed_lake import DEVICES, PARTITIONS, KeyedLake

ROWS = "SELECT id, region, status FROM devices ORDER BY ALL"


@pytest.fixture
def lake() -> Iterator[KeyedLake]:
    """Two rows in cold, of one id."""
    value = KeyedLake()
    value.change((1, "eu"), "open")
    value.change((1, "us-east"), "open")
    value.tier()
    yield value
    value.stop_server()


def rows(lake: KeyedLake, sql: str = ROWS) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in lake.ask(sql).to_pylist()]


def test_a_delete_in_the_tail_hides_the_row_in_cold(lake: KeyedLake) -> None:
    lake.change((1, "eu"), None)
    assert rows(lake) == [(1, "us-east", "open")]


def test_a_newer_row_hides_the_older_one_that_a_statement_looks_for(lake: KeyedLake) -> None:
    lake.change((1, "eu"), "done")
    assert rows(lake, "SELECT region FROM devices WHERE status = 'open'") == [("us-east",)]


def test_a_row_is_known_by_all_columns_of_its_key(lake: KeyedLake) -> None:
    lake.change((1, "eu"), "done")
    assert rows(lake) == [(1, "eu", "done"), (1, "us-east", "open")]


def test_a_key_in_two_partitions_is_an_error_also_where_cold_has_it(lake: KeyedLake) -> None:
    other = 1 - partition_of((1, "eu"), PARTITIONS)
    record = MemoryRecord(b'{"status": "elsewhere"}', b'{"id": 1, "region": "eu"}')
    lake.log.append("devices", other, record)
    with pytest.raises(KeyInTwoPartitions) as caught:
        rows(lake)
    assert caught.value.message == (
        "lake.net.devices: a key has a row in partition 1 and a change in partition 0, so which is the newer is not known; have "
        "producers choose the partition by the key alone, and bind a new table to a topic that was written so."
    )


def test_of_the_changes_below_the_end_the_newest_decides(lake: KeyedLake) -> None:
    """A change beyond the cut hides nothing, and one in it hides those before."""
    lake.change((1, "eu"), "second")
    lake.change((1, "eu"), "third")
    ticket, _ = lake.plan(ROWS)
    lake.change((1, "eu"), "fourth")
    assert rows(lake) == [(1, "eu", "fourth"), (1, "us-east", "open")]
    then = lake.open(ticket).to_pylist()
    assert [row["status"] for row in then] == ["third", "open"]


def test_a_tail_is_read_whole_by_a_condition_on_offsets(lake: KeyedLake) -> None:
    lake.change((1, "eu"), "done")
    partition = partition_of((1, "eu"), PARTITIONS)
    below = lake.mark.offset(partition)
    sql = f"SELECT count(*) FROM devices WHERE kafka_partition = {partition} AND kafka_offset < {below}"
    assert rows(lake, sql) == [(0,)]


#: How long the log keeps deletes.
RETENTION_S = 86_400.0


@pytest.fixture
def old_delete(lake: KeyedLake) -> KeyedLake:
    """A key is deleted just after a publish, and the log keeps deletes for a day."""
    lake.deletes_s = RETENTION_S
    lake.change((1, "eu"), None)
    lake.change((3, "eu"), "first")
    lake.change((3, "eu"), "second")
    return lake


def clean(lake: KeyedLake, after_s: float) -> None:
    """Have the log cleaned so much later, when it loses deletes that are a day old."""
    lake.now_s += after_s
    lake.log.compact(
        "devices", partition_of((1, "eu"), PARTITIONS), deletes=after_s > RETENTION_S
    )


LEFT = [(1, "us-east", "open"), (3, "eu", "second")]


def test_a_delete_that_the_log_may_have_lost_is_an_error(old_delete: KeyedLake) -> None:
    clean(old_delete, RETENTION_S / 2)
    assert rows(old_delete) == LEFT
    old_delete.stop_server()
    old_delete.start_server()
    clean(old_delete, 1.1 * RETENTION_S)
    with pytest.raises(TombstonesExpired) as caught:
        rows(old_delete)
    assert caught.value.message == (
        "lake.net.devices: the last time that topic devices was surely read to its end was 138,240 s ago, and it keeps deletes "
        "for 86,400 s (delete.retention.ms), of which a tenth is left to clocks: some may be gone, and their rows would stay for "
        "ever; run `thermocline rebuild lake.net.devices`, and raise delete.retention.ms if tiering may stand as long again."
    )
    # What is tiered is what it was.
    assert rows(old_delete, "SELECT id, region FROM devices$cold ORDER BY ALL") == [
        (1, "eu"),
        (1, "us-east"),
    ]


def test_settings_that_cannot_be_read_are_taken_for_the_shortest(old_delete: KeyedLake) -> None:
    old_delete.deletes_s = None
    clean(old_delete, 3_000.0)
    assert rows(old_delete) == LEFT
    old_delete.now_s += 300.0
    with pytest.raises(
        TombstonesExpired, match=r"3,600 s \(assumed, since .* grant DescribeConfigs"
    ):
        rows(old_delete)


def test_a_log_without_a_hole_lost_no_delete(old_delete: KeyedLake) -> None:
    """Of a topic that is quiet for longer than it keeps deletes, the next change is one all the same."""
    old_delete.now_s += 100 * RETENTION_S
    assert rows(old_delete) == LEFT


def test_a_delete_that_the_server_read_in_time_stays(old_delete: KeyedLake) -> None:
    """It follows the log while nothing is tiered: what it read is not lost with the log's."""
    assert rows(old_delete) == LEFT
    for _ in range(6):
        old_delete.change((3, "eu"), "first")
        old_delete.change((3, "eu"), "second")
        clean(old_delete, RETENTION_S / 2)
        assert rows(old_delete) == LEFT
    old_delete.stop_server()
    old_delete.start_server()
    clean(old_delete, 1.1 * RETENTION_S)
    with pytest.raises(TombstonesExpired):
        rows(old_delete)


def test_a_tail_that_is_always_followed_stays_without_a_statement(
    old_delete: KeyedLake,
) -> None:
    lake = old_delete
    keeper = keeper_of(lake)
    keeper.follow()
    for _ in range(6):
        lake.change((3, "eu"), "first")
        lake.change((3, "eu"), "second")
        clean(lake, RETENTION_S / 2)
        lake.followers.step()
        # One round notes where the log ends, the next one that all of it was read.
        keeper.follow()
        keeper.follow()
    assert rows(lake) == LEFT


def keeper_of(lake: KeyedLake) -> Keeper:
    return Keeper(
        lake.tails,
        tables=[DEVICES],
        pins=tuple,
        cut=lambda table: cut_tables(lake.board, lake.log, [table])[table],
    )


@pytest.mark.parametrize("has_statements", [True, False])
def test_a_log_that_ended_at_the_watermark_had_no_delete_beyond_it(
    lake: KeyedLake, has_statements: bool
) -> None:
    """Of a quiet topic, all of which is tiered, the first transaction is answered: its marker is a hole, and no delete."""
    lake.deletes_s = RETENTION_S
    restart(lake)
    for _ in range(6):
        lake.now_s += RETENTION_S / 4
        if has_statements:
            assert len(rows(lake)) == 2
        else:
            keeper_of(lake).follow()
    assert len(rows(lake, "SELECT id FROM devices$cold")) == 2
    lake.change((3, "eu"), "second", in_transaction=True)
    lake.end_transaction(commit=True)
    assert rows(lake) == [(1, "eu", "open"), *LEFT]
    lake.tier()
    lake.board.refresh(DEVICES)
    lake.now_s += 1.1 * RETENTION_S
    lake.change((3, "eu"), "third", in_transaction=True)
    lake.end_transaction(commit=True)
    with pytest.raises(TombstonesExpired):
        rows(lake)


def test_a_statement_of_cold_rows_does_not_know_where_the_log_ends(
    old_delete: KeyedLake,
) -> None:
    assert rows(old_delete) == LEFT
    for _ in range(6):
        old_delete.now_s += RETENTION_S / 4
        assert len(rows(old_delete, "SELECT id FROM devices$cold")) == 2
    old_delete.change((3, "eu"), "second", in_transaction=True)
    old_delete.end_transaction(commit=True)
    with pytest.raises(TombstonesExpired):
        rows(old_delete)


def test_a_server_that_stopped_to_follow_may_have_missed_a_delete(lake: KeyedLake) -> None:
    lake.deletes_s = RETENTION_S
    for status in ("first", "second"):
        lake.change((3, "eu"), status)
    clean(lake, RETENTION_S / 2)
    assert rows(lake) == [(1, "eu", "open"), *LEFT]
    lake.change((1, "eu"), None)
    lake.change((3, "eu"), "second")
    clean(lake, 1.1 * RETENTION_S)
    with pytest.raises(TombstonesExpired):
        rows(lake)


def test_a_publish_ends_the_error(old_delete: KeyedLake) -> None:
    clean(old_delete, RETENTION_S / 2)
    old_delete.now_s += RETENTION_S
    with pytest.raises(TombstonesExpired):
        rows(old_delete)
    old_delete.tier()
    old_delete.change((3, "eu"), "third")
    old_delete.board.refresh(DEVICES)
    assert rows(old_delete) == [(1, "us-east", "open"), (3, "eu", "third")]


def test_a_publish_that_left_changes_says_nothing_of_their_age(lake: KeyedLake) -> None:
    """A tierer is away for most of a day, publishes a little and is away again."""
    lake.deletes_s = RETENTION_S
    for status in ("first", "second"):
        lake.change((3, "eu"), status)
    lake.change((1, "eu"), None)
    lake.change((3, "eu"), "third")
    lake.now_s += 0.8 * RETENTION_S
    lake.tier(max_rows=1)
    clean(lake, 0.1 * RETENTION_S)
    lake.board.refresh(DEVICES)
    assert rows(lake) == [(1, "us-east", "open"), (3, "eu", "third")]
    restart(lake)
    lake.log.compact("devices", partition_of((1, "eu"), PARTITIONS), deletes=True)
    lake.now_s += 0.7 * RETENTION_S
    with pytest.raises(TombstonesExpired, match="read to its end was 138,240 s ago"):
        rows(lake)
    lake.tier()
    restart(lake)
    assert lake.mark.published_s == lake.now_s


def test_a_record_that_is_given_up_says_nothing_of_lost_deletes(old_delete: KeyedLake) -> None:
    """A bad record stops tiering for days, and then it is skipped."""
    old_delete.bad(1, 3)
    clean(old_delete, 1.1 * RETENTION_S)
    offset = old_delete.end.as_dict()[1] - 1
    repairs = Repairs(MemoryRepairCommitter(old_delete.store), old_delete.log)
    repairs.skip(DEVICES, [Skip(1, offset, "no JSON")], decoder_for, force=True)
    restart(old_delete)
    with pytest.raises(TombstonesExpired, match="read to its end was 95,040 s ago"):
        rows(old_delete)


def test_a_table_without_a_row_has_none_to_delete() -> None:
    lake = KeyedLake()
    lake.deletes_s = RETENTION_S
    for status in ("first", "second", "third"):
        lake.change((1, "eu"), status)
    clean(lake, 2 * RETENTION_S)
    assert rows(lake) == [(1, "eu", "third")]
    lake.stop_server()


def test_a_cut_of_the_past_is_as_old_as_its_snapshot(old_delete: KeyedLake) -> None:
    cut = old_delete.plan(ROWS)[1].cut
    old_delete.tier()
    old_delete.board.refresh(DEVICES)
    assert rows(old_delete, ROWS.replace("devices", f"devices AT (VERSION => '{cut}')")) == LEFT
    clean(old_delete, 1.1 * RETENTION_S)
    old_delete.stop_server()
    old_delete.start_server()
    with pytest.raises(TombstonesExpired):
        rows(old_delete, ROWS.replace("devices", f"devices AT (VERSION => '{cut}')"))


REGION = pc.field("region")


def restart(lake: KeyedLake) -> None:
    """A server that knows no snapshot of before."""
    lake.stop_server()
    lake.start_server()


def test_a_key_that_another_writer_gave_two_rows_is_an_error_until_it_is_undone(
    lake: KeyedLake,
) -> None:
    lake.change((2, "eu"), "open")
    lake.tier()
    before = lake.store.facts(DEVICES).head
    assert before is not None
    lake.store.update(DEVICES, REGION == "us-east", "status", "seen")
    restart(lake)
    assert rows(lake, ROWS)[1] == (1, "us-east", "seen")
    snapshot_id = lake.store.update(DEVICES, pc.field("id") == 1, "region", "eu")
    message = (
        f"lake.net.devices: snapshot {snapshot_id} was committed by another writer above the watermark and a key has two rows "
        f"since; roll the table back to a snapshot before it, and write such rows to the topic; where none is left, create the "
        f"table again from its topic."
    )
    restart(lake)
    for act in (lambda: rows(lake), lambda: rows(lake, "SELECT id FROM devices"), lake.tier):
        with pytest.raises(ForeignCommit) as caught:
            act()
        assert caught.value.message == message
    # Neither does a rewrite of its files hide it, nor a delete of other rows.
    lake.compact()
    lake.store.delete(DEVICES, pc.field("id") == 2)
    restart(lake)
    with pytest.raises(ForeignCommit, match="a key has two rows since"):
        rows(lake)
    lake.store.rollback(DEVICES, before)
    restart(lake)
    assert len(rows(lake)) == 3


def test_a_key_of_which_another_writer_leaves_one_row_has_one(lake: KeyedLake) -> None:
    lake.store.update(DEVICES, pc.field("id") == 1, "region", "eu")
    lake.store.delete(DEVICES, pc.field("n") == 2)
    restart(lake)
    assert rows(lake) == [(1, "eu", "open")]
    lake.change((1, "eu"), "done")
    lake.tier()
    assert rows(lake) == [(1, "eu", "done")]
