"""Tables of a lake through a Thermocline server, where the grants of its user hold: nothing is read but what it sends."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from connectors.spark.errors import unpack
from connectors.spark.lake.source import register_served
from connectors.spark.lake.sql import Side, SparkCut, SparkLake, check_count
from connectors.spark.remote.load import SETTINGS, planned_load, relation
from connectors.spark.remote.plan import ServedPlan, ServerAddress, settings_at
from connectors.spark.table_lookup import find_tables
from planner.errors import NotAllowed, UnknownTable
from planner.names import TableName
from planner.seam.time_travel import parse_cut
from planner.sql_text import literal


class ServerCut(SparkCut):
    """Tables as they were at one moment, through a server. Thread-safe."""

    def __init__(self, lake: ServerLake, tables: Sequence[TableName], token: str) -> None:
        super().__init__(lake._session, tables)
        self._lake = lake
        self.token = token

    def query(self, sql: str) -> DataFrame:
        """Have the server run a statement of its own SQL at this cut.

        Raises:
            FederationError: the server's sentence.
        """
        return self._lake.load({"query": sql, "cut": self.token})

    def _made(self, name: TableName, side: Side | None) -> DataFrame:
        return self._lake.load({"table": str(name), "cut": self.token, "side": side})


class ServerLake(SparkLake[ServerCut]):
    """Cuts and answers of a server for Spark. Thread-safe. Every ``load`` goes through the server."""

    def __init__(self, session: SparkSession, address: ServerAddress) -> None:
        super().__init__(session)
        self._address = address
        # A name of its own: a session may ask as several users, and with settings, too.
        self._format = f"thermocline_{uuid.uuid4().hex}"
        register_served(session, address, self._format)

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

    def _past(self, cut: str, tables: Sequence[str]) -> ServerCut:
        names = [entry.table for entry in parse_cut(cut).tables]
        return ServerCut(self, find_tables(names, tables) if tables else names, cut)

    def _take(
        self,
        names: Sequence[TableName],
        timestamp: dt.datetime | str | None,
        max_staleness: str | None,
        wait_for: str | None,
    ) -> ServerCut:
        at = "" if timestamp is None else f" AT (TIMESTAMP => {_time(timestamp)})"
        sides = [f"SELECT 1 FROM {relation(str(name))}{at}" for name in names]  # noqa: S608
        settings = {"freshness": f"max_staleness {max_staleness}"} if max_staleness else {}
        if wait_for:
            settings["wait_for"] = wait_for
        token = ServedPlan.of(self._address, " UNION ALL ".join(sides), settings).cut
        if not token:
            raise NotAllowed(
                f"rows of {', '.join(map(str, names))} are hidden from this user, and a cut would tell how many; use table() "
                f"and query() of the connection: each of their DataFrames is one cut."
            )
        return ServerCut(self, names, token)

    def _all(self) -> list[TableName]:
        names = self._listed()
        if not names:
            raise UnknownTable("the server shows this user no table.")
        check_count(names, f"the server shows {len(names)} tables")
        return names

    def _listed(self) -> list[TableName]:
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


def _time(moment: dt.datetime | str) -> str:
    """A time as the server's SQL writes it; one without a zone is UTC."""
    if isinstance(moment, str):
        return f"TIMESTAMPTZ {literal(moment)}"
    zoned = moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment
    return f"TIMESTAMPTZ {literal(zoned.isoformat())}"
