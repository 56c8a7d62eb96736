"""``system.tails``, ``system.catalogs`` and ``system.brokers``: what a survey measured, as those may see it who ask."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa

from connectors.iceberg.pin_cache import PinCache
from connectors.table_standings import PartitionStanding, Survey, SurveyedTable
from connectors.table_survey import TableSurvey
from planner.names import TableName, cluster_of
from planner.permissions import FactKinds
from planner.seam.watermark import Outcomes
from planner.table_state import CLOSED, UNREAD, TableFigures, state_of
from proxy.access.policy import AccessPolicy
from proxy.catalog.system_tables import SYSTEM_SCHEMAS, TAILS, Maker
from proxy.session import Deadline, Session
from proxy.tail.budget import TailState
from proxy.tail.tails import Tails

_Row = dict[str, object]
#: Bytes of rows that are kept of a round for lists of tables: those of 1,000 tables in 12,000 partitions take 4 MB.
_MAX_OWN_BYTES = 64 * 1024 * 1024


class TableList:
    """The makers of the three relations. Thread-safe."""

    def __init__(
        self, survey: TableSurvey, pins: PinCache, tails: Tails, access: AccessPolicy
    ) -> None:
        self._survey = survey
        self._pins = pins
        self._tails = tails
        self._access = access
        self._lock = threading.Lock()
        #: The round that was turned into rows last: all askers have the same.
        self._rows: SurveyRows | None = None

    def makers(self) -> dict[str, Maker]:
        return {
            "tails": self._tail_rows,
            "catalogs": self._catalog_rows,
            "brokers": self._broker_rows,
        }

    def _tail_rows(self, session: Session, deadline: Deadline) -> pa.Table:
        tables = self._visible(session)
        rows = self._rows_of(self._survey.look(tables, deadline.check))
        own = rows.own(tables)
        return own if own is not None else rows.keep(tables, self._of(session, tables, rows))

    def _of(
        self, session: Session, tables: Collection[TableName], rows: SurveyRows
    ) -> pa.Table:
        """Return the rows of these tables, as a session may see them."""
        spans: defaultdict[FactKinds, list[tuple[int, int]]] = defaultdict(list)
        others = []
        for name in tables:
            if name not in rows.survey.tables:
                others.append(_bare_row(name, UNREAD))
            elif rows.survey.tables[name] is None:
                continue
            elif FactKinds.COUNTS in (closed := self._access.closed_facts(session, name)):
                others.append(_bare_row(name, CLOSED))
            else:
                spans[closed].append(rows.spans[name])
        own = [rows.without(closed, each) for closed, each in spans.items()]
        return pa.concat_tables([*own, pa.Table.from_pylist(others, TAILS)])

    def _rows_of(self, survey: Survey) -> SurveyRows:
        with self._lock:
            if self._rows is None or self._rows.survey is not survey:
                self._rows = SurveyRows(survey, self._tails)
            return self._rows

    def _catalog_rows(self, session: Session, _: Deadline) -> pa.Table:
        visible = frozenset(self._visible(session))
        tables = Counter(name.catalog for name in visible)
        in_use = Counter(
            status.table.catalog for status in self._pins.status() if status.table in visible
        )
        rows = [
            {
                "name": status.name,
                "state": _state(status.error, status.age_s),
                "error": None if status.error is None else type(status.error).__name__,
                "answered_age_s": status.age_s,
                "failing_s": status.failing_s,
                "tables": tables[status.name],
                "tables_in_use": in_use[status.name],
            }
            for status in self._pins.catalog_status()
            if self._access.is_open(session, status.name)
        ]
        return pa.Table.from_pylist(rows, SYSTEM_SCHEMAS["catalogs"])

    def _broker_rows(self, session: Session, deadline: Deadline) -> pa.Table:
        tables = self._visible(session)
        survey = self._survey.look(tables, deadline.check)
        topics: defaultdict[str, set[str]] = defaultdict(set)
        for name in tables:
            entry = survey.tables.get(name)
            if entry is not None and entry.status.topic is not None:
                topics[cluster_of(entry.status.topic)].add(entry.status.topic)
        now_s = time.monotonic()
        rows = []
        for cluster_name in sorted(topics):
            cluster = survey.clusters[cluster_name]
            age_s = None if cluster.answered_s is None else now_s - cluster.answered_s
            rows.append(
                {
                    "cluster": cluster_name,
                    "cluster_id": cluster.cluster_id,
                    "state": _state(cluster.error, age_s),
                    "error": cluster.error,
                    "answered_age_s": age_s,
                    "topics": len(topics[cluster_name]),
                }
            )
        return pa.Table.from_pylist(rows, SYSTEM_SCHEMAS["brokers"])

    def _visible(self, session: Session) -> Collection[TableName]:
        # Never waits: before any catalog answered there is nothing to show.
        tables = self._pins.tables() if self._pins.has_listed else ()
        return self._access.visible(session, tables)


def _state(error: object, age_s: float | None) -> str:
    if error is not None:
        return "failing"
    return "unread" if age_s is None else "ok"


class SurveyRows:
    """One round as rows of ``system.tails``; ``spans`` are the rows of each table, the second number exclusive."""

    def __init__(self, survey: Survey, tails: Tails) -> None:
        self.survey = survey
        self.spans: dict[TableName, tuple[int, int]] = {}
        self._lock = threading.Lock()
        #: By the identity of a list of tables: each user has one of his own, and another under other grants.
        self._own: dict[int, tuple[Collection[TableName], pa.Table]] = {}
        self._own_bytes = 0
        states = {state.table: state for state in tails.states()}
        of_table: list[_Row] = []
        repeats: list[int] = []
        of_partition: dict[str, list[object]] = {name: [] for name in _OF_PARTITION}
        row = 0
        for name, entry in sorted(survey.tables.items()):
            if entry is None:
                continue
            state = states.get(name)
            of_table.append(_table_row(name, entry, state, tails, survey.measured_ms))
            standings = entry.status.partitions or (None,)
            stops = _stops(state)
            for standing in standings:
                for column, value in _partition_row(standing, stops).items():
                    of_partition[column].append(value)
            repeats.append(len(standings))
            self.spans[name] = row, row + len(standings)
            row += len(standings)
        table_fields = [field for field in TAILS if field.name not in _OF_PARTITION]
        per_table = pa.Table.from_pylist(of_table, pa.schema(table_fields))
        indices = np.repeat(np.arange(len(repeats)), repeats)
        repeated = per_table.take(pa.array(indices, pa.int64()))
        columns = [
            pa.array(of_partition[field.name], field.type)
            if field.name in of_partition
            else repeated[field.name]
            for field in TAILS
        ]
        self.table = pa.table(columns, schema=TAILS)

    def without(self, closed: FactKinds, spans: Sequence[tuple[int, int]]) -> pa.Table:
        """Return the rows of spans, with NULL for facts that are closed."""
        indices = np.concatenate([np.arange(*span) for span in spans])
        rows = self.table.take(pa.array(indices, pa.int64()))
        for fact, names in _TELLING.items():
            for name in names if fact in closed else ():
                at = TAILS.get_field_index(name)
                rows = rows.set_column(
                    at, TAILS.field(at), pa.nulls(len(rows), TAILS.field(at).type)
                )
        return rows

    def own(self, tables: Collection[TableName]) -> pa.Table | None:
        """Return what was kept for this list of tables."""
        entry = self._own.get(id(tables))
        return None if entry is None else entry[1]

    def keep(self, tables: Collection[TableName], rows: pa.Table) -> pa.Table:
        """Keep the rows of a list of tables until the next round if there is room, and return them."""
        with self._lock:
            if self._own_bytes + rows.nbytes > _MAX_OWN_BYTES:
                self._own, self._own_bytes = {}, 0
            if rows.nbytes <= _MAX_OWN_BYTES:
                self._own[id(tables)] = tables, rows
                self._own_bytes += rows.nbytes
        return rows


#: Columns that tell a kind of fact.
_TELLING = {
    FactKinds.SIZES: ("lag_bytes", "table_lag_bytes", "tail_bytes"),
    FactKinds.TIMES: ("oldest_at", "newest_at", "lag_s", "newest_age_s", "headroom_s"),
}
_OF_PARTITION = (
    "kafka_partition",
    "log_start",
    "watermark",
    "log_end",
    "lag",
    "lag_bytes",
    "headroom",
    "oldest_at",
    "newest_at",
    "tail_read_offsets",
)


def _partition_row(standing: PartitionStanding | None, stops: dict[int, int]) -> _Row:
    if standing is None:
        return dict.fromkeys(_OF_PARTITION)
    values = (
        standing.partition,
        standing.log_start,
        standing.watermark,
        standing.log_end,
        standing.lag,
        standing.lag_bytes,
        standing.headroom,
        _us(standing.oldest_ms),
        _us(standing.newest_ms),
        _read_offsets(standing, stops),
    )
    return dict(zip(_OF_PARTITION, values, strict=True))


def _stops(state: TailState | None) -> dict[int, int]:
    return {} if state is None else {each.partition: each.stop for each in state.ranges}


def _read_offsets(standing: PartitionStanding, stops: dict[int, int]) -> int:
    stop = min(stops.get(standing.partition, 0), standing.log_end)
    return max(0, stop - standing.watermark)


def _table_row(
    name: TableName,
    entry: SurveyedTable,
    state: TailState | None,
    tails: Tails,
    measured_ms: int,
) -> _Row:
    status = entry.status
    limits = tails.limits if entry.binding is None else tails.limits.of(entry.binding)
    rows, size = (0, 0) if state is None else (state.rows, state.size)
    rest_s = None if state is None else state.rest_s
    # What is not read yet is estimated: an offset may have no row.
    stops = _stops(state)
    unread = status.lag - sum(_read_offsets(each, stops) for each in status.partitions)
    unread_bytes = (status.lag_bytes or 0) * unread // max(1, status.lag)
    word, advice = state_of(
        TableFigures(
            rows=min(status.lag, rows + unread),
            size=size + unread_bytes,
            max_rows=limits.max_rows,
            max_size=limits.max_bytes,
            error=status.error_class,
            catalog_error=entry.catalog_error,
            follower_error=None
            if state is None or state.error is None
            else type(state.error).__name__,
            lag_s=status.lag_s,
            retention_s=status.retention_s,
            rest_s=rest_s,
        )
    )
    newest_ms = _greatest([each.newest_ms for each in status.partitions])
    counts = status.last_publish or {}
    return _names(name) | {
        "state": word,
        "advice": advice,
        "error": status.error_class or entry.catalog_error,
        "error_text": status.error,
        "topic": status.topic,
        "snapshot_id": status.snapshot_id,
        "published_at": _us(status.published_ms),
        "table_lag": status.lag,
        "table_lag_bytes": status.lag_bytes,
        "lag_s": status.lag_s,
        "newest_age_s": None if newest_ms is None else max(0, measured_ms - newest_ms) / 1000,
        "retention_s": status.retention_s,
        "headroom_s": status.headroom_s,
        "is_kept_by_size": status.is_bounded_by_size,
        "tail_rows": rows,
        "tail_bytes": size,
        "max_tail_rows": limits.max_rows,
        "max_tail_bytes": limits.max_bytes,
        "tail_rest_s": rest_s,
        **{f"published_{each}": counts.get(each) for each in Outcomes.__dataclass_fields__},
        "accepted_gap_offsets": status.gap_offsets,
        "skipped_records": status.skipped_records,
        "accepted_snapshots": status.accepted_snapshots,
        "pin_age_s": entry.pin_age_s,
        "measured_at": _us(measured_ms),
    }


def _names(name: TableName) -> _Row:
    return {
        "table_catalog": name.catalog,
        "table_schema": name.schema,
        "table_name": name.name,
    }


def _bare_row(name: TableName, state: tuple[str, str]) -> _Row:
    """The row of a table without numbers."""
    return _names(name) | {"state": state[0], "advice": state[1]}


def _greatest(values: Sequence[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _us(ms: int | None) -> int | None:
    return None if ms is None else ms * 1000
