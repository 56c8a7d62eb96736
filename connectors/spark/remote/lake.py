"""Tables of a lake through a Thermocline server, where the grants of its user hold: nothing is read but what it sends."""

from __future__ import annotations

import datetime as dt
import threading
import uuid
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from connectors.spark.errors import unpack
from connectors.spark.lake.source import register_served
from connectors.spark.lake.sql import CutSql, check_current_catalog, has_double_quoted_names
from connectors.spark.options import check_cut_arguments
from connectors.spark.remote.load import SETTINGS, planned_load, relation
from connectors.spark.remote.plan import ServedPlan, ServerAddress, settings_at
from connectors.spark.table_lookup import find_tables
from planner.errors import LimitExceeded, NotAllowed, UnknownTable
from planner.names import TableName
from planner.seam.time_travel import parse_cut
from planner.spark_names import tables_of
from planner.sql_text import literal

#: Tables of one cut at most, where none is named.
_MAX_TABLES = 100


class ServerLake:
    """Cuts and answers of a server for Spark. Thread-safe. Every ``load`` goes through the server."""

    def __init__(self, session: SparkSession, address: ServerAddress) -> None:
        self._session = session
        self._address = address
        # A name of its own: a session may ask as several users, and with settings, too.
        self._format = f"thermocline_{uuid.uuid4().hex}"
        register_served(session, address, self._format)

    def at(
        self,
        *tables: str,
        cut: str | None = None,
        timestamp: dt.datetime | str | None = None,
        max_staleness: str | None = None,
        wait_for: str | None = None,
    ) -> ServerCut:
        """Take one cut of some tables, or of all that the server shows: as ``connectors.spark.lake.lake.Lake.at``.

        Raises:
            NotAllowed: rows of a table are hidden from this user, and a cut would tell how many; use ``table`` and ``query``.
            UnknownTable, BadParameter, LimitExceeded: as they say.
            FederationError: the server's sentence.
        """
        check_cut_arguments(cut, timestamp, max_staleness, wait_for)
        if cut is not None:
            names = [entry.table for entry in parse_cut(cut).tables]
            chosen = find_tables(names, tables) if tables else names
            return ServerCut(self, chosen, cut)
        names = find_tables(self._tables(), tables) if tables else self._all()
        at = "" if timestamp is None else f" AT (TIMESTAMP => {_time(timestamp)})"
        parts = [f"SELECT 1 FROM {relation(str(name))}{at}" for name in names]  # noqa: S608
        settings = {
            name: text
            for name, text in (
                ("freshness", max_staleness and f"max_staleness {max_staleness}"),
                ("wait_for", wait_for),
            )
            if text
        }
        token = ServedPlan.of(self._address, " UNION ALL ".join(parts), settings).cut
        if not token:
            raise NotAllowed(
                f"rows of {', '.join(map(str, names))} are hidden from this user, and a cut would tell how many; use table() "
                f"and query() of the connection: each of their DataFrames is one cut."
            )
        return ServerCut(self, names, token)

    def table(
        self, name: str, *, columns: str | None = None, where: str | None = None
    ) -> DataFrame:
        """Return the rows of a table as they are now; the source's options ``columns`` and ``filter`` choose of them.

        Raises:
            FederationError: the server's sentence.
        """
        return self.load({"table": name, "columns": columns, "filter": where})

    def query(self, sql: str) -> DataFrame:
        """Have the server run a statement of its own SQL, and return the answer.

        Raises:
            FederationError: the server's sentence.
        """
        return self.load({"query": sql})

    def named(self, text: str) -> list[TableName]:
        """Return the tables that a query of Spark's SQL names, as ``connectors.spark.lake.lake.Lake.named``."""
        tables = self._tables()
        catalogs = {table.catalog for table in tables}
        check_current_catalog(self._session, catalogs)
        return tables_of(
            text,
            tables,
            catalogs,
            double_quotes_are_names=has_double_quoted_names(self._session),
        )

    def load(self, options: Mapping[str, str | None]) -> DataFrame:
        """Load with options of the source; None is as if it were not there.

        Raises:
            FederationError: the server's sentence.
        """
        reader = self._session.read.format(self._format)
        chosen = {name: value for name, value in options.items() if value is not None}
        try:
            return reader.options(**self._at_one_cut(chosen)).load()
        except Exception as error:
            ours = unpack(str(error))
            if ours is None:
                raise
            raise ours from error

    def _at_one_cut(self, options: Mapping[str, str]) -> Mapping[str, str]:
        """Spark Connect may load anew for each action: then the cut is taken here, where the user may know it."""
        if hasattr(self._session, "_jsparkSession") or options.get("cut") is not None:
            return options
        plan = planned_load(self._address, options)
        if not plan.cut:
            return options
        others = {name: text for name, text in options.items() if name not in SETTINGS}
        return others | settings_at(plan.cut, options)

    def _all(self) -> list[TableName]:
        names = self._tables()
        if not names:
            raise UnknownTable("the server shows this user no table.")
        if len(names) > _MAX_TABLES:
            raise LimitExceeded(
                f"the server shows {len(names)} tables, more than {_MAX_TABLES}; name those to read.",
                tables=len(names),
            )
        return names

    def _tables(self) -> list[TableName]:
        with self._address.connected() as connection:
            listed = connection.adbc_get_objects(depth="tables").read_all().to_pylist()
        return sorted(
            TableName(
                catalog["catalog_name"],
                tuple(schema["db_schema_name"].split(".")),
                table["table_name"],
            )
            for catalog in listed
            for schema in catalog["catalog_db_schemas"] or ()
            if schema["db_schema_name"] != "information_schema"
            for table in schema["db_schema_tables"] or ()
        )


class ServerCut:
    """Tables as they were at one moment, through a server. Thread-safe."""

    def __init__(self, lake: ServerLake, tables: Sequence[TableName], token: str) -> None:
        self._lake = lake
        self.token = token
        self.tables = tuple(tables)
        self._lock = threading.Lock()
        self._frames: dict[tuple[TableName, str | None], DataFrame] = {}
        self._sql = CutSql(lake._session, self.tables, lambda name: self._frame(name, None))

    def table(self, name: str, side: str | None = None) -> DataFrame:
        """Return a table's rows, or those of one side of the seam: all that this user sees of them travel.

        Raises:
            UnknownTable: the cut is of other tables.
            FederationError: the server's sentence.
        """
        return self._frame(self._sql.table(name), side)

    def query(self, sql: str) -> DataFrame:
        """Have the server run a statement of its own SQL at this cut.

        Raises:
            FederationError: the server's sentence.
        """
        return self._lake.load({"query": sql, "cut": self.token})

    def views(self) -> Mapping[str, TableName]:
        """Make temporary views, as ``connectors.spark.lake.cut.LakeCut.views``."""
        return self._sql.views()

    def sql(self, text: str) -> DataFrame:
        """Run a query of Spark's own SQL over the tables, as ``connectors.spark.lake.cut.LakeCut.sql``."""
        return self._sql.query(text)

    def _frame(self, name: TableName, side: str | None) -> DataFrame:
        with self._lock:
            frame = self._frames.get((name, side))
            if frame is None:
                frame = self._lake.load({"table": str(name), "cut": self.token, "side": side})
                self._frames[name, side] = frame
            return frame


def _time(moment: dt.datetime | str) -> str:
    """A time as the server's SQL writes it; one without a zone is UTC."""
    if isinstance(moment, str):
        return f"TIMESTAMPTZ {literal(moment)}"
    zoned = moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment
    return f"TIMESTAMPTZ {literal(zoned.isoformat())}"
