"""The Iceberg REST catalog over HTTP: its endpoints, who may, what it refuses and how."""

from __future__ import annotations

import contextlib
import datetime as dt
import http.client
import json
import socket
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pydantic import SecretStr
from pyiceberg.catalog import load_catalog
from pyiceberg.table import StaticTable

from connectors.iceberg.create import create_table
from connectors.iceberg.store import IcebergStore
from planner.binding import LIVE_CUT, Binding
from planner.errors import BadConfig
from planner.names import TableName
from planner.offsets import OffsetVector
from planner.watermark import Watermark, format_watermark
from tests.fixtures.kafka import Kafka
from tests.fixtures.object_store import ObjectStore
from tests.fixtures.oidc import AUDIENCE, Provider
from tests.fixtures.server import SqlServer, serving, settings_of, sqlite_catalog
from tests.harness import rest_specification
from tests.harness.events import EVENT, events
from tests.harness.published import publish
from thermocline.commands.doctor import command as doctor
from thermocline.commands.sql import command as sql
from thermocline.config.settings import Granted, IcebergRest, Settings

pytestmark = pytest.mark.kafka


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: Any

    @property
    def error(self) -> tuple[int, str]:
        error = self.body["error"]
        assert error["code"] == self.status
        return self.status, error["type"]


@dataclass
class Rest:
    server: SqlServer

    @property
    def address(self) -> tuple[str, int]:
        assert self.server.running.rest_port is not None
        return "127.0.0.1", self.server.running.rest_port

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: Any
    ) -> Answer:
        connection = http.client.HTTPConnection(*self.address, timeout=30)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            text = answer.read()
            named_headers = {name.lower(): value for name, value in answer.getheaders()}
            read = json.loads(text) if text else None
            # Every answer of every test.
            rest_specification.check(method, path, answer.status, read)
            return Answer(answer.status, named_headers, read)
        finally:
            connection.close()

    def table(self, table: TableName, warehouse: str = "lake") -> str:
        return f"/v1/{warehouse}/namespaces/{table.schema}/tables/{table.name}"

    def rows(self, table: TableName, warehouse: str = "lake", **headers: Any) -> pa.Table:
        answer = self.ask(self.table(table, warehouse), **headers)
        assert answer.status == 200, answer
        return StaticTable.from_metadata(answer.body["metadata-location"]).scan().to_arrow()


def live_settings(kafka: Kafka, folder: Path, **rest: Any) -> Settings:
    settings = settings_of({"lake": sqlite_catalog(folder)}, kafka.settings)
    return settings.model_copy(update={"iceberg_rest": IcebergRest(port=0, **rest)})


@pytest.fixture(scope="module")
def rest(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    with serving(live_settings(kafka, tmp_path_factory.mktemp("rest"))) as server:
        yield Rest(server)


@pytest.fixture
def flows(rest: Rest, kafka: Kafka) -> TableName:
    topic = kafka.topic(2)
    kafka.produce(topic, events(0, 10))
    return rest.server.bind(topic, EVENT)


def test_the_configuration_names_the_prefix_and_what_can_be_read(rest: Rest) -> None:
    config = rest.ask("/v1/config?warehouse=lake").body
    assert config["overrides"] == {"prefix": "lake"}
    assert all(not e.startswith(("DELETE", "PUT")) for e in config["endpoints"])
    assert {e for e in config["endpoints"] if e.startswith("POST")} == {
        "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics"
    }
    assert rest.ask("/v1/config").body == config  # the only catalog there is
    assert rest.ask("/v1/config?warehouse=pond").error == (404, "NoSuchWarehouseException")
    assert rest.ask("/v1/config?warehouse=lake@c:nonsense").error == (
        400,
        "BadRequestException",
    )
    long = rest.ask("/v1/config?warehouse=lake@c:" + "a" * 7000)
    assert long.error == (400, "BadRequestException")
    assert "has room for 6,144" in long.body["error"]["message"]


def test_namespaces_and_tables_are_listed_by_page(rest: Rest, kafka: Kafka) -> None:
    topic = kafka.topic()
    for name in ("a", "b", "c"):
        rest.server.bind(topic, EVENT, name=TableName("lake", ("deep", "er"), name))
    assert ["deep"] in rest.ask("/v1/lake/namespaces").body["namespaces"]
    below = rest.ask("/v1/lake/namespaces?parent=deep").body
    assert below["namespaces"] == [["deep", "er"]]
    nested = quote("deep\x1fer", safe="")
    assert rest.ask(f"/v1/lake/namespaces/{nested}").body["namespace"] == ["deep", "er"]
    assert rest.ask(f"/v1/lake/namespaces/{nested}", "HEAD").status == 204
    assert rest.ask("/v1/lake/namespaces/no", "HEAD").status == 404
    names: list[str] = []
    token: Any = ""
    pages = 0
    while token is not None:
        query = urlencode({"pageToken": token, "pageSize": 2})
        page = rest.ask(f"/v1/lake/namespaces/{nested}/tables?{query}").body
        names += [item["name"] for item in page["identifiers"]]
        token, pages = page.get("next-page-token"), pages + 1
    assert (names, pages) == (["a", "b", "c"], 2)
    assert rest.ask("/v1/lake/namespaces?pageToken=x").error == (400, "BadRequestException")
    assert rest.ask("/v1/lake/namespaces?pageSize=0").error == (400, "BadRequestException")
    assert rest.ask("/v1/lake/namespaces/no/tables").error == (404, "NoSuchNamespaceException")
    assert rest.ask("/v1/lake/namespaces?parent=no").error == (404, "NoSuchNamespaceException")
    assert rest.ask("/v1/pond/namespaces").error == (404, "NoSuchWarehouseException")
    assert rest.ask(f"/v1/lake/namespaces/{nested}/views").body == {"identifiers": []}


def test_a_load_is_the_table_up_to_the_last_record(
    rest: Rest, kafka: Kafka, flows: TableName
) -> None:
    assert rest.rows(flows).num_rows == 10
    kafka.produce(str(_topic(rest, flows)), events(10, 13), partition=1)
    answer = rest.ask(rest.table(flows))
    metadata = answer.body["metadata"]
    (snapshot,) = (
        s for s in metadata["snapshots"] if s["snapshot-id"] == metadata["current-snapshot-id"]
    )
    parent = metadata["refs"]["cold"]["snapshot-id"]
    (below,) = (s for s in metadata["snapshots"] if s["snapshot-id"] == parent)
    assert snapshot["parent-snapshot-id"] == parent
    assert snapshot["timestamp-ms"] == below["timestamp-ms"] + 1
    assert metadata["snapshot-log"][-1]["snapshot-id"] == parent
    assert metadata["properties"]["gc.enabled"] == "false"
    ours = {key for key in metadata["properties"] if key.startswith("thermocline.")}
    assert ours == {LIVE_CUT}
    assert rest.rows(flows).num_rows == 13
    with rest.server.catalog() as catalog:
        committed = catalog.load_table((*flows.namespace, flows.name)).metadata
    assert committed.current_snapshot_id == parent  # nothing was committed


def _topic(rest: Rest, table: TableName) -> str:
    with rest.server.catalog() as catalog:
        loaded = catalog.load_table((*table.namespace, table.name))
        return loaded.metadata.properties["thermocline.topic"]


def test_an_unchanged_cut_is_the_same_answer(rest: Rest, flows: TableName) -> None:
    first = rest.ask(rest.table(flows))
    again = rest.ask(rest.table(flows))
    assert (again.body, again.headers["etag"]) == (first.body, first.headers["etag"])
    etag = first.headers["etag"]
    assert rest.ask(rest.table(flows), if_none_match=etag).status == 304
    assert rest.ask(rest.table(flows), if_none_match=f'"x", W/{etag}').status == 304
    few = rest.ask(rest.table(flows) + "?snapshots=refs")
    assert few.headers["etag"] != etag
    named = {ref["snapshot-id"] for ref in few.body["metadata"]["refs"].values()}
    assert {s["snapshot-id"] for s in few.body["metadata"]["snapshots"]} == named
    assert rest.ask(rest.table(flows) + "?snapshots=some").error == (400, "BadRequestException")
    assert rest.ask(rest.table(flows), "HEAD").status == 204
    assert rest.ask(rest.table(flows) + "/metrics", "POST", b"{}").status == 204


def test_a_job_reads_all_its_tables_at_one_cut(
    rest: Rest, kafka: Kafka, flows: TableName
) -> None:
    other_topic = kafka.topic()
    kafka.produce(other_topic, events(0, 5))
    other = rest.server.bind(other_topic, EVENT)
    left_out = rest.server.bind(kafka.topic(), EVENT)
    (row,) = rest.server.ask(
        f"SELECT thermocline_cut() AS cut, (SELECT count(*) FROM {flows}) + (SELECT count(*) FROM {other}) AS n"
    ).to_pylist()
    assert row["n"] == 15
    kafka.produce(other_topic, events(5, 9))
    kafka.produce(_topic(rest, flows), events(10, 20))
    warehouse = f"lake@{row['cut']}"
    assert rest.ask(f"/v1/config?{urlencode({'warehouse': warehouse})}").status == 200
    assert rest.rows(flows, warehouse).num_rows == 10
    assert rest.rows(other, warehouse).num_rows == 5
    assert rest.rows(other).num_rows == 9
    absent = rest.ask(rest.table(left_out, warehouse))
    assert absent.error == (404, "NoSuchTableException")
    assert "a cut of all tables" in absent.body["error"]["message"]


def test_a_header_says_how_new_a_load_must_be(
    rest: Rest, kafka: Kafka, flows: TableName
) -> None:
    assert rest.rows(flows, thermocline_freshness="cold").num_rows == 0
    assert rest.rows(flows).num_rows == 10
    topic = _topic(rest, flows)
    kafka.produce(topic, events(10, 20))
    assert rest.rows(flows, thermocline_freshness="max_staleness 1h").num_rows == 10
    assert rest.rows(flows, thermocline_wait_for=f"{topic}/0:19").num_rows == 20
    wrong = rest.ask(rest.table(flows), thermocline_freshness="soon")
    assert wrong.error == (400, "BadRequestException")


def test_plain_tables_pass_through(rest: Rest) -> None:
    table = rest.server.create_plain(pa.table({"id": [1, 2, 3]}))
    answer = rest.ask(rest.table(table))
    assert answer.body["metadata"]["properties"]["gc.enabled"] == "false"
    with rest.server.catalog() as catalog:
        own = catalog.load_table((*table.namespace, table.name)).metadata_location
    assert answer.body["metadata-location"] == own
    host, port = rest.address
    with contextlib.closing(
        load_catalog("live", type="rest", uri=f"http://{host}:{port}", warehouse="lake")
    ) as live:
        read = live.load_table((*table.namespace, table.name)).scan().to_arrow()
    assert read["id"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/lake/namespaces"),
        ("DELETE", "/v1/lake/namespaces/net"),
        ("POST", "/v1/lake/namespaces/net/properties"),
        ("POST", "/v1/lake/namespaces/net/tables"),
        ("POST", "/v1/lake/namespaces/net/register"),
        ("POST", "/v1/lake/namespaces/net/tables/flows"),
        ("DELETE", "/v1/lake/namespaces/net/tables/flows"),
        ("POST", "/v1/lake/tables/rename"),
        ("POST", "/v1/lake/transactions/commit"),
    ],
)
def test_a_write_is_refused_with_the_catalog_to_write_to(
    rest: Rest, method: str, path: str
) -> None:
    answer = rest.ask(path, method, b"{}")
    assert answer.error == (403, "ForbiddenException")
    assert "write to catalog lake itself" in answer.body["error"]["message"]


def test_what_a_person_must_look_at_is_told_and_no_older_answer(
    rest: Rest, kafka: Kafka, flows: TableName
) -> None:
    rest.rows(flows)
    kafka.delete_records(_topic(rest, flows), 0, 4)
    answer = rest.ask(rest.table(flows))
    assert answer.error == (422, "TailGap")
    assert "4 offsets were removed" in answer.body["error"]["message"]
    assert rest.ask(rest.table(TableName("lake", ("net",), "no"))).error == (
        404,
        "NoSuchTableException",
    )
    assert rest.ask("/v1/lake/nonsense").error == (404, "NoSuchEndpointException")
    assert rest.ask("/elsewhere").error == (404, "NoSuchEndpointException")


def test_a_broker_that_is_down_is_told_with_when_to_ask_again(
    kafka: Kafka, tmp_path: Path
) -> None:
    with serving(live_settings(kafka, tmp_path)) as server:
        table = server.bind(kafka.topic(), EVENT)
    settings = live_settings(kafka, tmp_path)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = {**settings.kafka, "bootstrap.servers": f"127.0.0.1:{closed.getsockname()[1]}"}
        with serving(settings.model_copy(update={"kafka": nobody})) as server:
            rest = Rest(server)
            answer = rest.ask(rest.table(table))
            assert answer.error == (503, "ServiceUnavailableException")
            assert int(answer.headers["retry-after"]) > 0
            assert rest.ask(rest.table(table), "POST", b"{}").status == 403


def test_loads_at_the_same_time_share_the_work(
    rest: Rest, kafka: Kafka, flows: TableName
) -> None:
    with ThreadPoolExecutor(50) as asking:
        answers = list(asking.map(lambda _: rest.ask(rest.table(flows)), range(200)))
    assert {answer.status for answer in answers} == {200}
    assert len({answer.headers["etag"] for answer in answers}) == 1


def test_rough_clients_are_left(rest: Rest) -> None:
    with socket.create_connection(rest.address) as raw:
        raw.sendall(b"GET /v1/config HTTP/1.1\r\nhost: x\r\nfill: " + b"a" * 200_000)
        assert raw.recv(100).startswith(b"HTTP/1.1 400")
    with socket.create_connection(rest.address) as raw, contextlib.suppress(ConnectionError):
        raw.sendall(b"GET /v1/config HTTP/1.1\r\nhost: x\r\nfill: " + b"a" * (10 << 20))
        assert raw.recv(100)[:12] in (b"HTTP/1.1 400", b"")
    big = b"x" * (2 << 20)
    assert rest.ask("/v1/oauth/tokens", "POST", big).error == (413, "BadRequestException")
    with socket.create_connection(rest.address) as silent:
        silent.settimeout(20)
        began_s = time.monotonic()
        silent.sendall(b"GET /v1/")
        assert silent.recv(100) == b""
        assert time.monotonic() - began_s < 15


@pytest.mark.soak
def test_a_thousand_loads_at_once_are_all_answered(
    rest: Rest, kafka: Kafka, flows: TableName
) -> None:
    """Of one user, who may have three quarters of all places: the others ask again when they are told to."""
    topic, stopped = _topic(rest, flows), threading.Event()

    def produce_on() -> None:
        while not stopped.wait(0.05):
            kafka.produce(topic, events(0, 5))

    def loaded(_: int) -> list[int]:
        statuses: list[int] = []
        while not statuses or statuses[-1] != 200:
            answer = rest.ask(rest.table(flows))
            statuses.append(answer.status)
            if answer.status != 200:
                assert answer.error == (503, "ServiceUnavailableException")
                time.sleep(int(answer.headers["retry-after"]))
        return statuses

    producing = threading.Thread(target=produce_on)
    producing.start()
    try:
        with ThreadPoolExecutor(1_000) as asking:
            tries = list(asking.map(loaded, range(1_000)))
    finally:
        stopped.set()
        producing.join()
    assert max(map(len, tries)) < 20


@pytest.mark.parametrize("number", [10, pytest.param(500, marks=pytest.mark.soak)])
def test_a_tool_that_loads_every_table_it_finds_gets_them(
    kafka: Kafka, tmp_path: Path, number: int
) -> None:
    """More tables than may be followed: what is not needed now makes room."""
    settings = live_settings(kafka, tmp_path)
    tail = settings.tail.model_copy(update={"max_tables": 4})
    topic = kafka.topic()
    kafka.produce(topic, events(0, 3))
    with serving(settings.model_copy(update={"tail": tail})) as server:
        rest = Rest(server)
        names = [f"t_{n:03}" for n in range(number)]
        for name in names:
            server.bind(topic, EVENT, name=TableName("lake", ("many",), name))
        listed = rest.ask("/v1/lake/namespaces/many/tables").body["identifiers"]
        assert [item["name"] for item in listed] == names
        with ThreadPoolExecutor(16) as asking:
            tables = [TableName("lake", ("many",), name) for name in names]
            answers = list(asking.map(lambda table: rest.ask(rest.table(table)), tables))
        assert Counter(answer.status for answer in answers) == {200: number}
        totals = {
            answer.body["metadata"]["snapshots"][-1]["summary"]["added-records"]
            for answer in answers
        }
        assert totals == {"3"}


def test_tokens_of_an_identity_provider_are_those_of_flight(
    kafka: Kafka, tmp_path: Path, provider: Provider
) -> None:
    settings = live_settings(kafka, tmp_path)
    log = tmp_path / "audit.log"
    settings = settings.model_copy(
        update={
            "server": settings.server.model_copy(update={"audit_log": str(log)}),
            "access": settings.access.model_copy(
                update={
                    "jwt_issuer": provider.issuer,
                    "jwt_audience": AUDIENCE,
                    "jwt_groups_claim": "groups",
                }
            ),
            "permissions": {"eu": Granted(groups=("eu",), tables=("lake.net.*",))},
        }
    )
    with serving(settings) as server:
        rest = Rest(server)
        topic = kafka.topic()
        kafka.produce(topic, events(0, 3))
        table = server.bind(topic, EVENT)

        def load(token: str) -> Answer:
            return rest.ask(rest.table(table), authorization=f"Bearer {token}")

        good = provider.token(groups=["eu"])
        assert load(good).status == 200
        assert load(provider.token(groups=["us"])).error == (404, "NoSuchTableException")
        for bad in (
            provider.token(groups=["eu"], expires_in_s=-3_600),
            provider.token(groups=["eu"], aud="another"),
            provider.token(groups=["eu"], iss="https://another"),
            good[:-4] + "AAAA",
            "nonsense",
        ):
            assert load(bad).error == (401, "NotAuthorizedException")
        assert rest.ask(rest.table(table)).error == (401, "NotAuthorizedException")
        exchange = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "subject_token": good,
        }
        answer = rest.ask("/v1/oauth/tokens", "POST", urlencode(exchange).encode())
        assert (answer.status, answer.body["error"]) == (400, "unsupported_grant_type")
        properties = {
            "type": "rest",
            "uri": "http://{}:{}".format(*rest.address),
            "warehouse": "lake",
            "token": good,
        }
        with contextlib.closing(load_catalog("live", **properties)) as live:
            assert live.load_table((*table.namespace, table.name)).scan().count() == 3
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {line["user"] for line in lines if line["outcome"] == "ok"} == {"ada"}


HANDED_OUT = {
    "s3.access-key-id": "handed",
    "s3.secret-access-key": "out",
    "s3.region": "eu-central-1",
}
PASSWORDS = {"whole": "w", "part": "p", "files": "f", "none": "n"}


@pytest.fixture(scope="module")
def guarded(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    folder = tmp_path_factory.mktemp("guarded")
    users = {user: SecretStr(text) for user, text in PASSWORDS.items()}
    settings = live_settings(kafka, folder, credentials={"lake": HANDED_OUT})
    settings = settings.model_copy(
        update={
            "server": settings.server.model_copy(update={"users": users}),
            "permissions": {
                "whole": Granted(users=("whole",), tables=("*",)),
                "part": Granted(users=("part",), tables=("*",), rows="id < 3"),
                "files": Granted(
                    users=("files",), tables=("*",), without=("name",), files=True
                ),
            },
        }
    )
    with serving(settings) as server:
        yield Rest(server)


def test_users_are_those_of_flight_and_files_are_for_who_may_read_all_of_them(
    guarded: Rest, kafka: Kafka
) -> None:
    topic = kafka.topic()
    kafka.produce(topic, events(0, 10))
    table = guarded.server.bind(topic, EVENT, name=TableName("lake", ("net",), "guarded"))

    def token(user: str, password: str) -> Answer:
        form = {
            "grant_type": "client_credentials",
            "client_id": user,
            "client_secret": password,
        }
        return guarded.ask("/v1/oauth/tokens", "POST", urlencode(form).encode())

    def status(user: str) -> Answer:
        bearer = f"Bearer {token(user, PASSWORDS[user]).body['access_token']}"
        return guarded.ask(guarded.table(table), authorization=bearer)

    assert guarded.ask(guarded.table(table)).error == (401, "NotAuthorizedException")
    assert "www-authenticate" in guarded.ask("/v1/config").headers
    wrong = token("whole", "wrong")
    assert (wrong.status, wrong.body["error"]) == (401, "invalid_client")
    other = guarded.ask("/v1/oauth/tokens", "POST", b"grant_type=password")
    assert (other.status, other.body["error"]) == (400, "unsupported_grant_type")
    whole = status("whole")
    assert whole.status == 200
    assert whole.body["config"] == HANDED_OUT
    assert status("files").status == 200
    refused = status("part")
    assert refused.error == (403, "ForbiddenException")
    assert "read it over Flight SQL" in refused.body["error"]["message"]
    assert status("none").error == (404, "NoSuchTableException")
    host, port = guarded.address
    with contextlib.closing(
        load_catalog(
            "live",
            type="rest",
            uri=f"http://{host}:{port}",
            warehouse="lake",
            credential="whole:w",
            **{"oauth2-server-uri": f"http://{host}:{port}/v1/oauth/tokens"},
        )
    ) as live:
        assert live.load_table(("net", "guarded")).scan().to_arrow().num_rows == 10


def test_a_condition_on_the_newest_rows_reads_no_cold_file(
    rest: Rest, kafka: Kafka, flows: TableName
) -> None:
    now_ms = time.time_ns() // 1_000_000
    topic = _topic(rest, flows)
    with rest.server.catalog() as catalog:
        committed = catalog.load_table((*flows.namespace, flows.name))
        arrow = committed.schema().as_arrow()
        mark = rest.server.running.pins.get(flows).watermark
        assert mark is not None
        old = {"kafka_timestamp": dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "kafka_partition": 0}
        rows = [{**old, "kafka_offset": n, "id": n, "name": f"row {n}"} for n in range(10)]
        ends = replace(
            mark,
            next=OffsetVector.of([(0, 10), (1, 0)]),
            prev_snapshot_id=committed.metadata.current_snapshot_id,
        )
        publish(committed, pa.Table.from_pylist(rows, arrow), format_watermark(ends))
    rest.server.refresh(flows)
    kafka.produce(topic, events(10, 20), timestamp_ms=now_ms)
    answer = rest.ask(rest.table(flows))
    table = StaticTable.from_metadata(answer.body["metadata-location"])
    assert table.scan().to_arrow().num_rows == 20
    since = dt.datetime.fromtimestamp(now_ms / 1000 - 60, dt.UTC).isoformat()
    new = table.scan(row_filter=f"kafka_timestamp >= '{since}'")
    assert [task.file.record_count for task in new.plan_files()] == [10]
    assert new.to_arrow()["id"].to_pylist() == list(range(10, 20))


def test_a_catalog_of_live_tables_is_no_source_of_ours(rest: Rest, kafka: Kafka) -> None:
    host, port = rest.address
    live = {
        "pond": {"type": "rest", "uri": f"http://{host}:{port}", "warehouse": "lake"},
    }
    table = TableName("pond", ("net",), "anything")
    with (
        contextlib.closing(IcebergStore(live)) as store,
        pytest.raises(BadConfig, match="point at the catalog they come"),
    ):
        store.pin(table)
    mark = Watermark("c", "t", "i", OffsetVector.of([(0, 0)]), shape="s", run="r")
    with pytest.raises(BadConfig, match="point at the catalog they come"):
        create_table(live, table, EVENT, Binding("t"), mark)


def test_a_place_that_cannot_be_written_is_named(kafka: Kafka, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = live_settings(kafka, tmp_path, live_location=str(tmp_path / "file" / "live"))
    with serving(settings) as server:
        topic = kafka.topic()
        kafka.produce(topic, events(0, 3))
        table = server.bind(topic, EVENT)
        answer = Rest(server).ask(Rest(server).table(table))
        assert answer.error == (422, "BadConfig")
        assert "iceberg_rest.live_location cannot be written" in answer.body["error"]["message"]


@pytest.mark.parametrize("inside", ["warehouse", "warehouse/live"])
def test_live_files_never_lie_where_tables_do(
    kafka: Kafka, tmp_path: Path, inside: str
) -> None:
    settings = live_settings(kafka, tmp_path, live_location=str(tmp_path / inside))
    with pytest.raises(BadConfig, match="lies inside a place of tables"), serving(settings):
        pass


def test_loads_are_counted_and_written_down(kafka: Kafka, tmp_path: Path) -> None:
    settings = live_settings(kafka, tmp_path)
    log = tmp_path / "audit.log"
    server = settings.server.model_copy(update={"audit_log": str(log), "http_port": 0})
    with serving(settings.model_copy(update={"server": server})) as running:
        rest = Rest(running)
        topic = kafka.topic()
        kafka.produce(topic, events(0, 3))
        table = running.bind(topic, EVENT)
        rest.rows(table)
        rest.ask(rest.table(TableName("lake", ("net",), "no")))
        with urllib.request.urlopen(
            f"http://127.0.0.1:{running.running.http_port}/metrics"
        ) as answer:
            counted = answer.read().decode()
    assert 'thermocline_table_loads_total{outcome="ok"} 1.0' in counted
    assert 'thermocline_table_loads_total{outcome="UnknownTable"} 1.0' in counted
    assert "thermocline_table_load_seconds_count 1.0" in counted
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    loads = [(line["call"], line["table"], line["outcome"]) for line in lines]
    assert loads == [
        ("LoadTable", str(table), "ok"),
        ("LoadTable", "lake.net.no", "UnknownTable"),
    ]


def test_doctor_prints_settings_and_tries_the_engines(
    guarded: Rest, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic()
    kafka.produce(topic, events(0, 7))
    guarded.server.bind(topic, EVENT, name=TableName("lake", ("a",), "first"))
    catalog = guarded.server.settings.catalogs["lake"]
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in catalog.items())
    config = tmp_path / "thermocline.toml"
    config.write_text(f"[catalogs.lake]\n{lines}[iceberg_rest]\nport = {guarded.address[1]}\n")
    monkeypatch.setenv("THERMOCLINE_PASSWORD", "w")

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(doctor, ["--engines", *arguments], obj=str(config))

    well = run("--user", "whole", "--json")
    assert well.exit_code == 0, well.output
    checks = {line["check"]: line["what"] for line in json.loads(well.stdout)["findings"]}
    assert checks == dict.fromkeys(("pyiceberg", "DuckDB", "Polars"), "read 7 rows of a.first")
    text = run("--user", "whole").stdout
    assert "spark.sql.catalog.live.cache-enabled false" in text
    assert f"http://127.0.0.1:{guarded.address[1]}" in text
    assert "whole:w" not in text
    nobody = run("--json")
    assert nobody.exit_code == 1
    (line,) = json.loads(nobody.stdout)["findings"]
    assert line["state"] == "fail"


def test_live_files_lie_in_the_store_of_their_catalog(
    kafka: Kafka, object_store: ObjectStore, tmp_path: Path
) -> None:
    properties = object_store.catalog(tmp_path)
    own = {key: value for key, value in properties.items() if key.startswith("s3.")}
    settings = settings_of({"lake": properties}, kafka.settings)
    settings = settings.model_copy(
        update={"iceberg_rest": IcebergRest(port=0, credentials={"lake": own})}
    )
    with serving(settings) as server:
        topic = kafka.topic(2)
        kafka.produce(topic, events(0, 10))
        table = server.bind(topic, EVENT)
        host, port = Rest(server).address
        with contextlib.closing(
            load_catalog("live", type="rest", uri=f"http://{host}:{port}", warehouse="lake")
        ) as live:
            loaded = live.load_table((*table.namespace, table.name))
            assert loaded.metadata_location.startswith(f"{properties['warehouse']}-live/")
            assert loaded.scan().to_arrow().num_rows == 10
            kafka.produce(topic, events(10, 15), partition=1)
            assert live.load_table((*table.namespace, table.name)).scan().count() == 15


def test_a_statement_of_this_process_serves_no_live_tables(rest: Rest, tmp_path: Path) -> None:
    catalog = sqlite_catalog(tmp_path)
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in catalog.items())
    config = tmp_path / "thermocline.toml"
    config.write_text(
        f'[catalogs.lake]\n{lines}[server]\naudit_log = "off"\n'
        f"[iceberg_rest]\nport = {rest.address[1]}\n"  # taken
    )
    answer = CliRunner().invoke(sql, ["--local", "SELECT 40 + 2 AS n"], obj=str(config))
    assert answer.exit_code == 0, answer.output
    assert "42" in answer.stdout
