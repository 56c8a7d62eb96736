"""What the pages show, as statements of the person who looks: relations that any client may ask."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from planner.errors import BadParameter, RequestError
from planner.names import KAFKA_ERROR, Side
from planner.sql_text import identifier, literal
from thermocline.console import cells
from thermocline.console.person import Document, Person

#: Rows of one page: more tables, columns or statements than a page lists are counted.
_MAX_TABLES = 5_000
_MAX_NAMES = 20_000
_MAX_STATEMENTS = 500
_MAX_BAD = 50
_MAX_SNAPSHOTS = 100

_TABLES = f"""
SELECT i.table_catalog AS catalog, i.table_schema AS schema, i.table_name AS "table",
  i.table_type AS kind, i.TABLE_COMMENT AS comment, t.* EXCLUDE (table_catalog, table_schema, table_name)
FROM information_schema.tables i LEFT JOIN (
  SELECT table_catalog, table_schema, table_name, any_value(state) AS state, any_value(advice) AS advice,
    any_value(error_text) AS error, any_value(topic) AS topic, count(kafka_partition) AS partitions,
    any_value(table_lag) AS lag, any_value(table_lag_bytes) AS lag_bytes, any_value(lag_s) AS lag_s,
    any_value(retention_s) AS retention_s, any_value(is_kept_by_size) AS is_kept_by_size,
    any_value(headroom_s) AS headroom_s, any_value(newest_age_s) AS newest_age_s,
    any_value(tail_rows) AS tail_rows, any_value(tail_bytes) AS tail_bytes,
    any_value(max_tail_rows) AS max_tail_rows, any_value(max_tail_bytes) AS max_tail_bytes,
    any_value(epoch_ms(published_at)) AS published_ms, any_value(epoch_ms(measured_at)) AS measured_ms
  FROM system.tails GROUP BY table_catalog, table_schema, table_name
) t USING (table_catalog, table_schema, table_name)
ORDER BY 1, 2, 3 LIMIT {_MAX_TABLES}
"""  # noqa: S608  no text of a caller's
_TAILS = """
SELECT * EXCLUDE (table_catalog, table_schema, table_name, oldest_at, newest_at, published_at, measured_at),
  epoch_ms(oldest_at) AS oldest_ms, epoch_ms(newest_at) AS newest_ms, epoch_ms(published_at) AS published_ms,
  epoch_ms(measured_at) AS measured_ms
FROM system.tails WHERE table_catalog = {} AND table_schema = {} AND table_name = {} ORDER BY kafka_partition
"""
_SEAM = "FROM {} ORDER BY kafka_partition"
_COLUMNS = """
SELECT column_name AS name, data_type AS type, is_nullable AS nullable, COLUMN_COMMENT AS comment
FROM information_schema.columns WHERE table_catalog = {} AND table_schema = {} AND table_name = {}
ORDER BY ordinal_position
"""
_NAMES = f"""
SELECT table_catalog AS catalog, table_schema AS schema, table_name AS "table", column_name AS "column",
  data_type AS type FROM information_schema.columns ORDER BY 1, 2, 3, ordinal_position LIMIT {_MAX_NAMES}
"""  # noqa: S608  no text of a caller's
_STATEMENTS = f"""
SELECT id, "user", state, outcome, waits_for, elapsed_s, rows, bytes, tables, sql, sha256, epoch_ms(started) AS started_ms
FROM system.statements WHERE (state <> 'ended' OR started > now() - INTERVAL 15 MINUTE) AND position(sha256 IN ?) = 0
ORDER BY state = 'ended', started DESC LIMIT {_MAX_STATEMENTS}
"""  # noqa: S608  no text of a caller's
_SESSIONS = f"""
SELECT id, "user", is_own, epoch_ms(opened) AS opened_ms, idle_s, calls, catalog, schema, freshness, profile
FROM system.sessions ORDER BY calls DESC, idle_s LIMIT {_MAX_STATEMENTS}
"""  # noqa: S608  no text of a caller's
_CATALOGS = "FROM system.catalogs ORDER BY name"
_BROKERS = "FROM system.brokers ORDER BY cluster"
_SNAPSHOTS = f"""
SELECT snapshot_id, epoch_ms(current_since) AS since_ms FROM {{}} ORDER BY current_since DESC LIMIT {_MAX_SNAPSHOTS}
"""  # noqa: S608  no text of a caller's
_BAD = f"""
SELECT kafka_partition, kafka_offset, kafka_timestamp, left({KAFKA_ERROR}, 300) AS reason
FROM {{}} WHERE {KAFKA_ERROR} IS NOT NULL ORDER BY kafka_timestamp DESC LIMIT {_MAX_BAD}
"""  # noqa: S608  no text of a caller's


@dataclass(frozen=True, slots=True)
class TablePath:
    """A table as information_schema names it. ``at`` is a snapshot's id, None for now."""

    catalog: str
    schema: str
    name: str
    at: str | None = None

    def __post_init__(self) -> None:
        if self.at is not None and not (
            self.at.isascii() and self.at.isdigit() and len(self.at) < 20
        ):
            raise BadParameter("at is the id of a snapshot.")

    @property
    def page(self) -> str:
        return "\0".join((self.catalog, self.schema, self.name, self.at or ""))

    @property
    def literals(self) -> tuple[str, str, str]:
        return literal(self.catalog), literal(self.schema), literal(self.name)

    def sql(self, side: Side = Side.BOTH) -> str:
        name = f"{self.name}${side.value}" if side.value else self.name
        path = ".".join(map(identifier, (self.catalog, self.schema, name)))
        return path if self.at is None else f"{path} AT (VERSION => {self.at})"


def tables(person: Person) -> Document:
    return {"tables": cells.records_of(person.ask(_TABLES))}


def seam(person: Person, table: TablePath) -> Document:
    """Return the seam of a table, of a cut that is made for it or of a snapshot, and what the server knows of its tail.

    Where a row filter closes the seam there is none: the state of the tail says so.
    """
    tails = _TAILS.format(*table.literals)
    try:
        return {**_lists(person, tails=tails, seam=_SEAM.format(table.sql(Side.SEAM)))}
    except RequestError:
        closed = _lists(person, tails=tails)["tails"]
        if [each["state"] for each in closed] != ["closed"]:
            raise
        return {"tails": closed, "seam": []}


def details(person: Person, table: TablePath) -> Document:
    """Return columns, the newest snapshots, and the newest records that did not decode where the table keeps them.

    Where the seam is closed, or there is no topic, there are no snapshots to go back to.
    """
    columns = cells.records_of(person.ask(_COLUMNS.format(*table.literals)))
    snapshots: list[cells.Record] = []
    with contextlib.suppress(RequestError):
        sql = _SNAPSHOTS.format(table.sql(Side.SNAPSHOTS))
        snapshots = cells.records_of(person.ask(sql))
    bad: list[cells.Record] = []
    if any(each["name"] == KAFKA_ERROR for each in columns):
        bad = cells.records_of(person.ask(_BAD.format(table.sql(Side.TAIL))))
    return {"columns": columns, "snapshots": snapshots, "bad": bad}


def names(person: Person) -> Document:
    """Return every table and column that the person may read, for completion."""
    return {"columns": cells.rows_of(person.ask(_NAMES))}


def running(person: Person) -> Document:
    """Return statements, but for those of the console's own pages, and sessions."""
    # That of this statement itself is among them from its second time on.
    own = [",".join(person.own_digests())]
    return {**_lists(person, own, statements=_STATEMENTS, sessions=_SESSIONS)}


def end_statement(person: Person, statement: str) -> Document:
    """Cancel a statement of this person, or of anyone for an administrator. Raises RequestError: there is none such."""
    person.ask(f"CANCEL QUERY {literal(statement)}")
    return {}


def health(person: Person) -> Document:
    return {**_lists(person, catalogs=_CATALOGS, brokers=_BROKERS)}


def _lists(
    person: Person, parameters: Sequence[str] | None = None, /, **queries: str
) -> dict[str, list[cells.Record]]:
    """Return the records that queries answer, by their names, in one statement.

    Each row has a struct in the column of its query, and NULL in the others; UNION ALL keeps their order (DuckDB 1.5.5, "Order
    Preservation"). Lists of structs would take the engine twice as long to plan.
    """
    rows = " UNION ALL BY NAME ".join(
        f"SELECT {name} FROM ({sql}) {name}"  # noqa: S608  no text of a caller's
        for name, sql in queries.items()
    )
    return cells.lists_of(person.ask(rows, parameters=parameters))
