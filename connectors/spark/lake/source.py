"""The registered source: ``spark.read.format("thermocline")`` and its stream.

Spark calls it in several processes: ``schema`` in one where ``load`` is called, ``reader`` in one that plans, ``read`` in
executors. What is set in ``schema`` travels with it, so the cut of a batch is taken there: one ``load()`` is one cut.

It must not have ``pushFilters``: in PySpark 4.1 the filters of one action stay for all others of a DataFrame.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from connectors.cuts import PastCuts
from connectors.spark.errors import pack, packing
from connectors.spark.filter_option import RowFilter, parse_filter
from connectors.spark.lake.opened import OpenedLake, refuse_keyed
from connectors.spark.lake.stream import LakeStream, StreamOptions
from connectors.spark.lake.tasks import TaskReader, shares
from connectors.spark.options import LakeSettings, check_options, check_side, chosen_columns
from connectors.spark.remote.load import OPTIONS, address_of, planned_load
from connectors.spark.remote.plan import ServedPlan, ServedReader, ServerAddress
from connectors.spark.remote.types import spark_schema
from connectors.spark.shipping import PlannedSource, SentReader, ship_to
from connectors.spark.table_lookup import find_tables
from connectors.spark.types import struct_type
from planner.errors import BadParameter
from planner.names import Side, TableName
from planner.reading.filters import EVERYTHING
from planner.reading.plan import plan_rows
from planner.schema import TableSchema
from planner.seam.cut import TableCut, cold_cut
from planner.seam.freshness import parse_freshness
from planner.seam.time_travel import parse_cut

FORMAT = "thermocline"
_BATCH = ("table", "path", "columns", "filter", "cut", "freshness", "wait_for", "side")
_STREAM = ("table", "path", "columns", "startingposition", "maxoffsetspertrigger")


def source_class(
    settings: LakeSettings | None,
    server: ServerAddress | None = None,
    format_name: str = FORMAT,
) -> type[DataSource]:
    """Return the class to register. It carries the settings, and is pickled with them to processes of this machine."""

    class ThermoclineSource(LakeSource):
        lake = settings
        registered = server

        @classmethod
        def name(cls) -> str:
            return format_name

    return ThermoclineSource


def register_source(session: SparkSession, settings: LakeSettings) -> None:
    ship_to(session)
    session.dataSource.register(source_class(settings))


def register_served(
    session: SparkSession, server: ServerAddress, format_name: str = FORMAT
) -> None:
    """Register a source that has no settings, and reads through a server alone."""
    ship_to(session)
    session.dataSource.register(source_class(None, server, format_name))


class LakeSource(DataSource):
    """One ``load()``. ``lake`` and ``registered`` are set by ``source_class``: where to read directly, and through whom.

    A load is read through a server where the options name one, or the source was registered with one.
    """

    lake: LakeSettings | None
    registered: ServerAddress | None

    def __init__(self, options: dict[str, str]) -> None:
        # Spark's own mapping, which finds keys in any case; a dict of it would lose that.
        super().__init__(options)
        self._cut: TableCut | None = None
        self._columns: TableSchema | None = None
        self._condition: RowFilter | None = None
        self._plan: ServedPlan | None = None
        self._has_planned = False

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Once it has planned it goes to executors, beside its reader, which has all they need: only its name is asked.

        As itself it would bring them the catalog's credentials, and they would have to import what plans.
        """
        if self._has_planned:
            return PlannedSource, (type(self).name(),)
        return super().__reduce_ex__(protocol)

    def schema(self) -> StructType:
        with packing():
            self._take()
            if self._plan is not None:
                return spark_schema(self._plan.schema)
        assert self._columns is not None  # noqa: S101 - set by what was just called
        return struct_type(self._columns)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        self._has_planned = True
        if self._plan is not None:
            return ServedReader(self._plan)
        cut, columns = self._planned(_BATCH)
        return LakeReader(cut, columns, _side(self.options), self._settings(), self._condition)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        if self._plan is not None:
            raise pack(
                BadParameter(
                    "a stream reads log and store by itself, not through a server; leave the option server out, and register "
                    "the source with settings."
                )
            )
        self._has_planned = True
        cut, columns = self._planned(_STREAM)
        return LakeStream(cut.table, columns, StreamOptions.of(self.options), self._settings())

    def _take(self) -> None:
        check_options(self.options, tuple(dict.fromkeys((*_BATCH, *_STREAM, *OPTIONS))))
        address = address_of(self.options, self.registered)
        if address is not None:
            check_options(self.options, OPTIONS)
            self._plan = planned_load(address, self.options)
            return
        if self.options.get("query") is not None:
            raise BadParameter(
                "option query is run by a server; add the option server.", option="query"
            )
        with closing(OpenedLake.of(self._settings())) as opened:
            table = _table(opened, self.options)
            self._cut = _cut(opened, table, self.options)
        refuse_keyed(self._cut)
        schema = self._cut.cold.schema
        self._columns = chosen_columns(table, schema, self.options.get("columns"))
        text = self.options.get("filter")
        if text is not None:
            self._condition = parse_filter(text, table, schema)

    def _settings(self) -> LakeSettings:
        if self.lake is None:
            raise BadParameter(
                "option server is missing: this source was registered without settings."
            )
        return self.lake

    def _planned(self, names: tuple[str, ...]) -> tuple[TableCut, TableSchema]:
        with packing():
            if self._cut is None or self._columns is None:
                raise BadParameter(
                    "a schema of one's own cannot be given to this source; leave .schema() out, and name columns with the "
                    "option columns."
                )
            check_options(self.options, names)
            return self._cut, self._columns


class LakeReader(SentReader, DataSourceReader):
    """Plans the shares of one cut, and reads them in tasks."""

    def __init__(
        self,
        cut: TableCut,
        columns: TableSchema,
        side: Side,
        settings: LakeSettings,
        condition: RowFilter | None = None,
    ) -> None:
        self._cut = cut
        self._side = side
        self._condition = condition
        self._settings = settings
        self._tasks = TaskReader(columns, settings.clusters, settings.secrets, condition)

    def partitions(self) -> list[InputPartition]:
        with packing(), closing(OpenedLake.of(self._settings)) as opened:
            rows = EVERYTHING if self._condition is None else self._condition.files
            read = plan_rows(self._side, self._cut, rows)
            columns = self._tasks.schema.columns
            return shares(opened.store, read, columns, opened.schemas, self._condition)


def _table(opened: OpenedLake, options: Mapping[str, str]) -> TableName:
    text = options.get("table") or options.get("path")
    if text is None:
        raise BadParameter(
            'option table is missing; name the table: .option("table", "lake.net.flows").'
        )
    return find_tables(opened.pins.relist(), [text])[0]


def _side(options: Mapping[str, str]) -> Side:
    """Return the side to read: that of the option side, or of a freshness that names one.

    Raises:
        BadParameter: it is none.
    """
    side, freshness = options.get("side"), options.get("freshness")
    check_side(side)
    if side is not None:
        return Side(side)
    return Side.BOTH if freshness is None else parse_freshness(freshness).side


def _cut(opened: OpenedLake, table: TableName, options: Mapping[str, str]) -> TableCut:
    token, wait_for = options.get("cut"), options.get("wait_for")
    side = _side(options)
    names = [name for name in ("cut", "freshness", "side") if options.get(name) is not None]
    if "freshness" in names and len(names) > 1:
        raise BadParameter(f"options {' and '.join(names)} contradict each other; give one.")
    if wait_for is not None and (token is not None or not side.has_tail):
        raise BadParameter(
            "a cut that was taken, and the cold side alone, wait for nothing; leave the option wait_for out.",
            option="wait_for",
        )
    if token is not None:
        entry = parse_cut(token).of(table)
        return PastCuts(opened.pins, opened.bounds.measure).cut(entry)
    # A load remembers nothing: the log is measured, also where staleness is allowed.
    return opened.cut(table, wait_for) if side.has_tail else cold_cut(opened.pins.get(table))
