"""``system.statements`` and its like: what a server does just now, as relations.

``system.tails`` has two parts: with a catalog before them, they name a table of that catalog. Makers of the rows belong to
the process that serves (``SystemTables.makers``); without one a relation is empty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from planner.seam.watermark import Outcomes
from planner.statement.ast import fold
from planner.statement.references import TableReference
from proxy.session import Deadline, Session

SYSTEM = "system"
_TIME = pa.timestamp("us", "UTC")

#: One bound table in its partitions; from ``table_lag`` on, what is of the whole table stands in each of its rows.
#: ``log_end`` and ``watermark`` are exclusive ends. ``headroom`` counts offsets, ``headroom_s`` seconds.
TAILS = pa.schema(
    [
        ("table_catalog", pa.string()),
        ("table_schema", pa.string()),
        ("table_name", pa.string()),
        ("kafka_partition", pa.int32()),
        ("state", pa.string()),
        ("advice", pa.string()),
        ("error", pa.string()),
        ("error_text", pa.string()),
        ("topic", pa.string()),
        ("snapshot_id", pa.int64()),
        ("published_at", _TIME),
        ("log_start", pa.int64()),
        ("watermark", pa.int64()),
        ("log_end", pa.int64()),
        ("lag", pa.int64()),
        ("lag_bytes", pa.int64()),
        ("headroom", pa.int64()),
        ("oldest_at", _TIME),
        ("newest_at", _TIME),
        ("tail_read_offsets", pa.int64()),
        ("table_lag", pa.int64()),
        ("table_lag_bytes", pa.int64()),
        ("lag_s", pa.float64()),
        ("newest_age_s", pa.float64()),
        ("retention_s", pa.float64()),
        ("headroom_s", pa.float64()),
        ("is_kept_by_size", pa.bool_()),
        ("tail_rows", pa.int64()),
        ("tail_bytes", pa.int64()),
        ("max_tail_rows", pa.int64()),
        ("max_tail_bytes", pa.int64()),
        ("tail_rest_s", pa.float64()),
        *((f"published_{each}", pa.int64()) for each in Outcomes.__dataclass_fields__),
        ("accepted_gap_offsets", pa.int64()),
        ("skipped_records", pa.int64()),
        ("accepted_snapshots", pa.int64()),
        ("pin_age_s", pa.float64()),
        ("measured_at", _TIME),
    ]
)
SYSTEM_SCHEMAS = {
    "statements": pa.schema(
        [
            ("id", pa.string()),
            ("user", pa.string()),
            ("session", pa.string()),
            ("state", pa.string()),
            ("outcome", pa.string()),
            ("waits_for", pa.string()),
            ("started", _TIME),
            ("elapsed_s", pa.float64()),
            ("rows", pa.int64()),
            ("bytes", pa.int64()),
            ("tables", pa.list_(pa.string())),
            ("sql", pa.string()),
            ("sha256", pa.string()),
        ]
    ),
    "sessions": pa.schema(
        [
            ("id", pa.string()),
            ("user", pa.string()),
            ("is_own", pa.bool_()),
            ("opened", _TIME),
            ("idle_s", pa.float64()),
            ("calls", pa.int32()),
            ("catalog", pa.string()),
            ("schema", pa.string()),
            ("time_zone", pa.string()),
            ("freshness", pa.string()),
            ("profile", pa.string()),
        ]
    ),
    "tails": TAILS,
    "catalogs": pa.schema(
        [
            ("name", pa.string()),
            ("state", pa.string()),
            ("error", pa.string()),
            ("answered_age_s", pa.float64()),
            ("failing_s", pa.float64()),
            ("tables", pa.int32()),
            ("tables_in_use", pa.int32()),
        ]
    ),
    "brokers": pa.schema(
        [
            ("cluster", pa.string()),
            ("cluster_id", pa.string()),
            ("state", pa.string()),
            ("error", pa.string()),
            ("answered_age_s", pa.float64()),
            ("topics", pa.int32()),
        ]
    ),
}

#: The rows that a session sees of a relation now, by the deadline.
Maker = Callable[[Session, Deadline], pa.Table]


@dataclass(frozen=True, slots=True)
class SystemTables:
    """``makers`` by relation; filled while a server starts."""

    makers: dict[str, Maker] = field(default_factory=dict)

    def rows(self, name: str, session: Session, deadline: Deadline) -> pa.Table:
        maker = self.makers.get(name)
        return SYSTEM_SCHEMAS[name].empty_table() if maker is None else maker(session, deadline)


def system_table_of(reference: TableReference) -> str | None:
    """Which of these relations a reference means; None: another table."""
    if reference.catalog is not None or reference.schema is None:
        return None
    name = fold(reference.name)
    return name if fold(reference.schema) == SYSTEM and name in SYSTEM_SCHEMAS else None
