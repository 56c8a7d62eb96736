"""The offset compare-and-set: whether a staged plan may be published, and the watermark it then leaves.

Run for every attempt to commit, on the metadata that it then builds on or fails, by every publisher: the Spark
job and the in-memory double call this and nothing else (docs/internals/watermark.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

from planner.errors import TieringConflict
from planner.names import TableName
from planner.seam.binding import Binding, decoding_key
from planner.seam.resolver import resolve
from planner.seam.schemas_table import ledger_of
from planner.seam.snapshots import History
from planner.seam.watermark import Outcomes, Watermark, era_after
from planner.tiering.plan import TieringPlan


def check_publish(
    plan: TieringPlan, history: History, head: int | None, *, accepted: Set[int] = frozenset()
) -> None:
    """Refuse unless ``head`` still stands on the watermark the plan started from.

    A compaction or a DELETE in between passes, as it does for readers.

    Raises:
        TieringConflict: another tierer published, the table was rolled back, its shape was moved, or a person
            decided something (a gap, a skip, a foreign snapshot). Plan again.
        ForeignCommit, WatermarkMissing, WatermarkUnreadable: as ``resolve``. Publishing over a foreign
            commit would launder it: later readers stop their walk at our snapshot.
    """
    table = str(plan.pin.table)
    if head is not None:
        current = resolve(history, head, table=table, accepted=accepted)
        if current.same_position(plan.start) and current.same_decisions(plan.start):
            return
    raise TieringConflict(
        f"{table}: the watermark moved since this tiering was planned, another tierer published first or the "
        f"table was rolled back; nothing was changed, plan again.",
        table=table,
        run=plan.start.run,
    )


def check_schemas(
    table: TableName, schemas: Mapping[int, str], binding: Binding | None
) -> None:
    """Refuse unless the newest ``binding`` has the schemas that tasks were given (``planner.ports.Staged.schemas``).

    Raises:
        TieringConflict, SchemaRegistryChanged: as ``SchemaLedger.check_published``.
    """
    ledger_of(binding).check_published(table, schemas)


def advance(plan: TieringPlan, outcomes: Outcomes, *, run: str, head: int) -> Watermark:
    """Return the watermark that publishing ``plan`` on top of snapshot ``head`` writes."""
    decoding = decoding_key(plan.pin.schema, plan.binding)
    whole_ms, before_s = None, plan.start.published_s
    if plan.binding.upsert is not None and not plan.reaches_end and before_s is not None:
        # Deletes above the new watermark may be as old as that.
        whole_ms = int(before_s * 1000)
    return replace(
        plan.start,
        next=plan.next,
        epochs=plan.epochs,
        shape=plan.binding.shape,
        key=() if plan.binding.upsert is None else plan.binding.upsert.key,
        run=run,
        prev_snapshot_id=head,
        outcomes=outcomes,
        publish=None,
        whole_ms=whole_ms,
        decoding=decoding,
        era=era_after(plan.start, decoding),
    )
