"""The tierer of a keyed table whose log may have lost deletes, over the doubles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from connectors.decoding.registry import decoder_for
from connectors.jobs import tier
from connectors.jobs.loop import LoopLimits, TableLoop
from connectors.jobs.tier import TieringJob, TieringTable
from planner.errors import TombstonesExpired
from planner.tiering.triggers import Lag, LogRetention
from tests.doubles.cold import no_fault
from tests.doubles.tiering import MemoryTieringTarget
from tests.harness.keyed_lake import DEVICES, KeyedLake

DAY_S = 86_400.0
#: Keys of one partition.
DELETED, CHANGED = (1, "eu"), (3, "eu")


@pytest.fixture
def lake() -> Iterator[KeyedLake]:
    """Two rows of a partition in cold; then one of them is deleted and the other changed twice, a day and a half ago."""
    value = KeyedLake()
    value.change(DELETED, "open")
    value.change(CHANGED, "open")
    value.tier()
    value.change(DELETED, None)
    value.change(CHANGED, "first")
    value.change(CHANGED, "second")
    value.now_s += 1.5 * DAY_S
    yield value
    value.stop_server()


def drain(
    lake: KeyedLake, *, is_readable: bool = True, fault: Callable[[str], None] = no_fault
) -> None:
    """Tier all there is, as ``thermocline tier --once`` does."""
    retention = LogRetention(deletes_s=DAY_S)
    job = TieringJob(
        lake.log,
        tables=lambda: [DEVICES],
        open_target=lambda name: MemoryTieringTarget(
            *(lake.store, name, lake.log, partial(decoder_for, str(DEVICES))), fault=fault
        ),
        retentions=lambda topics: dict.fromkeys(topics, retention) if is_readable else {},
        now_s=lambda: lake.now_s,
    )
    TableLoop(job, listeners=[], limits=LoopLimits()).drain()


def test_a_log_that_may_have_lost_deletes_is_not_tiered(lake: KeyedLake) -> None:
    lake.log.compact("devices", 1, deletes=True)
    before = lake.mark
    with pytest.raises(TombstonesExpired, match="keeps deletes for 86,400 s"):
        drain(lake)
    with pytest.raises(TombstonesExpired, match="its settings cannot be read"):
        drain(lake, is_readable=False)
    assert lake.mark == before


def test_a_log_without_a_hole_is_tiered_after_any_time(lake: KeyedLake) -> None:
    """A quiet topic's tierer that runs each day, or was away for one."""
    drain(lake)
    assert lake.mark.next == lake.end
    assert lake.ask("SELECT id, status FROM devices$cold").to_pylist() == [
        {"id": 3, "status": "second"}
    ]


def test_a_delete_that_is_lost_while_it_is_tiered_is_not_missed(lake: KeyedLake) -> None:
    before = lake.mark

    def clean(step: str) -> None:
        if step == "stage":
            lake.log.compact("devices", 1, deletes=True)

    with pytest.raises(TombstonesExpired):
        drain(lake, fault=clean)
    assert lake.mark == before


def test_changes_that_a_publish_left_are_as_old_as_they_were() -> None:
    lake = KeyedLake()
    lake.change(DELETED, "open")
    lake.tier()
    for status in ("first", "second"):
        lake.change(CHANGED, status)
    lake.change(DELETED, None)
    lake.change(CHANGED, "third")
    for _ in range(2):
        lake.now_s += 0.4 * DAY_S
        lake.tier(max_rows=1)
    lake.now_s += 0.4 * DAY_S
    lake.log.compact("devices", 1, deletes=True)
    before = lake.mark
    with pytest.raises(TombstonesExpired, match="103,680 s ago"):
        drain(lake)
    assert lake.mark == before
    lake.stop_server()


def test_a_tierer_knows_after_a_rollback_that_it_read_the_rest_long_ago() -> None:
    lake = KeyedLake()
    lake.change(DELETED, "open")
    lake.tier()
    before = lake.store.facts(DEVICES).head
    assert before is not None
    for status in ("first", "second"):
        lake.change(CHANGED, status)
    lake.change(DELETED, None)
    lake.change(CHANGED, "third")
    lake.tier()
    table = table_of(lake)
    lake.now_s += 1.5 * DAY_S
    assert lag_of(lake, table).rows == 0
    lake.log.compact("devices", 1, deletes=True)
    lake.store.rollback(DEVICES, before)
    with pytest.raises(TombstonesExpired, match="129,600 s ago"):
        lag_of(lake, table)
    lake.stop_server()


def table_of(lake: KeyedLake) -> TieringTable:
    decoder = partial(decoder_for, str(DEVICES))
    target = MemoryTieringTarget(lake.store, DEVICES, lake.log, decoder)
    return TieringTable(name=DEVICES, target=target, retention=LogRetention(deletes_s=DAY_S))


def lag_of(lake: KeyedLake, table: TieringTable) -> Lag:
    """Look at a table as the tierer does now and then."""
    table.survey = table.target.survey()
    bounds = lake.log.measure(["devices"])["devices"]
    now_s = lake.now_s
    return table.lag(lake.log, table.target.pin(), bounds, clock_s=now_s, now_s=now_s)


def test_records_are_not_counted_without_end(
    lake: KeyedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier, "_COUNTED_OFFSETS", 2)
    with pytest.raises(TombstonesExpired):
        drain(lake)
