"""Maintenance of a keyed table on real Spark and Iceberg: its deletes go, and its watermark, its key and all answers stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from connectors.iceberg.maintenance_facts import MaintenanceReader
from connectors.jobs.round import tier_once
from connectors.registry.decoders import shipped_decoder
from connectors.spark.publish.target import SparkTieringTarget
from planner.errors import TieringConflict
from planner.maintenance.steps import Compaction, Expiry, OrphanRemoval, WatermarkRenewal
from planner.seam.snapshots import live_rows
from planner.seam.watermark import Watermark
from planner.tiering.plan import plan_tiering
from proxy.engine.engine import Engine
from tests.fixtures.spark import BUDGET, BoundTable, SparkLake
from tests.harness.generated_log import TOPIC
from tests.harness.keyed_log import DEVICES, KEYED, KEYED_COLUMNS, KeyedLog
from tests.harness.maintaining import Care, folder_of
from tests.harness.serving import SESSION, answer_of, forget, plan, serve

pytestmark = pytest.mark.spark

_MONTH_H = 30 * 24
_COLD = 240


def target(table: BoundTable, log: KeyedLog) -> SparkTieringTarget:
    return table.target(log, decoder=partial(shipped_decoder, str(table.name)))


def tier(table: BoundTable, log: KeyedLog) -> None:
    tier_once(log, target(table, log), BUDGET)


@contextmanager
def asking(
    table: BoundTable, log: KeyedLog, spill: Path
) -> Iterator[Callable[[str], list[tuple[object, ...]]]]:
    """Ask the newest snapshot and the tail above it."""
    roots = [str(folder_of(table))]
    with closing(Engine(storage_roots=roots, spill_dir=spill, threads=2)) as engine:
        board, tails, statements = serve(table.store, log, runs_in=engine)

        def ask(sql: str) -> list[tuple[object, ...]]:
            board.refresh(table.name)
            ticket, _ = plan(statements, sql.format(t=table.name), session=SESSION)
            return [tuple(row.values()) for row in answer_of(statements, ticket).to_pylist()]

        try:
            yield ask
        finally:
            forget(board, tails)


def watermark(table: BoundTable) -> Watermark:
    result = table.store.pin(table.name).watermark
    assert result is not None
    return result


def total(table: BoundTable, what: str) -> int | None:
    state = table.state()
    return state.history.snapshots[state.head or 0].count(f"total-{what}")


def test_deletes_go_and_watermark_key_and_answers_stay(lake: SparkLake, tmp_path: Path) -> None:
    table = lake.create(0, 0, columns=KEYED_COLUMNS, binding=KEYED, key=("id",))
    for end in range(40, _COLD + 1, 40):
        tier(table, DEVICES.to(end, end))
    before = watermark(table)
    assert (before.key, before.next.as_dict()) == ((4,), {0: _COLD, 1: _COLD})
    assert (total(table, "position-deletes") or 0) > 100
    own = target(table, DEVICES)
    staged = own.stage(plan_tiering(own.pin(), DEVICES.measure([TOPIC])[TOPIC], BUDGET))
    with asking(table, DEVICES, tmp_path) as ask:

        def check(cold: KeyedLog) -> None:
            columns = "kafka_partition, kafka_offset, id, state"
            assert ask(f"SELECT {columns} FROM {{t}} ORDER BY id") == DEVICES.rows
            assert ask("SELECT count(*) FROM {t}") == [(len(DEVICES.rows),)]
            for row in DEVICES.rows[:3]:
                assert ask(f"SELECT {columns} FROM {{t}} WHERE id = {row[2]}") == [row]
            side = f'"{table.name.name}$cold"'
            sql = f"SELECT {columns} FROM lake.net.{side} ORDER BY id"
            assert ask(sql) == cold.rows

        check(DEVICES.to(_COLD, _COLD))
        with closing(MaintenanceReader(table.catalogs)) as reader:
            care = Care(table, reader)
            care.target.take(care.step(Compaction))
            assert (total(table, "position-deletes"), total(table, "delete-files")) == (0, 0)
            # Its keys were looked up in files that are no more.
            with pytest.raises(TieringConflict, match="another writer changed the table"):
                own.publish(staged)
            own.discard(staged)
            check(DEVICES.to(_COLD, _COLD))
            kinds = care.maintain(hours=_MONTH_H)
        assert kinds == [WatermarkRenewal, Expiry, OrphanRemoval]
        check(DEVICES.to(_COLD, _COLD))
        # An expiry by another program hides nothing either.
        table.expire_to_one()
        after = watermark(table)
        assert (after.key, after.next, after.epochs) == (before.key, before.next, before.epochs)
        assert after.shape == before.shape
        assert (after.decoding, after.era) == (before.decoding, before.era)
        assert after.publish_outcomes == before.outcomes
        state = table.state()
        head = state.history.snapshots[state.head or 0]
        assert live_rows(head) == len(DEVICES.to(_COLD, _COLD).rows)
        check(DEVICES.to(_COLD, _COLD))
        tier(table, DEVICES)
        assert watermark(table).key == before.key
        check(DEVICES)
