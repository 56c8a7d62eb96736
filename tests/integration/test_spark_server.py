"""Spark through the server: its user's grants hold, one load is one cut, and the answer is that of any client."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import thermocline.spark as tc
from connectors.flight_server import NoServer, NotLetIn
from connectors.spark.errors import unpack
from connectors.spark.remote.plan import ServedPlan, ServerAddress
from planner.errors import (
    BadConfig,
    BadParameter,
    FederationError,
    NotAllowed,
    RequestError,
    UnknownTable,
    UnsupportedType,
)
from planner.names import TableName
from tests.fixtures.kafka import Kafka
from tests.fixtures.permissions import COLUMN, PAY, ROW, PermissionsServer
from tests.fixtures.server import TieredServer
from tests.fixtures.spark import SparkLake
from tests.harness.spark_rows import (
    bound_flows,
    over_flight,
    read_here,
    record,
    rows_of,
    source_of,
)

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def flows(tiered_server: TieredServer, kafka: Kafka) -> tuple[TableName, str]:
    return bound_flows(tiered_server, kafka)


@pytest.fixture
def served(tiered_server: TieredServer) -> tc.ServerLake:
    return tc.connect(tiered_server.lake.session, server=tiered_server.uri)


def test_a_cut_through_the_server_is_the_answer_over_flight(
    tiered_server: TieredServer,
    served: tc.ServerLake,
    flows: tuple[TableName, str],
    kafka: Kafka,
) -> None:
    table, topic = flows
    cut = served.at(str(table))
    assert cut.tables == (table,)
    kafka.produce(topic, [record(77)])
    frame = cut.table(str(table))
    assert rows_of(frame) == over_flight(tiered_server, table, cut.token)
    assert cut.table(str(table), side="tail").count() == 20
    # One DataFrame is one cut, whatever is done with it.
    joined = frame.where("id = 5").alias("a").crossJoin(frame.where("id = 25").alias("b"))
    assert [tuple(row) for row in joined.select("a.id", "b.id").collect()] == [(5, 25)]
    assert cut.query(f"SELECT count(*) FROM {table}").collect()[0][0] == 60
    assert cut.sql(f"SELECT max({table.name}.id) FROM {table}").collect()[0][0] == 129
    assert served.query(f"SELECT count(*) FROM {table}").collect()[0][0] == 61
    again = served.at(cut=cut.token)
    assert (again.token, again.table(table.name).count()) == (cut.token, 60)
    waited = served.at(str(table), wait_for=f"{topic}/0:30")
    assert waited.table(str(table)).count() == 61
    past = served.at(str(table), timestamp="2020-01-01T00:00:00Z")
    assert past.table(str(table)).count() == 0
    chosen = served.table(str(table), columns="id, host", where="id > 120")
    assert sorted(row["id"] for row in chosen.collect()) == list(range(121, 130))


def test_a_load_reads_its_cut_again_when_its_ticket_is_over(
    tiered_server: TieredServer, flows: tuple[TableName, str], kafka: Kafka
) -> None:
    table, topic = flows
    address = ServerAddress.of(tiered_server.uri)
    plan = ServedPlan.of(address, f"SELECT count(*) AS n FROM {table}")
    kafka.produce(topic, [record(78)])
    spoiled = dataclasses.replace(plan, endpoints=(altered(plan.endpoints[0]),))
    for each in (plan, spoiled):
        assert pa.Table.from_batches(each.rows()).to_pylist() == [{"n": 60}]
    with pytest.raises(FederationError, match=r"its ticket is over: load\(\) it again"):
        list(dataclasses.replace(spoiled, cut="").rows())


def altered(endpoint: bytes) -> bytes:
    """The same FlightInfo with a ticket that no server gave out."""
    at = endpoint.rindex(b"TicketStatementQuery") + 60
    return endpoint[:at] + bytes([endpoint[at] ^ 1]) + endpoint[at + 1 :]


def test_all_types_of_the_server_arrive(
    tiered_server: TieredServer, served: tc.ServerLake
) -> None:
    frame = served.query(
        """SELECT 7::UTINYINT AS a, 18446744073709551615::UBIGINT AS b, sum(1) AS c, 1.50::DECIMAL(5,2) AS d,
        '00000000-0000-0000-0000-00000000000a'::UUID AS e, [1, NULL] AS f, {'x': 3::UINTEGER} AS g, MAP {'k': 1} AS h,
        TIMESTAMPTZ '2026-11-24 08:00:00+00' AS i, TIMESTAMP_NS '2026-11-24 08:00:00.123456789' AS j, DATE '2026-11-24' AS k,
        'x'::BLOB AS l, 'on'::ENUM ('on', 'off') AS m, '{"a": 1}'::JSON AS n, NULL AS o"""
    )
    [row] = frame.toArrow().to_pylist()
    assert (row["a"], row["b"], row["c"], str(row["d"])) == (7, 2**64 - 1, 1, "1.50")
    assert row["e"] == "00000000-0000-0000-0000-00000000000a"
    assert (row["f"], row["g"], row["h"]) == ([1, None], {"x": 3}, [("k", 1)])
    assert (row["j"].microsecond, row["l"], row["m"], row["n"]) == (
        123456,
        b"x",
        "on",
        '{"a": 1}',
    )
    assert dict(frame.dtypes)["c"].startswith("decimal")
    with pytest.raises(UnsupportedType, match="Spark has no type for column t"):
        served.query("SELECT INTERVAL 1 MONTH AS t")


def test_options_name_a_server(
    tiered_server: TieredServer, flows: tuple[TableName, str]
) -> None:
    table, _ = flows
    session = tiered_server.lake.session
    tc.register(session, server=tiered_server.uri)
    count = f"SELECT count(*) FROM {table}"
    frame = session.read.format("thermocline").option("query", count).load()
    assert frame.collect()[0][0] == 60
    address = ServerAddress.of(tiered_server.uri)
    counts = [
        len(read_here(address, table=str(table), **options))
        for options in (
            {"server": tiered_server.uri},
            {"side": "cold"},
            {"freshness": "tail"},
            {"freshness": "tail", "columns": "id"},
            {"filter": "id < 5 AND kafka_partition = 0"},
        )
    ]
    assert counts == [60, 40, 20, 20, 5]
    for options, kind, words in (
        ({"query": "SELECT 1", "table": "x"}, BadParameter, "query and table contradict"),
        ({"table": f"{table}x"}, UnknownTable, f"{table.name}x"),
        ({"table": str(table), "columns": "hst"}, BadParameter, "did you mean host"),
        ({"table": str(table), "side": "left"}, BadParameter, "cold or tail"),
        ({"query": "SELEC 1"}, RequestError, "syntax error"),
        ({}, BadParameter, "option query or table is missing"),
        ({"query": "SELECT 1", "quary": "x"}, BadParameter, "did you mean query"),
        ({"query": "SELECT 1", "server": "ftp://x"}, BadConfig, "is not a server's address"),
        ({"query": "SELECT INTERVAL 1 MONTH AS t"}, UnsupportedType, "column t"),
    ):
        with pytest.raises(RuntimeError) as refusal:
            source_of(address, **options).schema()
        error = unpack(str(refusal.value))
        assert isinstance(error, kind), refusal.value
        assert words in error.message
    stream = source_of(address, table=str(table))
    with pytest.raises(RuntimeError, match="a stream reads log and store by itself"):
        stream.streamReader(stream.schema())  # type: ignore[arg-type]


def test_nobody_and_nobody_known_are_told_apart(
    lake: SparkLake, permissions_server: PermissionsServer
) -> None:
    with pytest.raises(BadConfig, match="name it"):
        tc.connect(lake.session, token="x")  # type: ignore[call-overload]
    with pytest.raises(FederationError) as refusal:
        tc.connect(lake.session, server="grpc://127.0.0.1:1").at("net.people")
    assert isinstance(refusal.value, NoServer)
    stranger = tc.connect(lake.session, server=permissions_server.server.uri, token="wrong")
    with pytest.raises(NotLetIn):
        stranger.at("net.people")
    with pytest.raises(RequestError):
        stranger.table("net.people")


class User:
    """What one user meets through Spark."""

    def __init__(self, session: SparkSession, server: PermissionsServer, name: str) -> None:
        self.address = ServerAddress.of(server.server.uri, token=server.tokens[name])
        self.lake = tc.connect(session, server=server.server.uri, token=server.tokens[name])

    def met(self, frame: DataFrame) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = frame.toArrow().to_pylist()
        return rows


@pytest.fixture
def users(lake: SparkLake, permissions_server: PermissionsServer) -> dict[str, User]:
    return {
        name: User(lake.session, permissions_server, name)
        for name in ("boss", "filtered", "masked", "narrow", "both")
    }


def test_the_grants_of_its_user_hold(
    users: dict[str, User], permissions_server: PermissionsServer
) -> None:
    people = str(permissions_server.bound)
    counts = {}
    for name in ("boss", "filtered", "masked", "narrow"):
        user = users[name]
        # One session has sources of all these users, one after the other.
        rows = user.met(user.lake.table(people))
        counts[name] = len(rows)
        text = repr(rows)
        assert bool(ROW.search(text)) == (name != "filtered")
        assert bool(COLUMN.search(text)) == (name in ("boss", "filtered"))
        assert bool(PAY.search(text)) == (name in ("boss", "filtered"))
    assert counts == {"boss": 31, "filtered": 20, "masked": 31, "narrow": 31}


def test_there_is_no_direct_way_beside_a_server_that_hides_something(
    users: dict[str, User],
    permissions_server: PermissionsServer,
    lake: SparkLake,
    tmp_path: Path,
) -> None:
    """Also where the session has the settings and the catalogs: who sees a part reads through the server alone."""
    config = tmp_path / "thermocline.toml"
    properties = permissions_server.server.settings.catalogs["lake"]
    lines = "".join(f'"{key}" = {json.dumps(text)}\n' for key, text in properties.items())
    brokers = permissions_server.server.settings.kafka["bootstrap.servers"]
    config.write_text(f'[catalogs.lake]\n{lines}[kafka]\n"bootstrap.servers" = "{brokers}"\n')
    people, uri = str(permissions_server.bound), permissions_server.server.uri
    for name in ("masked", "filtered", "narrow", "both"):
        token = permissions_server.tokens[name]
        with (
            tc.connect(lake.session, str(config), server=uri, token=token) as direct,
            pytest.raises(RequestError, match="you may read a part of it only"),
        ):
            direct.at(people)
    with pytest.raises(BadConfig, match="give one of config and server"):
        tc.register(lake.session, str(config), server=uri, token=token)
    # Who sees all of it is let through: to a table that Spark's catalog does not have.
    boss = permissions_server.tokens["boss"]
    with (
        tc.connect(lake.session, str(config), server=uri, token=boss) as direct,
        pytest.raises(UnknownTable),
    ):
        direct.at(people)
    cut = users["masked"].lake.at(people)
    for frame in (cut.table(people), cut.sql(f"SELECT * FROM {people}")):
        assert not COLUMN.search(repr(users["masked"].met(frame)))


def test_who_may_not_count_gets_no_cut_and_one_load_is_one_all_the_same(
    users: dict[str, User], permissions_server: PermissionsServer
) -> None:
    people = str(permissions_server.bound)
    uncounted, masked = users["both"].lake, users["masked"].lake
    with pytest.raises(NotAllowed, match="each of their DataFrames is one cut"):
        uncounted.at(people)
    frame = uncounted.query(f"SELECT a.id FROM {people} a JOIN {people} b USING (id)")
    assert (frame.count(), frame.count()) == (20, 20)
    count = f"SELECT count(*) FROM {people}"
    assert masked.at(people).sql(count).collect()[0][0] == 31
    with pytest.raises(FederationError):
        uncounted.table(str(permissions_server.hidden))
    # Hidden values do not come with a filter either.
    for name, condition in (("filtered", "region = 'us'"), ("masked", "pay > 1000000")):
        assert read_here(users[name].address, table=people, filter=condition) == []
