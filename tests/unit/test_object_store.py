"""Secrets of S3 from a catalog's pyiceberg properties."""

from __future__ import annotations

import duckdb
import pytest

from connectors import duckdb_extensions as extensions
from connectors.store.catalog_roots import CatalogRoots
from connectors.store.object_store import (
    is_object_store,
    secrets,
    vended_properties,
    vended_secret,
)
from planner.errors import BadConfig

KEY = {"s3.access-key-id": "ours", "s3.secret-access-key": "it's secret"}


def of(
    catalogs: dict[str, dict[str, str]],
    roots: dict[str, list[str]] | None = None,
    storage: list[str] | None = None,
) -> tuple[str, ...]:
    every = CatalogRoots.of(catalogs, roots, storage or [])
    every.check_heir()
    keyed = {
        name
        for name, options in catalogs.items()
        if any(key.startswith("s3.") for key in options)
    }
    places = {name: every.on_s3(name) for name in catalogs}
    return secrets(catalogs, {name: at for name, at in places.items() if at or name in keyed})


def test_a_store_of_one_s_own_is_addressed_by_path() -> None:
    properties = {**KEY, "warehouse": "s3://lake/wh/", "s3.endpoint": "http://127.0.0.1:9000/"}
    assert of({"lake": properties}) == (
        "CREATE OR REPLACE SECRET catalog_0 (TYPE s3, REGION 'us-east-1', KEY_ID 'ours', SECRET 'it''s secret', "
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


def counting_for(secrets: tuple[str, ...], *files: str) -> list[str | None]:
    """What the engine itself says, file by file: the region of the secret that it takes."""
    with duckdb.connect(config={"autoload_known_extensions": False}) as connection:
        extensions.load(connection, extensions.REMOTE)
        for secret in secrets:
            connection.execute(secret)
        regions = dict(
            connection.execute(
                "SELECT name, regexp_extract(secret_string, 'region=([^;]*)', 1) FROM duckdb_secrets()"
            ).fetchall()
        )
        names = [
            connection.execute("SELECT name FROM which_secret(?, 's3')", [file]).fetchone()
            for file in files
        ]
    return [None if name is None else regions[name[0]] for name in names]


def keyed(region: str, warehouse: str) -> dict[str, str]:
    return {**KEY, "s3.region": region, "warehouse": warehouse}


def test_each_catalog_has_its_own_places() -> None:
    catalogs = {
        "Lake": keyed("one", "s3://bucket/a"),
        "lake": keyed("two", "s3a://bucket/a/deeper"),
        "rest": keyed("three", "name of a warehouse"),
        "plain": {"warehouse": "another name"},
    }
    made = of(catalogs, {"Lake": ["s3://more"]}, ["s3://bucket/a", "s3://left", "/local"])
    files = {
        "s3://bucket/a/x.parquet": "one",
        "s3n://bucket/a/x.parquet": "one",
        "s3a://more/x.parquet": "one",
        "s3://bucket/a/deeper/x.parquet": "two",
        "s3://left/x.parquet": "three",
        "s3://bucket/ab/x.parquet": None,
        "s3://elsewhere/x.parquet": None,
    }
    assert counting_for(made, *files) == list(files.values())


def test_the_only_catalog_on_s3_has_the_storage_roots_too() -> None:
    catalogs = {"lake": keyed("one", "s3://bucket/a"), "local": {"warehouse": "/local"}}
    made = of(catalogs, storage=["s3://bucket/a", "s3://tables"])
    assert counting_for(made, "s3://tables/x", "s3://bucket/a/x") == ["one", "one"]


def test_two_on_s3_share_no_root_that_is_neither_s() -> None:
    catalogs = {"a": keyed("one", "s3://a"), "b": keyed("two", "s3://b")}
    made = of(catalogs, storage=["s3://tables"])
    assert counting_for(made, "s3://tables/x", "s3://a/x", "s3://b/x") == [None, "one", "two"]


def test_two_that_would_count_for_the_same_are_refused() -> None:
    catalogs = {name: {**KEY, "warehouse": name} for name in ("a", "b")}
    with pytest.raises(BadConfig) as caught:
        of(catalogs, storage=["s3://rest"])
    assert caught.value.message == (
        "catalogs: a and b have s3 properties and no location; say in server.catalog_roots where the files of each lie."
    )
    made = of(catalogs, {"a": ["s3://rest/a"]}, ["s3://rest"])
    assert len(made) == 2


def test_one_place_in_two_stores_is_refused_and_in_one_is_not() -> None:
    catalogs = {
        name: {**KEY, "warehouse": f"{scheme}://lake/wh", "s3.endpoint": f"http://{host}"}
        for name, scheme, host in (("a", "s3", "one"), ("b", "s3a", "two"))
    }
    with pytest.raises(BadConfig, match=r"catalogs\.a and catalogs\.b: both have files at s3a"):
        of(catalogs)
    assert len(of(catalogs | {"b": {**catalogs["a"], "s3.region": "other"}})) == 2


@pytest.mark.parametrize("names", [("keyed", "open"), ("open", "keyed")])
def test_a_catalog_without_a_key_hides_no_key_to_a_root_of_both(names: tuple[str, str]) -> None:
    one = {
        "keyed": keyed("one", "s3://lake/wh"),
        "open": {"warehouse": "s3a://lake/wh/", "s3.region": "two"},
    }
    made = of({name: one[name] for name in names}, {"open": ["s3://more"]})
    assert counting_for(made, "s3://lake/wh/x", "s3://more/x") == ["one", "two"]


def test_without_s3_there_is_none() -> None:
    assert of({"lake": {"warehouse": "/local"}}, storage=["/local"]) == ()
    assert not is_object_store("/s3/x")


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"s3.access-key-id": "x"}, "go together"),
        (
            {"s3.endpoint": "store:9000"},
            "catalogs.lake.s3.endpoint: it is not a URL; write https",
        ),
    ],
)
def test_half_of_it_is_refused(properties: dict[str, str], message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        of({"lake": {**properties, "warehouse": "s3://lake"}})


def test_keys_that_came_with_a_table_count_for_its_files_alone() -> None:
    configured = {
        "s3.endpoint": "http://store:9000",
        "s3.access-key-id": "a",
        "s3.secret-access-key": "b",
    }
    place = "s3://lake/wh/net/flows"
    assert vended_secret("lake", configured, configured, place) is None
    vended = {**configured, "s3.session-token": "of an hour"}
    assert vended_secret("lake", configured, vended, "file:///wh") is None
    secret = vended_secret("lake", configured, vended, place)
    assert secret is not None
    assert "SESSION_TOKEN 'of an hour'" in secret
    assert "SCOPE ['s3://lake/wh/net/flows/'" in secret
    other = vended_secret("lake", configured, vended, f"{place}2")
    assert other is not None
    assert secret.split("(")[0] != other.split("(")[0]


def test_what_a_catalog_hands_out_goes_on_without_a_property_of_ours() -> None:
    ours = {
        "uri": "http://catalog",
        "credential": "us:secret",
        "s3.endpoint": "http://store",
        "s3.access-key-id": "ours",
        "s3.secret-access-key": "secret",
    }
    handed = {
        "s3.access-key-id": "theirs",
        "s3.secret-access-key": "key",
        "s3.session-token": "t",
        "adls.sas-token.account": "sas",
    }
    assert vended_properties(ours, ours) == {}
    assert vended_properties(ours, {**ours, "token": "a token of ours"}) == {}
    assert vended_properties(ours, {**ours, **handed, "token": "ours"}) == {
        **handed,
        "s3.endpoint": "http://store",
    }
    # What it hands out may be the key that we have anyway, which is ours.
    assert vended_properties(ours, {**ours, "s3.session-token": "t"}) == {
        "s3.session-token": "t",
        "s3.endpoint": "http://store",
    }
