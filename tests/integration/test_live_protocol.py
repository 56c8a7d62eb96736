"""The Iceberg REST catalog over HTTP: its endpoints, their errors, what it refuses and how."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest

from planner.names import TableName
from tests.fixtures.kafka import Kafka
from tests.fixtures.live_rest import Rest
from tests.harness.events import EVENT

pytestmark = pytest.mark.kafka


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


def test_an_unchanged_cut_is_the_same_answer(rest: Rest, live_flows: TableName) -> None:
    first = rest.ask(rest.table(live_flows))
    again = rest.ask(rest.table(live_flows))
    assert (again.body, again.headers["etag"]) == (first.body, first.headers["etag"])
    etag = first.headers["etag"]
    assert rest.ask(rest.table(live_flows), if_none_match=etag).status == 304
    assert rest.ask(rest.table(live_flows), if_none_match=f'"x", W/{etag}').status == 304
    few = rest.ask(rest.table(live_flows) + "?snapshots=refs")
    assert few.headers["etag"] != etag
    named = {ref["snapshot-id"] for ref in few.body["metadata"]["refs"].values()}
    assert {s["snapshot-id"] for s in few.body["metadata"]["snapshots"]} == named
    assert rest.ask(rest.table(live_flows) + "?snapshots=some").error == (
        400,
        "BadRequestException",
    )
    assert rest.ask(rest.table(live_flows), "HEAD").status == 204
    assert rest.ask(rest.table(live_flows) + "/metrics", "POST", b"{}").status == 204


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
    rest: Rest, kafka: Kafka, live_flows: TableName
) -> None:
    rest.rows(live_flows)
    kafka.delete_records(rest.topic(live_flows), 0, 4)
    answer = rest.ask(rest.table(live_flows))
    assert answer.error == (422, "TailGap")
    assert "4 offsets were removed" in answer.body["error"]["message"]
    assert rest.ask(rest.table(TableName("lake", ("net",), "no"))).error == (
        404,
        "NoSuchTableException",
    )
    assert rest.ask("/v1/lake/nonsense").error == (404, "NoSuchEndpointException")
    assert rest.ask("/elsewhere").error == (404, "NoSuchEndpointException")


@pytest.mark.parametrize("suffix", ["$cold", "$tail", "$SEAM"])
def test_a_table_that_is_named_as_a_side_of_another_is_listed_and_never_read(
    rest: Rest, suffix: str
) -> None:
    base = rest.server.create_plain(pa.table({"id": [1, 2]}))
    other = rest.server.create_plain(
        pa.table({"id": [7]}), name=replace(base, name=base.name + suffix)
    )
    sentence = (
        f'lake.net."{other.name}" is a table of its catalog, and its name means a side of table {base} here; rename or drop '
        f"it there."
    )
    with pytest.raises(adbc.Error) as refused:
        rest.server.ask(f'SELECT * FROM net."{other.name}"')
    assert sentence.removesuffix(".") in str(refused.value)
    listed = rest.ask(f"/v1/lake/namespaces/{base.schema}/tables").body["identifiers"]
    assert {base.name, other.name} <= {each["name"] for each in listed}
    path = f"/v1/lake/namespaces/{other.schema}/tables/{quote(other.name)}"
    answer = rest.ask(path)
    assert (answer.error, answer.body["error"]["message"]) == ((422, "BadConfig"), sentence)
    assert rest.ask(path, "HEAD").status == 422
    with adbc.connect(rest.server.uri, autocommit=True) as connection:
        objects = connection.adbc_get_objects(
            db_schema_filter=base.schema, table_name_filter=f"{base.name}%"
        ).read_all()
    (schema,) = objects.to_pylist()[0]["catalog_db_schemas"]
    columns = {
        each["table_name"]: [column["column_name"] for column in each["table_columns"]]
        for each in schema["db_schema_tables"]
    }
    assert columns == {base.name: ["id"], other.name: []}
    browsed = rest.server.ask(
        "SELECT table_name FROM information_schema.columns WHERE starts_with(table_name, ?)",
        [base.name],
    )
    assert browsed["table_name"].to_pylist() == [base.name]
    assert rest.rows(base)["id"].to_pylist() == [1, 2]
