"""What Spark asks a server for, and what it makes of the answer's types."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import pickle
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType

from connectors import flight_server
from connectors.flight_server import NoServer, NotLetIn, server_uri, to_ours
from connectors.spark.errors import pack, unpack
from connectors.spark.lake.source import source_class
from connectors.spark.remote import lake as server_lake
from connectors.spark.remote import load as served_load
from connectors.spark.remote import plan as served
from connectors.spark.remote.load import address_of, planned_load, relation
from connectors.spark.remote.plan import ServedPlan, ServedReader, ServedTask, ServerAddress
from connectors.spark.remote.types import in_spark, served_type, spark_schema
from planner.errors import (
    BadConfig,
    BadParameter,
    LimitExceeded,
    RequestError,
    StalePlan,
    UnsupportedType,
)
from thermocline.spark_statements import _staleness

ADDRESS = ServerAddress("grpc://server:1", token="hush")
SCHEMA = pa.schema([("id", pa.int32()), ("host", pa.string())])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.int32(), pa.int32()),
        (pa.uint8(), pa.int16()),
        (pa.uint64(), pa.decimal128(20, 0)),
        (pa.uuid(), pa.string()),
        (pa.json_(), pa.string()),
        (pa.large_string(), pa.string()),
        (pa.binary(4), pa.binary()),
        (pa.timestamp("ns"), pa.timestamp("us")),
        (pa.timestamp("s", tz="Europe/Berlin"), pa.timestamp("us", tz="UTC")),
        (pa.list_(pa.uint16()), pa.list_(pa.int32())),
        (pa.list_(pa.uint16(), 2), pa.list_(pa.int32())),
        (pa.map_(pa.string(), pa.uint32()), pa.map_(pa.string(), pa.int64())),
        (pa.struct([("a", pa.uint8())]), pa.struct([("a", pa.int16())])),
    ],
)
def test_types_of_a_server_have_one_in_spark(kind: pa.DataType, expected: pa.DataType) -> None:
    assert served_type(kind).equals(expected)
    assert len(spark_schema(pa.schema([("x", kind)])).fields) == 1


def test_values_arrive_in_sparks_types() -> None:
    rows = pa.record_batch(
        {
            "a": pa.array([255, None], pa.uint8()),
            "b": pa.array([2**64 - 1, 0], pa.uint64()),
            "c": pa.array([1_500_000_000_123_456_789, 1], pa.timestamp("ns")),
            "d": pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}", None])),
            "e": pa.array([[1], []], pa.list_(pa.uint16())),
            # DuckDB's ARRAY.
            "f": pa.array([[1, 2], None], pa.list_(pa.uint16(), 2)),
            "g": pa.array(
                [{"a": [[1.5]]}, None],
                pa.struct([("a", pa.large_list(pa.list_(pa.float32(), 1)))]),
            ),
        }
    )
    arrived = in_spark(rows)
    assert arrived.schema.types == [served_type(kind) for kind in rows.schema.types]
    first, second = arrived.to_pylist()
    assert (first["a"], first["b"], second["b"]) == (255, decimal.Decimal(2**64 - 1), 0)
    assert first["c"] == dt.datetime(2017, 7, 14, 2, 40, 0, 123456)
    assert (first["d"], second["e"]) == ("{}", [])
    assert (first["f"], second["f"]) == ([1, 2], None)
    assert (first["g"], second["g"]) == ({"a": [[1.5]]}, None)


def test_what_spark_has_no_type_for_is_refused_by_its_column() -> None:
    kind = pa.month_day_nano_interval()
    with pytest.raises(UnsupportedType, match="Spark has no type for column t"):
        spark_schema(pa.schema([("t", kind)]))
    far = pa.record_batch({"t": pa.array([2**60], pa.timestamp("s"))})
    with pytest.raises(UnsupportedType, match="does not hold a value of column t"):
        in_spark(far)


def test_an_address_is_whole_and_shows_no_secret(tmp_path: Path) -> None:
    roots = tmp_path / "roots.pem"
    roots.write_text("PEM")
    address = ServerAddress.of(
        "host", user="u", password="hush", tls_root_certificates=str(roots)
    )
    assert (address.uri, address.root_certificates) == ("grpc://host:31337", "PEM")
    assert "hush" not in repr(address) + repr(ADDRESS)
    for options, words in (
        ({"user": "u", "token": "t"}, "contradict"),
        ({"password": "p"}, "name the user"),
        ({"tls_root_certificates": "/nowhere"}, "cannot be read"),
    ):
        with pytest.raises(BadConfig, match=words):
            ServerAddress.of("host", **options)
    with pytest.raises(BadConfig, match="is not a server's address"):
        server_uri("http://host")


def test_options_name_the_server_or_it_was_registered() -> None:
    assert address_of({}, ADDRESS) is ADDRESS
    assert address_of({"server": "x:5"}, ADDRESS) == ServerAddress("grpc://x:5")
    assert address_of({}, None) is None
    with pytest.raises(BadParameter, match="add the option server"):
        address_of({"token": "t"}, None)
    assert relation("flows", "tail") == '"flows$tail"'
    assert relation("net.flows") == '"net"."flows"'
    assert relation('lake.a.b.f"x') == '"lake"."a.b"."f""x"'
    with pytest.raises(BadParameter, match="cold or tail"):
        relation("flows", "left")


class Planner:
    """Stands for a server that plans everything: what it was asked, in order."""

    def __init__(self, cut: str) -> None:
        self.cut = cut
        self.plans: list[tuple[str, dict[str, str]]] = []

    def of(
        self,
        address: ServerAddress,
        sql: str,
        settings: Mapping[str, str] | None = None,
        max_endpoints: int = 1,
    ) -> ServedPlan:
        self.plans.append((sql, dict(settings or {})))
        self.max_endpoints = max_endpoints
        return ServedPlan(address, sql, dict(settings or {}), SCHEMA, (b"",), self.cut)


def planning(monkeypatch: pytest.MonkeyPatch, cut: str = "c:1") -> Planner:
    planner = Planner(cut)
    monkeypatch.setattr(served_load, "ServedPlan", planner)
    monkeypatch.setattr(server_lake, "ServedPlan", planner)
    return planner


def test_a_load_is_planned_at_one_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    planner = planning(monkeypatch)
    planned_load(ADDRESS, {"query": "SELECT 1", "freshness": "cold"})
    planned_load(
        ADDRESS,
        {"table": "net.flows", "columns": "host", "filter": "id = 3", "wait_for": "f/0:1"},
    )
    assert planner.plans == [
        ("SELECT 1", {"freshness": "cold"}),
        ('SELECT * FROM "net"."flows"', {"wait_for": "f/0:1"}),
        (
            'SELECT "host" FROM "net"."flows" WHERE (\nid = 3\n)',
            {"cut": "c:1"},
        ),
    ]
    assert planner.max_endpoints == 8
    planned_load(ADDRESS, {"query": "SELECT 1", "max_endpoints": "3"})
    assert planner.max_endpoints == 3
    for options, words in (
        ({"query": "SELECT 1", "max_endpoints": "65"}, "a number of tasks from 1 to 64"),
        ({"query": "SELECT 1", "max_endpoints": "x"}, "a number of tasks from 1 to 64"),
        ({"query": "SELECT 1", "side": "cold"}, "query and side contradict"),
        ({}, "query or table is missing"),
        ({"table": "f", "columns": "hst"}, "did you mean host"),
        ({"table": "f", "filter": "hst = 1"}, "hst is no column"),
    ):
        with pytest.raises(BadParameter, match=words):
            planned_load(ADDRESS, options)


def test_a_side_of_a_freshness_stays_when_it_is_planned_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planner = planning(monkeypatch)
    planned_load(ADDRESS, {"table": "f", "columns": "host", "freshness": "tail"})
    assert [settings for _, settings in planner.plans] == [
        {"freshness": "tail"},
        {"freshness": "tail", "cut": "c:1"},
    ]
    plans: list[Mapping[str, str]] = []

    def planned(*arguments: Any) -> ServedPlan:
        plans.append(arguments[3])
        return plan

    def reader(_: object, endpoint: bytes) -> str:
        if plans:
            return "rows"
        raise OSError("[FlightSQL] The ticket's time is over (InvalidArgument; DoGet)")

    monkeypatch.setattr(served, "_planned", planned)
    monkeypatch.setattr(served, "_reader", reader)
    monkeypatch.setattr(flight_server, "DriverError", OSError)
    settings = {"freshness": "tail", "wait_for": "f/0:1"}
    plan = ServedPlan(ADDRESS, "SELECT 1", settings, SCHEMA, (b"", b""), "c:1", "split")
    opened: object = plan._opened(cast("Any", None), 1)
    assert opened == "rows"
    assert plans == [{"freshness": "tail", "cut": "c:1"}]
    # A part of another split is none of this plan's.
    for changed in ({"split": "other"}, {"endpoints": (b"",)}):
        plans.clear()
        with pytest.raises(
            StalePlan, match=r"in another way than when it was loaded; load\(\)"
        ):
            dataclasses.replace(plan, **changed)._opened(cast("Any", None), 0)


def test_a_source_without_settings_reads_through_its_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planning(monkeypatch)

    loaded = source_class(None, ADDRESS)({"query": "SELECT 1"})
    assert loaded.name() == "thermocline"
    assert loaded.schema().fieldNames() == ["id", "host"]  # type: ignore[union-attr]
    reader = loaded.reader(loaded.schema())  # type: ignore[arg-type]
    assert len(reader.partitions()) == 1
    assert isinstance(reader, ServedReader)
    assert isinstance(pickle.loads(pickle.dumps(reader)), ServedTask)
    with pytest.raises(RuntimeError, match="a stream reads log and store"):
        loaded.streamReader(loaded.schema())  # type: ignore[arg-type]
    for settings, options, words in (
        (ADDRESS, {"queri": "x"}, "did you mean query"),
        (
            ADDRESS,
            {"query": "x", "startingPosition": "now"},
            "startingPosition is unknown here",
        ),
        (None, {"query": "x"}, "add the option server"),
        (None, {"table": "x"}, "registered without settings"),
    ):
        with pytest.raises(RuntimeError, match=words):
            source_class(None, settings)(options).schema()
    own = source_class(None, ADDRESS)({"query": "SELECT 1"})
    with pytest.raises(RuntimeError, match=r"leave \.schema\(\) out"):
        own.reader(StringType())  # type: ignore[arg-type]


def test_errors_of_a_server_are_ours() -> None:
    def error(code: str, text: str, detail: str = "") -> BaseException:
        return to_ours(OSError(f"[FlightSQL] {text}{detail} ({code}; ExecuteQuery)"))

    assert isinstance(error("InvalidArgument", "wrong"), RequestError)
    assert str(error("InvalidArgument", "wrong")).endswith("wrong.")
    assert isinstance(error("Unauthenticated", "who?"), NotLetIn)
    assert isinstance(error("Unavailable", "connection error: x"), NoServer)
    detail = ". Detail: Python exception: LimitExceeded"
    assert isinstance(error("InvalidArgument", "large", detail), LimitExceeded)
    other = KeyError("x")
    assert to_ours(other) is other
    # Its class is none of the planner's.
    assert type(unpack(str(pack(NotLetIn("who?"))))) is RequestError


def test_times_of_a_cut_have_a_zone() -> None:
    assert server_lake._time("2026-01-01") == "TIMESTAMPTZ '2026-01-01'"
    moment = dt.datetime(2026, 1, 1, 8)
    assert server_lake._time(moment) == "TIMESTAMPTZ '2026-01-01T08:00:00+00:00'"


def test_contradicting_moments_of_a_cut_are_refused() -> None:
    session = SimpleNamespace(
        conf=SimpleNamespace(get=lambda *_: "local"),
        dataSource=SimpleNamespace(register=lambda _: None),
    )
    lake = server_lake.ServerLake(cast("SparkSession", session), ADDRESS)
    with pytest.raises(BadParameter, match="contradict"):
        lake.at("f", cut="c:1", max_staleness="5s")
    with pytest.raises(BadParameter, match="does not wait"):
        lake.at("f", cut="c:1", wait_for="f/0:1")


def test_a_freshness_of_the_command_is_one_of_a_cut() -> None:
    assert (_staleness(None), _staleness("live")) == (None, None)
    assert _staleness("max_staleness 2m") == "120s"
    with pytest.raises(BadConfig, match="side='tail'"):
        _staleness("tail")
