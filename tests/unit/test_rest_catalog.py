"""How the properties of a REST catalog reach pyiceberg's client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import rest
from requests import PreparedRequest, Response, Session

from connectors.iceberg.catalogs import Catalogs
from connectors.iceberg.rest import RestCatalog, in_levels
from connectors.iceberg.store import IcebergStore
from planner.errors import BadConfig
from planner.names import TableName

LIMITS = {"rest.client.connection-timeout-ms": "1500", "rest.client.socket-timeout-ms": "2500"}


def test_properties_of_tls_are_put_in_levels() -> None:
    assert in_levels({"ssl.cabundle": "a", "ssl.client.cert": "b", "s3.region": "c"}) == {
        "ssl": {"cabundle": "a", "client": {"cert": "b"}},
        "s3.region": "c",
    }


@pytest.mark.parametrize(("properties", "expected"), [({}, (10.0, 60.0)), (LIMITS, (1.5, 2.5))])
def test_every_request_has_a_limit_and_our_own_authority_wins_over_the_environment(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    properties: dict[str, str],
    expected: tuple[float, float],
) -> None:
    sent: list[tuple[object, object]] = []

    def send(_: Session, request: PreparedRequest, **options: object) -> Response:
        sent.append((options["timeout"], options["verify"]))
        response = Response()
        response.status_code, response.request = 200, request
        response._content = b'{"defaults": {}, "overrides": {}, "namespaces": []}'
        return response

    monkeypatch.setattr(Session, "send", send)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/of/the/machine.pem")
    bundle = str(tmp_path / "ca.pem")
    catalogs = Catalogs(
        {"lake": {"type": "rest", "uri": "https://c", "ssl.cabundle": bundle, **properties}}
    )
    try:
        assert catalogs.tables(["lake"]) == ()
    finally:
        catalogs.close()
    assert sent == [(expected, bundle)] * 2


def test_a_limit_that_is_no_number_is_named() -> None:
    with pytest.raises(
        BadConfig, match=r"rest\.client\.socket-timeout-ms is 'soon'; it must be"
    ):
        RestCatalog("lake", uri="https://c", **{"rest.client.socket-timeout-ms": "soon"})


def test_requests_before_the_catalog_knows_its_limits_have_some() -> None:
    session: Any = rest.Session()  # type: ignore[attr-defined]
    assert session.limits_s == (10.0, 60.0)


METADATA = {
    "format-version": 2, "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
    "location": "s3://lake/net/flows", "last-sequence-number": 0, "last-updated-ms": 1,
    "last-column-id": 1, "current-schema-id": 0, "default-spec-id": 0, "last-partition-id": 999,
    "schemas": [{"schema-id": 0, "type": "struct", "fields": [
        {"id": 1, "name": "id", "type": "long", "required": False}]}],
    "partition-specs": [{"spec-id": 0, "fields": []}],
    "sort-orders": [{"order-id": 0, "fields": []}], "default-sort-order-id": 0,
    "properties": {"s3.endpoint": "http://elsewhere", "py-io-impl": "os.system", "token": "x"},
}  # fmt: skip


def table_of(
    monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any], **properties: str
) -> tuple[IcebergStore, Any]:
    """Load a table from a catalog that answers so."""

    def send(_: Session, request: PreparedRequest, **options: object) -> Response:
        response = Response()
        response.status_code, response.request = 200, request
        place = "s3://lake/net/flows/metadata/1.metadata.json"
        loaded = {"metadata-location": place, "metadata": METADATA, **answer}
        is_load = (request.url or "").endswith("/tables/flows")
        response._content = json.dumps(
            loaded if is_load else {"defaults": {}, "overrides": {}}
        ).encode()
        return response

    monkeypatch.setattr(Session, "send", send)
    store = IcebergStore({"lake": {"type": "rest", "uri": "https://c", **properties}})
    return store, store._catalogs.load(TableName("lake", ("net",), "flows"))


def test_files_are_read_by_what_came_with_a_table_and_not_by_what_it_says_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = {"s3.access-key-id": "a", "s3.secret-access-key": "b"}
    other = {"s3.access-key-id": "c", "s3.secret-access-key": "d", "s3.endpoint": "http://old"}
    answer = {
        "config": {"s3.endpoint": "http://store", "s3.region": "here"},
        "storage-credentials": [
            {"prefix": "s3://lake/", "config": keys},
            {"prefix": "s3://old/", "config": other},
        ],
    }
    store, table = table_of(monkeypatch, answer)
    assert table.io.properties.items() >= {"s3.endpoint": "http://store", **keys}.items()
    assert not {"py-io-impl", "token"} & table.io.properties.keys()
    pin = store._pin(TableName("lake", ("net",), "flows"), table)
    own = {"s3.endpoint": "http://store", "s3.region": "here"}
    by_prefix = (("s3://lake/", keys | own), ("s3://old/", own | other))
    assert store.files.vended(pin) == (keys | own, by_prefix)
    store.close()


def test_each_place_of_a_table_has_its_keys_in_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = {"s3.access-key-id": "a", "s3.secret-access-key": "b"}
    entries = [{"prefix": f"s3://{name}/", "config": keys} for name in ("lake", "old")]
    store, table = table_of(monkeypatch, {"storage-credentials": entries})
    secrets: list[str] = []
    store.files._take_secret = secrets.append
    for _ in range(2):
        store._pin(TableName("lake", ("net",), "flows"), table)
    first, second = secrets
    assert "SCOPE ['s3://lake/net/flows/'" in first
    assert "SCOPE ['s3://old/'" in second
    assert "elsewhere" not in first + second
    store.close()


SIGNING = {"s3.remote-signing-enabled": "true", "s3.signer.uri": "https://c"}


def test_a_catalog_that_signs_each_request_to_the_store_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(
        BadConfig, match=r"lake\.net\.flows: its catalog hands out no keys, and si"
    ):
        table_of(monkeypatch, {"config": SIGNING})


@pytest.mark.parametrize(
    ("config", "properties"),
    [
        ({"s3.access-key-id": "a", "s3.secret-access-key": "b"}, {}),
        ({}, {"s3.access-key-id": "a", "s3.secret-access-key": "b"}),
        ({}, {"s3.remote-signing-enabled": "false"}),
    ],
    ids=["keys of the table", "keys of our own", "a machine that may"],
)
def test_keys_are_enough_where_a_catalog_would_sign_too(
    monkeypatch: pytest.MonkeyPatch, config: dict[str, str], properties: dict[str, str]
) -> None:
    store, table = table_of(monkeypatch, {"config": SIGNING | config}, **properties)
    assert table.name() == ("net", "flows")
    store.close()
