"""Secrets of S3 from a catalog's pyiceberg properties."""

from __future__ import annotations

import pytest

from connectors.object_store import is_object_store, secrets
from planner.errors import BadConfig

KEY = {"s3.access-key-id": "ours", "s3.secret-access-key": "it's secret"}


def of(
    catalogs: dict[str, dict[str, str]],
    roots: dict[str, list[str]] | None = None,
    storage: list[str] | None = None,
) -> tuple[str, ...]:
    return secrets(catalogs, roots or {}, storage or [])


def test_a_store_of_one_s_own_is_addressed_by_path() -> None:
    properties = {**KEY, "warehouse": "s3://lake/wh/", "s3.endpoint": "http://127.0.0.1:9000/"}
    assert of({"lake": properties}) == (
        "CREATE SECRET \"lake\" (TYPE s3, REGION 'us-east-1', KEY_ID 'ours', SECRET 'it''s secret', "
        "ENDPOINT '127.0.0.1:9000', USE_SSL false, URL_STYLE 'path', "
        "SCOPE ['s3://lake/wh/', 's3a://lake/wh/', 's3n://lake/wh/'])",
    )


def test_amazon_s_own_is_addressed_by_host_and_read_without_a_key_where_there_is_none() -> None:
    [secret] = of({"lake": {"warehouse": "s3://lake", "client.region": "eu-central-1"}})
    assert "REGION 'eu-central-1', SCOPE" in secret


@pytest.mark.parametrize(
    ("properties", "part"),
    [
        ({"s3.force-virtual-addressing": "true"}, "URL_STYLE 'vhost'"),
        ({"s3.session-token": "t"}, "SESSION_TOKEN 't'"),
        ({"s3.region": "a", "client.region": "b"}, "REGION 'a'"),
        ({"s3.endpoint": "https://store.example"}, "ENDPOINT 'store.example', USE_SSL true"),
    ],
)
def test_what_pyiceberg_is_told_the_engine_is_told(
    properties: dict[str, str], part: str
) -> None:
    [secret] = of({"lake": {**KEY, **properties, "warehouse": "s3://lake"}})
    assert part in secret


def test_each_catalog_has_its_own_places() -> None:
    catalogs = {
        "a": {**KEY, "warehouse": "s3://one/a"},
        "b": {**KEY, "warehouse": "file:///local"},
        "c": {**KEY, "warehouse": "name of a REST catalog's"},
        "d": {"warehouse": "another name"},
    }
    storage = ["s3://one/a", "s3://rest", "/local"]
    first, third = of(catalogs, {"a": ["s3a://more"]}, storage)
    assert first.endswith(
        "SCOPE ['s3://one/a/', 's3a://one/a/', 's3n://one/a/', 's3://more/', 's3a://more/', 's3n://more/'])"
    )
    assert third.startswith('CREATE SECRET "c"')
    assert third.endswith("SCOPE ['s3://rest/', 's3a://rest/', 's3n://rest/'])")


def test_two_that_would_count_for_the_same_are_refused() -> None:
    catalogs = {name: {**KEY, "warehouse": name} for name in ("a", "b")}
    with pytest.raises(BadConfig, match=r"a and b .* server\.catalog_roots"):
        of(catalogs, storage=["s3://rest"])
    assert len(of(catalogs, {"a": ["s3://rest/a"]}, ["s3://rest"])) == 2


def test_without_s3_there_is_none() -> None:
    assert of({"lake": {"warehouse": "/local"}}, storage=["/local"]) == ()
    assert not is_object_store("/s3/x")


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"s3.access-key-id": "x"}, "go together"),
        ({"s3.endpoint": "store:9000"}, "s3.endpoint is not a URL"),
    ],
)
def test_half_of_it_is_refused(properties: dict[str, str], message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        of({"lake": {**properties, "warehouse": "s3://lake"}})
