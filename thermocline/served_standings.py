"""Where tables stand as a server says: ``system.tails`` read back for ``status``."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from connectors.table_standings import PartitionStanding, TableStatus, TailReading
from planner.errors import NotAllowed, Unavailable, UnknownTable
from planner.names import TableName
from planner.seam.watermark import Outcomes
from planner.table_state import CLOSED, UNREAD

if TYPE_CHECKING:
    from thermocline.client import Client

_SQL = "SELECT * FROM system.tails ORDER BY table_catalog, table_schema, table_name, kafka_partition"
_NAME = itemgetter("table_catalog", "table_schema", "table_name")
#: How long a server may take to read tables that were not looked at before, and how often it is asked.
_READ_S, _AGAIN_S = 60.0, 1.0


def standings_of(client: Client, names: Sequence[TableName]) -> list[TableStatus]:
    """Return where these tables stand; without names, all that the server shows.

    Raises:
        FederationError: the server does not answer, or not this.
    """
    until_s = time.monotonic() + _READ_S
    while True:
        tables = {
            TableName(catalog, tuple(schema.split(".")), name): list(rows)
            for (catalog, schema, name), rows in itertools.groupby(client.rows(_SQL), _NAME)
        }
        tables = {name: rows for name, rows in tables.items() if not names or name in names}
        states = {rows[0]["state"] for rows in tables.values()}
        if UNREAD[0] not in states or time.monotonic() > until_s:
            break
        time.sleep(_AGAIN_S)
    missing = [name for name in names if name not in tables]
    return [_standing(name, rows) for name, rows in tables.items()] + [
        _refused(
            name,
            UnknownTable,
            f"{name}: the server shows no table of this name that is bound to a topic.",
        )
        for name in missing
    ]


def _standing(name: TableName, rows: Sequence[Mapping[str, Any]]) -> TableStatus:
    table = rows[0]
    for state, kind in ((CLOSED, NotAllowed), (UNREAD, Unavailable)):
        if table["state"] == state[0]:
            return _refused(name, kind, f"{name}: {table['advice']}")
    is_failing = table["state"] == "failing"
    partitions = () if is_failing else tuple(map(_partition, rows))
    return TableStatus(
        table=str(name),
        topic=table["topic"],
        snapshot_id=table["snapshot_id"],
        lag=table["table_lag"],
        partitions=partitions,
        lag_bytes=table["table_lag_bytes"],
        lag_s=table["lag_s"],
        retention_s=table["retention_s"],
        headroom_s=table["headroom_s"],
        is_bounded_by_size=table["is_kept_by_size"],
        gap_offsets=table["accepted_gap_offsets"],
        skipped_records=table["skipped_records"],
        accepted_snapshots=table["accepted_snapshots"],
        last_publish={
            # A server of before an outcome has no column for it: it refuses tables that have some.
            each: table.get(f"published_{each}", 0)
            for each in Outcomes.__dataclass_fields__
        },
        published_ms=_ms(table["published_at"]),
        error=table["error_text"] if is_failing else None,
        error_class=table["error"] if is_failing else None,
        tail=TailReading(
            sum(each.lag for each in partitions),
            sum(row["tail_read_offsets"] or 0 for row in rows),
            table["tail_rest_s"],
            table["advice"] if table["state"] in ("stopped", "full") else None,
        ),
    )


def _refused(name: TableName, kind: type[Exception], text: str) -> TableStatus:
    return TableStatus(str(name), None, None, 0, (), error=text, error_class=kind.__name__)


def _partition(row: Mapping[str, Any]) -> PartitionStanding:
    return PartitionStanding(
        partition=row["kafka_partition"],
        log_start=row["log_start"],
        watermark=row["watermark"],
        log_end=row["log_end"],
        lag=row["lag"],
        headroom=row["headroom"],
        oldest_ms=_ms(row["oldest_at"]),
        lag_bytes=row["lag_bytes"],
        newest_ms=_ms(row["newest_at"]),
    )


def _ms(at: datetime | None) -> int | None:
    return None if at is None else round(at.timestamp() * 1000)
