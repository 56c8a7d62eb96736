"""What the registered source and cuts in Spark are told, and what they make of it."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import cast

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from connectors.iceberg.pin_cache import PinCache
from connectors.iceberg.store import IcebergStore
from connectors.spark.errors import unpack
from connectors.spark.lake.cut import LakeCut
from connectors.spark.lake.lake import outdated
from connectors.spark.lake.source import LakeReader, LakeSource, source_class
from connectors.spark.lake.sql import aliases, view_names
from connectors.spark.lake.stream import LakeStream, StreamOptions, since_us
from connectors.spark.lake.tail import TailKeeper
from connectors.spark.lake.tasks import HotShare, TaskReader, in_columns, offsets_filter
from connectors.spark.options import LakeSettings, check_options, chosen_columns
from connectors.spark.publish.splits import TableLog
from connectors.spark.shipping import VERSION, sent
from connectors.spark.table_lookup import find_tables
from connectors.spark.types import struct_type
from planner.errors import BadConfig, BadParameter, LogUnavailable, StalePlan, UnknownTable
from planner.names import Side, TableName
from planner.offsets import OffsetRange
from planner.schema import Column, TableSchema
from planner.seam.cut import ColdSlice, TableCut, plan_cut
from tests.doubles.cold import MemoryColdStore
from tests.harness.builders import BINDING, FLOWS, bounds, pin, schema

COLUMNS = (Column(4, "host", pa.string()), Column(5, "bytes", pa.int32()))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"colums": "id"}, "did you mean columns?"),
        ({"zzz": "id"}, "options are table, columns."),
        ({"owner": "x", "option.table": "t"}, "loses its options"),
        ({"option.table": "t"}, "CREATE TEMPORARY VIEW ... USING thermocline OPTIONS (...)"),
        ({"option.table": "t"}, "or attach the server's Iceberg REST catalog"),
    ],
)
def test_unknown_options_are_refused(options: Mapping[str, str], words: str) -> None:
    with pytest.raises(BadParameter) as refusal:
        check_options(options, ("table", "columns"))
    assert words in refusal.value.message


def test_options_are_named_in_any_case() -> None:
    check_options({"TABLE": "t"}, ("table", "columns"))


def test_columns_are_chosen_in_their_order() -> None:
    table = schema(*COLUMNS)
    assert chosen_columns(FLOWS, table, None) == table
    chosen = chosen_columns(FLOWS, table, "bytes, host,bytes")
    assert chosen.names == ("bytes", "host")
    for text, words in (
        ("hst", "did you mean host?"),
        ("zzz", "no name"),
        (" , ", "names none"),
    ):
        with pytest.raises(BadParameter, match=words):
            chosen_columns(FLOWS, table, text)


def test_filters_are_not_pushed() -> None:
    """In PySpark 4.1 the filters of one action stay for all others of a DataFrame."""
    lake = LakeSettings({}, {})
    reader = LakeReader(plan_cut(pin(3), bounds((0, 5))), schema(*COLUMNS), Side.COLD, lake)
    assert "pushFilters" not in vars(type(reader))


#: Of schema registries.
REGISTRIES = {"": {"url": "http://r", "basic.auth.user.info": "ann:hush"}}


def test_executors_are_sent_no_credentials_of_a_catalog_or_registry() -> None:
    settings = LakeSettings(
        {"lake": {"credential": "hush"}},
        {"": {"bootstrap.servers": "b:1"}},
        registries=REGISTRIES,
    )
    columns = schema(*COLUMNS)
    readers = (
        LakeReader(plan_cut(pin(3), bounds((0, 5))), columns, Side.COLD, settings),
        LakeStream(FLOWS, columns, StreamOptions(), settings),
    )
    for reader in readers:
        sent = pickle.dumps(reader)
        assert b"hush" not in sent
        assert pickle.loads(sent) == TaskReader(columns, settings.clusters, ())


def test_a_source_that_has_planned_goes_to_executors_as_its_name() -> None:
    """PySpark sends it along with its reader, for the name in an error."""
    settings = LakeSettings({"lake": {"credential": "hush"}}, {}, registries=REGISTRIES)
    source = source_class(settings)({"table": "flows"})
    assert isinstance(source, LakeSource)
    # To the process that plans it goes whole.
    before = cloudpickle.dumps(source)
    assert b"hush" in before
    source = pickle.loads(before)
    source._cut = plan_cut(pin(3), bounds((0, 5)))
    source._columns = schema(*COLUMNS)
    source.reader(struct_type(source._columns))
    sent = cloudpickle.dumps(source)
    assert b"hush" not in sent
    assert pickle.loads(sent).name() == "thermocline"
    assert b"connectors.spark.lake.source" not in sent


def test_executors_of_another_version_are_told_both() -> None:
    assert version("thermocline") == VERSION
    arrive, (_, content) = sent(TaskReader(schema(*COLUMNS), {}, ()))
    with pytest.raises(RuntimeError) as refusal:
        arrive("9.9.9", content)
    error = unpack(str(refusal.value))
    assert isinstance(error, BadConfig)
    assert error.message == (
        f"executors have version {VERSION} of Thermocline and the driver has 9.9.9; install one version on both."
    )


def test_an_executor_that_reaches_no_broker_says_so_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A log that nobody answers for may be read for ten minutes."""
    monkeypatch.setattr("connectors.spark.lake.tasks.KafkaClusters", Unreachable)
    columns = schema(*COLUMNS)
    log = TableLog("lake.net.flows", columns, BINDING, "flows", "id")
    share = HotShare(log, (OffsetRange(0, 0, 5),))
    with pytest.raises(RuntimeError) as refusal:
        list(TaskReader(columns, {"": {}}, ()).read(share))
    assert isinstance(unpack(str(refusal.value)), LogUnavailable)


class Unreachable:
    """A log whose brokers this machine does not reach."""

    def __init__(self, clusters: object) -> None:
        del clusters

    def __enter__(self) -> Unreachable:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def measure(self, topics: object) -> None:
        raise LogUnavailable(f"no broker answers for {topics}.")

    def fetch(self, *_: object, **__: object) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("17", 17),
        ("10m", 1_000_000_000_000_000 - 600_000_000),
        ("500ms", 1_000_000_000_000_000 - 500_000),
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01T01:00:01+01:00", 1_000_000),
        ("1970-01-01", 0),
    ],
)
def test_a_time_is_read(text: str, expected: int) -> None:
    assert since_us(text, 1_000_000_000.0) == expected


def test_options_of_a_stream_are_read() -> None:
    assert StreamOptions.of({}) == StreamOptions()
    written = {"startingPosition": " since:17", "maxOffsetsPerTrigger": "5"}
    assert StreamOptions.of(written) == StreamOptions("since:17", 5)
    for wrong in ({"maxOffsetsPerTrigger": "0"}, {"startingPosition": "since:monday"}):
        with pytest.raises(RuntimeError, match="BadParameter"):
            StreamOptions.of(wrong)


def test_tables_are_found_with_and_without_catalog() -> None:
    twin = TableName("pond", ("net",), "flows")
    other = TableName("pond", ("net",), "other")
    assert find_tables([FLOWS, twin, other], ["lake.net.flows", "net.other", "net.other"]) == [
        FLOWS,
        other,
    ]
    for text, words in (
        ("net.flows", "may be lake.net.flows and pond.net.flows"),
        ("net.flow", "did you mean"),
        ("zzz", "no name is like it"),
    ):
        with pytest.raises(UnknownTable, match=words):
            find_tables([FLOWS, twin, other], [text])


def test_a_table_that_is_named_as_a_side_of_another_is_not_found() -> None:
    side = replace(FLOWS, name="flows$TAIL")
    for text in (str(side), "net.flows$TAIL"):
        with pytest.raises(
            BadConfig, match=r"a side of table lake\.net\.flows here; rename or drop"
        ):
            find_tables([FLOWS, side], [text])
    assert find_tables([side], [str(side)]) == [side]


def test_views_have_short_names_where_these_are_of_one_table() -> None:
    edr = TableName("lake", ("edr", "eu"), "flows")
    assert view_names([FLOWS, edr]) == {
        "lake.net.flows": FLOWS,
        "lake.edr.eu.flows": edr,
        "net_flows": FLOWS,
        "edr_eu_flows": edr,
    }
    assert view_names([FLOWS])["flows"] == FLOWS
    assert aliases([FLOWS, edr]) == {FLOWS: "lake.net.flows", edr: "lake.edr.eu.flows"}
    assert aliases([FLOWS]) == {FLOWS: "flows"}


def test_pins_are_no_older_than_the_staleness_that_is_allowed() -> None:
    now_s = 0.0
    store = MemoryColdStore()
    store.create(FLOWS, COLUMNS)
    with PinCache(store, refresh_s=1e9, idle_s=1e9, clock=lambda: now_s) as pins:
        assert outdated(pins, [FLOWS], 5) == [FLOWS]
        pins.refresh(FLOWS)
        now_s = 5.0
        assert outdated(pins, [FLOWS], 5) == []
        assert outdated(pins, [FLOWS], None) == [FLOWS]
        now_s = 5.1
        assert outdated(pins, [FLOWS], 5) == [FLOWS]


def test_no_view_is_of_two_tables_that_differ_in_case() -> None:
    upper = TableName("lake", ("net",), "FLOWS")
    assert view_names([FLOWS, upper]) == {}
    assert aliases([FLOWS, upper]) == {}
    short = TableName("lake", ("edr",), "Net_Flows")
    assert view_names([FLOWS, short]) == {
        "lake.net.flows": FLOWS,
        "flows": FLOWS,
        "lake.edr.Net_Flows": short,
        "edr_Net_Flows": short,
    }


def test_columns_of_a_batch_are_those_of_the_start() -> None:
    now = TableSchema(
        1,
        (
            Column(5, "bytes", pa.int64()),
            Column(6, "host", pa.string()),
            Column(4, "h", pa.string()),
        ),
    )
    batch = pa.record_batch({"bytes": [1], "host": ["new"], "h": ["old"]})
    start = TableSchema(0, (*COLUMNS, Column(9, "gone", pa.uuid())))
    columns = in_columns("t", batch, now, start)
    assert columns.to_pylist() == [{"host": "old", "bytes": 1, "gone": None}]
    assert columns.schema.field("bytes").type == pa.int32()
    with pytest.raises(StalePlan, match="column bytes has another type"):
        in_columns("t", pa.record_batch({"bytes": [2**40]}), now, start)


def member(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={b"PARQUET:field_id": str(number).encode()})


def test_fields_within_columns_of_a_batch_are_those_of_the_start_by_their_ids() -> None:
    start = pa.struct(
        [member("a", pa.int32(), 11), member("b", pa.string(), 12), member("z", pa.int8(), 13)]
    )
    # Names were exchanged, one type widened, and a dropped field's name given to another.
    now = pa.struct(
        [member("b", pa.int64(), 11), member("a", pa.string(), 12), member("z", pa.int8(), 14)]
    )

    def nestings(kind: pa.DataType) -> tuple[Column, ...]:
        key = member("key", pa.string(), 6).with_nullable(False)
        value = member("value", kind, 7)
        return (
            Column(4, "s", kind),
            Column(5, "l", pa.list_(member("element", kind, 8))),
            Column(9, "m", pa.map_(key, value)),
        )

    row, other = {"b": 1, "a": "x", "z": 3}, {"a": 1, "b": "x", "z": None}
    rows = [
        {"s": row, "l": [row, None], "m": [("k", row)]},
        {"s": None, "l": None, "m": None},
        {"s": row, "l": [], "m": [("k", None)]},
    ]
    own = TableSchema(1, nestings(now))
    batch = pa.RecordBatch.from_pylist(rows, own.arrow)
    columns = in_columns("t", batch, own, TableSchema(0, nestings(start)))
    columns.validate(full=True)
    assert columns.to_pylist() == [
        {"s": other, "l": [other, None], "m": [("k", other)]},
        {"s": None, "l": None, "m": None},
        {"s": other, "l": [], "m": [("k", None)]},
    ]
    sliced = in_columns("t", batch.slice(1), own, TableSchema(0, nestings(start)))
    assert sliced.to_pylist() == columns.to_pylist()[1:]
    with pytest.raises(StalePlan, match="column s has another type"):
        in_columns("t", batch, own, TableSchema(0, (Column(4, "s", pa.list_(pa.int8())),)))


def test_files_are_compared_with_many_ranges_by_their_outermost_bounds() -> None:
    few = offsets_filter(schema(), [OffsetRange(0, 3, 5), OffsetRange(1, 4, 9)])
    assert [condition.values[1].as_py() for each in few for condition in each] == [0, 4, 1, 8]
    ((only,),) = offsets_filter(schema(), [OffsetRange(p, p, 500) for p in range(101)])
    assert (only.column, [value.as_py() for value in only.values]) == ("kafka_offset", [0, 499])


class Frame:
    """Rows by name."""

    def __init__(self, *parts: str) -> None:
        self.parts = parts

    def union(self, other: Frame) -> Frame:
        return Frame(*self.parts, *other.parts)


class CountingKeeper:
    def __init__(self) -> None:
        self.decoded: list[TableName] = []

    def decode(self, cut: TableCut) -> DataFrame:
        self.decoded.append(cut.table)
        return cast("DataFrame", Frame(f"tail {len(self.decoded)}"))


class Written:
    """A store whose snapshots have the columns of their slices."""

    def own_schema(self, _: TableName, cold: ColdSlice) -> TableSchema:
        return cold.schema

    def comparable_floats(self, _: ColdSlice) -> frozenset[int]:
        return frozenset()


def test_a_tail_is_decoded_once_for_all_of_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.spark.lake.cut.cold_rows", lambda *_: Frame("cold"))
    keeper = CountingKeeper()
    cut = plan_cut(pin(3), bounds((0, 5)))
    tables = LakeCut(
        cast("SparkSession", None),
        {FLOWS: cut},
        cast("TailKeeper", keeper),
        cast("IcebergStore", Written()),
        LakeSettings({}, {}),
    )
    frames = [
        tables.table("lake.net.flows"),
        tables.table("flows"),
        tables.table("flows", "tail"),
    ]
    assert [cast("Frame", frame).parts for frame in frames] == [
        ("cold", "tail 1"),
        ("cold", "tail 1"),
        ("tail 1",),
    ]
    assert keeper.decoded == [FLOWS]
