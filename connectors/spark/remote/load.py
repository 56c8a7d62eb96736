"""What the options of a ``load()`` ask a server: a statement of one's own, or a table with columns and a filter.

Fetches the tail of a cut from a server that has it decoded; the cold rows are read directly.

Cold rows read directly are not filtered. So each call has a header that asks for whole tables only, and the server
refuses users with row filters or masks.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from connectors.spark.columns import spark_type
from connectors.spark.filter_option import check_filter, in_parentheses
from connectors.spark.options import check_side, chosen_columns
from connectors.spark.remote.plan import ServedPlan, ServerAddress, settings_at
from planner.errors import BadParameter
from planner.names import TableName, name_parts
from planner.schema import Column, TableSchema
from planner.seam.cut import TableCut
from planner.seam.time_travel import format_cut, parse_cut
from planner.sql_text import identifier

#: Options that say which server, and as whom.
ADDRESS = ("server", "user", "password", "token", "tls_root_certificates")
#: Options that go to the server with the statement.
SETTINGS = ("cut", "freshness", "wait_for")
#: At most this many tasks read an answer's parts, unless the option says otherwise.
MAX_ENDPOINTS = 8
#: What a server takes.
_MOST = 64
_OF_A_TABLE = ("table", "path", "columns", "filter", "side")

OPTIONS = (*ADDRESS, "query", "max_endpoints", *_OF_A_TABLE, *SETTINGS)


def address_of(
    options: Mapping[str, str], registered: ServerAddress | None
) -> ServerAddress | None:
    """Return the server that the options name, else the one that the source was registered with, if any.

    Raises:
        BadParameter: they say as whom, and not where.
        BadConfig: as ``ServerAddress.of``.
    """
    uri = options.get("server")
    more = {name: options.get(name) for name in ADDRESS[1:]}
    if uri is not None:
        return ServerAddress.of(uri, **more)
    for name, value in more.items():
        if value is not None:
            raise BadParameter(
                f"option {name} is for a server; add the option server.", option=name
            )
    return registered


def planned_load(address: ServerAddress, options: Mapping[str, str]) -> ServedPlan:
    """Have a server plan what the options ask for.

    Raises:
        BadParameter: they contradict each other, or do not fit the table.
        FederationError: as ``ServedPlan.of``.
    """
    settings = {name: text for name in SETTINGS if (text := options.get(name)) is not None}
    query, most = options.get("query"), _max_endpoints(options)
    if query is not None:
        more = [name for name in _OF_A_TABLE if options.get(name) is not None]
        if more:
            raise BadParameter(
                f"options query and {more[0]} contradict each other; write it into the query.",
                option=more[0],
            )
        return ServedPlan.of(address, query, settings, most)
    text = options.get("table") or options.get("path")
    if text is None:
        raise BadParameter(
            "option query or table is missing; say what to read: .option('table', 'lake.net.flows')."
        )
    source = relation(text, options.get("side"))
    whole = ServedPlan.of(address, f"SELECT * FROM {source}", settings, most)  # noqa: S608 - quoted
    columns, condition = options.get("columns"), options.get("filter")
    if columns is None and condition is None:
        return whole
    if whole.cut:
        settings = settings_at(whole.cut, settings)
    *front, name = name_parts(text)
    table = TableName("".join(front[:1]), tuple(front[1:]), name)
    schema = _table_schema(whole.schema)
    names = chosen_columns(table, schema, columns).names
    listed = ", ".join(map(identifier, names))
    where = ""
    if condition is not None:
        check_filter(condition, table, schema)
        where = f" WHERE {in_parentheses(condition)}"
    return ServedPlan.of(address, f"SELECT {listed} FROM {source}{where}", settings, most)  # noqa: S608


def _max_endpoints(options: Mapping[str, str]) -> int:
    text = options.get("max_endpoints")
    if text is None:
        return MAX_ENDPOINTS
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= _MOST):
        raise BadParameter(
            f"option max_endpoints is a number of tasks from 1 to {_MOST}, not {text[:80]!r}.",
            option="max_endpoints",
        )
    return int(text)


def relation(text: str, side: str | None = None) -> str:
    """Return a table, or a side of it, as a server's SQL names it; ``text`` is its name, with or without the catalog.

    Raises:
        BadParameter: the side is none.
        BadConfig: a quote in the name is not closed.
    """
    check_side(side)
    *front, name = name_parts(text)
    parts = [front[0], ".".join(front[1:])] if len(front) > 1 else front
    return ".".join(map(identifier, (*parts, name if side is None else f"{name}${side}")))


def _table_schema(schema: pa.Schema) -> TableSchema:
    """The columns of an answer as a table's; their ids are their places."""
    return TableSchema(
        0, tuple(Column(at, each.name, each.type) for at, each in enumerate(schema, 1))
    )


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
    theirs = (entry.table_uuid, entry.snapshot_id, entry.end)
    return theirs == (cut.table_uuid, cut.cold.snapshot_id, cut.end)


def _in_columns(plan: ServedPlan, schema: TableSchema) -> Generator[pa.RecordBatch, None, None]:
    types = pa.schema([(column.name, spark_type(column.type)) for column in schema.columns])
    for batch in plan.rows():
        yield batch.cast(types)
