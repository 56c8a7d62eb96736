"""``thermocline rebuild``: replace all rows of a keyed table by what its log holds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import click

from connectors.iceberg.store import IcebergStore
from connectors.jobs.round import RoundResult, not_bound, rebuild_once
from connectors.kafka.clusters import KafkaClusters
from connectors.registry.registries import SchemaRegistries
from planner.names import TableName
from planner.seam.watermark import Watermark
from planner.tiering.plan import TieringPlan, plan_rebuild
from thermocline.catalog_access import catalog_roots
from thermocline.commands.repair import Repair, repair_command
from thermocline.config.settings import Settings
from thermocline.keyed_options import said_of_topic

EXAMPLES = """\b
Examples:
  thermocline rebuild lake.shop.customers
  thermocline rebuild lake.shop.customers --yes --json
"""


@click.command(epilog=EXAMPLES)
@repair_command("Do not say what is replaced, and ask.")
def command(settings: Settings, repair: Repair) -> None:
    """Replace all rows of a keyed table by the newest ones of its log, in one publish.

    For a table that answers TailGap or TombstonesExpired, or whose way to decode changed. A compacted log has every living
    key; of another one, rows whose changes retention removed are gone afterwards. Readers have the rows of before until it
    is done.
    """
    name = repair.table
    results: list[RoundResult] = []
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(
            contextlib.closing(IcebergStore(settings.catalogs, roots=catalog_roots(settings)))
        )
        log = stack.enter_context(KafkaClusters(settings.require_clusters()))
        pin = store.pin(name)
        if pin.binding is None:
            raise not_bound(name)
        topic = pin.binding.address
        split_rows = settings.tier.split_rows
        plan = plan_rebuild(pin, log.measure([topic])[topic], split_rows)

        def rebuilt() -> Watermark:
            # Spark takes seconds to start, and a person may have said no.
            from thermocline.spark_session import configured_session
            from thermocline.tiering.targets import schema_follower, tiering_target

            registries = stack.enter_context(SchemaRegistries(settings.registries))
            schemas = stack.enter_context(schema_follower(settings, registries))
            spark = stack.enter_context(configured_session(settings))
            target = tiering_target(spark, store, settings, schemas, name)
            results.append(rebuild_once(log, target, split_rows))
            return results[0].watermark

        changes = [*_replaced(name, plan), *said_of_topic(settings.clusters, topic)]
        mark = repair.carry_out("Replace all rows?", changes, rebuilt)
    outcomes = results[0].outcomes
    facts = {
        "rows": outcomes.rows,
        "deletes": outcomes.deletes,
        "superseded": outcomes.superseded,
    }
    repair.report(mark, facts, [f"rebuilt: {', '.join(outcomes.texts)}"])


def _replaced(table: TableName, plan: TieringPlan) -> Iterator[str]:
    yield (
        f"{table}: all rows are replaced by those of {plan.binding.address}, whose log holds {plan.offsets:,} offsets up to:"
    )
    for partition, offset in plan.next:
        yield f"  partition {partition}: {offset}"
