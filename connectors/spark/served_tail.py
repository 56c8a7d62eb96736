"""Fetches the tail of a cut from a server that has it decoded; the cold rows are read directly.

Cold rows read directly are not filtered. So each call has a header that asks for whole tables only, and the server
refuses users with row filters or masks.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

import pyarrow as pa

from connectors.spark.columns import spark_type
from connectors.spark.served import ServedPlan, ServerAddress
from connectors.spark.served_load import relation
from planner.names import TableName
from planner.schema import TableSchema
from planner.seam.cut import TableCut
from planner.seam.time_travel import format_cut, parse_cut

_WHOLE = {"whole": "true"}


@dataclass(frozen=True, slots=True)
class ServedTails:
    """Thread-safe. Each call has a connection of its own."""

    address: ServerAddress

    def check_whole(self, table: TableName) -> None:
        """Make sure that the server hides nothing of a table from this user.

        Raises:
            FederationError: it does, does not know the table, or does not answer: the server's sentence.
        """
        ServedPlan.of(self.address, f"SELECT 1 FROM {relation(str(table))}", _WHOLE)  # noqa: S608

    def rows(self, cut: TableCut) -> Generator[pa.RecordBatch, None, None] | None:
        """Return the tail of a cut, as Spark holds it; None: the server has its seam elsewhere, or other columns.

        Raises:
            FederationError: the server's sentence; also while the rows are read.
        """
        source = relation(str(cut.table), "tail")
        settings = {**_WHOLE, "cut": format_cut({(cut.table, None): cut})}
        plan = ServedPlan.of(self.address, f"SELECT * FROM {source}", settings)  # noqa: S608
        if not _is_at(plan, cut) or tuple(plan.schema.names) != cut.cold.schema.names:
            return None
        # Without its cut it is not planned again, which might be on another snapshot.
        return _in_columns(replace(plan, cut=""), cut.cold.schema)


def _is_at(plan: ServedPlan, cut: TableCut) -> bool:
    """Whether a plan's tail is the cut's: same table, same snapshot (where the tail begins), same end."""
    if not plan.cut:
        return False
    entry = parse_cut(plan.cut).of(cut.table)
    return (entry.table_uuid, entry.snapshot_id, entry.end) == (
        cut.table_uuid,
        cut.cold.snapshot_id,
        cut.end,
    )


def _in_columns(plan: ServedPlan, schema: TableSchema) -> Generator[pa.RecordBatch, None, None]:
    kinds = [spark_type(column.type) for column in schema.columns]
    fields = [
        pa.field(column.name, kind) for column, kind in zip(schema.columns, kinds, strict=True)
    ]
    for batch in plan.rows():
        columns = [
            column if column.type == kind else column.cast(kind)
            for column, kind in zip(batch.columns, kinds, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
