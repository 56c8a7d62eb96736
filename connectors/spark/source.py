"""The registered source: ``spark.read.format("thermocline")`` and its stream.

Spark calls it in several processes: ``schema`` in one where ``load`` is called, ``reader`` in one that plans, ``read`` in
executors. What is set in ``schema`` travels with it, so the cut of a batch is taken there: one ``load()`` is one cut.

It must not have ``pushFilters``: in PySpark 4.1 the filters of one action stay for all others of a DataFrame.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from connectors.spark.errors import pack
from connectors.spark.lake_settings import LakeSettings
from connectors.spark.naming import find_tables
from connectors.spark.opened_lake import OpenedLake
from connectors.spark.shares import TaskReader
from connectors.spark.sharing import SIDES, shares
from connectors.spark.stream import LakeStream, StreamOptions
from connectors.spark.types import struct_type
from planner.cut import TableCut, cold_cut
from planner.errors import BadParameter, FederationError
from planner.names import TableName
from planner.schema import TableSchema
from planner.time_travel import parse_cut

FORMAT = "thermocline"
_BATCH = ("table", "path", "columns", "cut", "side")
_STREAM = ("table", "path", "columns", "startingposition", "maxoffsetspertrigger")


def source_class(settings: LakeSettings) -> type[DataSource]:
    """Return the class to register. It carries the settings, and is pickled with them to processes of this machine."""

    class ThermoclineSource(LakeSource):
        lake = settings

    return ThermoclineSource


def register_source(session: SparkSession, settings: LakeSettings) -> None:
    session.dataSource.register(source_class(settings))


class LakeSource(DataSource):
    """One ``load()``. ``lake`` is set by ``source_class``."""

    lake: LakeSettings

    def __init__(self, options: dict[str, str]) -> None:
        # Spark's own mapping, whatever case its keys are asked in; a dict of it would lose that.
        super().__init__(options)
        self._cut: TableCut | None = None
        self._columns: TableSchema | None = None

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        try:
            self._take()
        except FederationError as error:
            raise pack(error) from error
        assert self._columns is not None  # noqa: S101 - set by what was just called
        return struct_type(self._columns)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        side = self.options.get("side")
        return LakeReader(*self._planned(_BATCH), SIDES if side is None else (side,), self.lake)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        cut, columns = self._planned(_STREAM)
        return LakeStream(cut.table, columns, StreamOptions.of(self.options), self.lake)

    def _take(self) -> None:
        check_options(self.options, tuple(dict.fromkeys((*_BATCH, *_STREAM))))
        opened = OpenedLake.of(self.lake)
        try:
            table = _table(opened, self.options)
            cut = _cut(opened, table, self.options)
        finally:
            opened.close()
        self._cut = cut
        self._columns = chosen_columns(table, cut.cold.schema, self.options.get("columns"))

    def _planned(self, names: tuple[str, ...]) -> tuple[TableCut, TableSchema]:
        try:
            check_options(self.options, names)
            if self._cut is None or self._columns is None:
                raise BadParameter(
                    "a schema of one's own cannot be given to this source; leave .schema() out, and name columns with the "
                    "option columns."
                )
        except FederationError as error:
            raise pack(error) from error
        return self._cut, self._columns


class LakeReader(DataSourceReader):
    """Plans the shares of one cut, and reads them in tasks."""

    def __init__(
        self,
        cut: TableCut,
        columns: TableSchema,
        sides: Collection[str],
        settings: LakeSettings,
    ) -> None:
        self._cut = cut
        self._sides = sides
        self._columns = columns
        self._settings = settings
        self._tasks = TaskReader(columns, settings.clusters, settings.secrets)

    def __reduce__(self) -> tuple[type[TaskReader], tuple[object, ...]]:
        """Arrive on executors as a ``TaskReader``: they need no catalog, and none of its credentials."""
        return TaskReader, self._tasks.arguments

    def partitions(self) -> list[InputPartition]:
        opened = OpenedLake.of(self._settings)
        try:
            return shares(
                opened.store, self._cut, self._columns.columns, self._sides, whole_cold=True
            )
        except FederationError as error:
            raise pack(error) from error
        finally:
            opened.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._tasks.read(partition)


def check_options(options: Mapping[str, str], names: tuple[str, ...]) -> None:
    """Refuse options that are not ``names`` (in small letters).

    Raises:
        BadParameter: one is unknown, or the table lies in a catalog that loses them.
    """
    if any(key.lower().startswith("option.") for key in options):
        raise BadParameter(
            "CREATE TABLE ... USING thermocline loses its options in Spark's catalog; write CREATE TEMPORARY VIEW ... "
            "USING thermocline OPTIONS (...) instead."
        )
    for key in options:
        name = key.lower()
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]}?" if close else f"options are {', '.join(names)}."
            raise BadParameter(f"option {key} is unknown here; {hint}", option=key)


def chosen_columns(table: TableName, schema: TableSchema, text: str | None) -> TableSchema:
    """Return the columns named in ``text``, separated by commas, in its order; all without one.

    Raises:
        BadParameter: one is unknown, or there are none.
    """
    if text is None:
        return schema
    by_name = {column.name: column for column in schema.columns}
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in by_name:
            close = difflib.get_close_matches(name, by_name, n=3)
            hint = f"did you mean {' or '.join(close)}?" if close else "no name is like it."
            raise BadParameter(
                f"{table}: there is no column {name}; {hint}", table=str(table), column=name
            )
    if not names:
        raise BadParameter(f"{table}: option columns names none.", table=str(table))
    return TableSchema(schema.schema_id, tuple(by_name[name] for name in dict.fromkeys(names)))


def _table(opened: OpenedLake, options: Mapping[str, str]) -> TableName:
    text = options.get("table") or options.get("path")
    if text is None:
        raise BadParameter(
            'option table is missing; name the table: .option("table", "lake.net.flows").'
        )
    return find_tables(opened.pins.relist(), [text])[0]


def _cut(opened: OpenedLake, table: TableName, options: Mapping[str, str]) -> TableCut:
    token, side = options.get("cut"), options.get("side")
    if side is not None and side not in SIDES:
        raise BadParameter(f"option side is cold or tail, not {side!r}.", option="side")
    if token is not None:
        return opened.past_cut(parse_cut(token).of(table))
    return cold_cut(opened.pins.get(table)) if side == "cold" else opened.cut(table)
