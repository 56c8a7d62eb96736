import re
import zipfile
from pathlib import Path

import pytest

from connectors.spark.catalogs import catalog_conf, jar_sets
from connectors.spark.session import SparkSettings, _escaped, session_conf
from connectors.spark.shipping import write_archive
from planner.errors import BadConfig


def conf(**properties: str) -> dict[str, str]:
    """The properties of catalog ``lake`` in Spark, without their prefix."""
    entry = catalog_conf("lake", {key.replace("__", "."): v for key, v in properties.items()})
    assert entry.pop("spark.sql.catalog.lake") == "org.apache.iceberg.spark.SparkCatalog"
    return {key.removeprefix("spark.sql.catalog.lake."): value for key, value in entry.items()}


@pytest.mark.parametrize(
    ("uri", "jdbc"),
    [
        ("sqlite:////data/my%20lake.db", "jdbc:sqlite:/data/my lake.db"),
        ("sqlite:///lake.db", "jdbc:sqlite:lake.db"),
        ("sqlite+pysqlite:////data/lake.db", "jdbc:sqlite:/data/lake.db"),
    ],
)
def test_a_sqlite_file_is_shared_with_pyiceberg(uri: str, jdbc: str) -> None:
    value = conf(type="sql", uri=uri, warehouse="file:///data", pool_pre_ping="true")
    assert value == {
        "type": "jdbc",
        "uri": jdbc,
        "jdbc.schema-version": "V1",
        "jdbc.busy_timeout": "10000",
        "warehouse": "file:///data",
        "cache-enabled": "false",
    }


def test_postgres_credentials_leave_the_address() -> None:
    fields = conf(
        type="sql", uri="postgresql+psycopg2://me:p%40ss@db:5433/lake?sslmode=require"
    )
    assert fields["uri"] == "jdbc:postgresql://db:5433/lake?sslmode=require"
    assert (fields["jdbc.user"], fields["jdbc.password"]) == ("me", "p@ss")


def test_rest_properties_pass_through() -> None:
    value = conf(type="rest", uri="https://catalog/", credential="id:secret", scope="ALL")
    assert value == {
        "type": "rest",
        "uri": "https://catalog/",
        "credential": "id:secret",
        "scope": "ALL",
        "cache-enabled": "false",
        "rest.client.connection-timeout-ms": "10000",
        "rest.client.socket-timeout-ms": "60000",
        "token-exchange-enabled": "false",
        "header.X-Iceberg-Access-Delegation": "vended-credentials",
    }


def test_what_rest_properties_say_wins_over_our_defaults_and_certificates_are_for_java_s_store() -> (
    None
):
    chosen = {"token-exchange-enabled": "true", "rest.client.socket-timeout-ms": "5"}
    fields = conf(
        type="rest", uri="https://c", credential="a:b", **chosen, **{"ssl.cabundle": "/ca.pem"}
    )
    assert {key: fields[key] for key in chosen} == chosen
    assert "ssl.cabundle" not in fields
    assert "token-exchange-enabled" not in conf(type="rest", uri="https://c", token="t")


def test_object_store_settings_get_their_java_names() -> None:
    fields = conf(
        type="glue",
        warehouse="s3://bucket/lake",
        s3__endpoint="http://minio:9000",
        s3__region="eu-north-1",
        **{"s3__force-virtual-addressing": "False", "py-io-impl": "pyiceberg.io.x"},
    )
    assert fields["client.region"] == "eu-north-1"
    assert fields["s3.endpoint"] == "http://minio:9000"
    assert fields["s3.path-style-access"] == "true"
    assert fields["io-impl"] == "org.apache.iceberg.aws.s3.S3FileIO"
    assert "py-io-impl" not in fields


@pytest.mark.parametrize(
    ("uri", "kind"),
    [("thrift://meta:9083", "hive"), ("http://c", "rest"), ("sqlite:////l.db", "jdbc")],
)
def test_the_type_is_known_by_the_address_as_in_pyiceberg(uri: str, kind: str) -> None:
    assert conf(uri=uri)["type"] == kind


@pytest.mark.parametrize(
    "properties",
    [
        {"type": "sql", "uri": "sqlite:///:memory:"},
        {"type": "sql", "uri": "sqlite://"},
        {"type": "sql", "uri": "mysql://db/lake"},
        {"type": "in-memory"},
        {},
    ],
)
def test_a_catalog_java_cannot_share_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(BadConfig, match=r"^catalog lake: "):
        catalog_conf("lake", properties)


def test_what_the_user_sets_wins_over_what_is_decided() -> None:
    settings = SparkSettings(
        master="spark://host:7077", conf={"spark.sql.session.timeZone": "Asia/Tokyo"}
    )
    fields = session_conf(settings, {}, [Path("/jars/a.jar"), Path("/jars/b.jar")])
    assert fields["spark.sql.session.timeZone"] == "Asia/Tokyo"
    assert fields["spark.jars"] == "/jars/a.jar,/jars/b.jar"
    # A cluster's executors must reach the driver.
    assert "spark.driver.host" not in fields
    assert session_conf(SparkSettings(), {}, [])["spark.driver.host"] == "127.0.0.1"


def test_credentials_are_under_keys_that_spark_hides() -> None:
    catalogs = {
        "lake": {
            "type": "rest",
            "uri": "https://catalog/",
            "credential": "hidden-1",
            "token": "hidden-2",
            "s3.secret-access-key": "hidden-3",
            "s3.access-key-id": "hidden-4",
            "adls.account-key": "hidden-5",
            "adls.sas-token": "hidden-6",
            "header.X-Api": "hidden-7",
        },
        "warm": {"type": "sql", "uri": "postgresql://hidden-8:hidden-9@db/lake"},
    }
    items = session_conf(SparkSettings(), catalogs, ())
    for key in ("spark.redaction.regex", "spark.sql.redaction.options.regex"):
        access_filter = {name for name in items if not re.search(items[key], name)}
        assert not [name for name in access_filter if "hidden" in items[name]]
        assert {"spark.master", "spark.app.name", "spark.sql.catalog.lake.uri"} <= access_filter


@pytest.mark.parametrize("text", ["plain", "a = b: c # !", " lead\\ \n\r\t", "grüße 🌊", ""])
def test_properties_are_written_as_java_reads_them(text: str) -> None:
    written = _escaped(text)
    assert written.isascii()
    assert not set(written) & set(" =:#!\n\t")
    units = b"".join(bytes.fromhex(unit) for unit in written.split("\\u")[1:])
    assert units.decode("utf-16-be") == text


def test_a_packed_environment_joins_other_archives() -> None:
    settings = SparkSettings(
        master="spark://m:7077",
        environment=Path("/env.tar.gz"),
        conf={"spark.archives": "/data.zip"},
    )
    fields = session_conf(settings, {}, ())
    assert fields["spark.archives"] == "/data.zip,/env.tar.gz#environment"


def test_the_executors_archive_holds_our_sources_and_no_others(tmp_path: Path) -> None:
    first, second = tmp_path / "a.zip", tmp_path / "b.zip"
    write_archive(first)
    write_archive(second)
    assert first.read_bytes() == second.read_bytes()
    names = zipfile.ZipFile(first).namelist()
    assert {
        "planner/seam/cut.py",
        "connectors/decoding/json/decoder.py",
        "connectors/kafka/log.py",
        "thermocline_client/errors.py",
    } <= set(names)
    assert {name.partition("/")[0] for name in names} == {
        "planner",
        "connectors",
        "thermocline_client",
    }
    assert all(name.endswith(".py") for name in names)


def test_catalogs_say_which_jars_spark_needs() -> None:
    local = {"type": "sql", "uri": "sqlite:////tmp/c.db", "warehouse": "file:///tmp/w"}
    assert jar_sets({"lake": local}) == ("iceberg",)
    shared = local | {"uri": "postgresql+psycopg2://host/lake"}
    stored = local | {"warehouse": "s3://bucket/lake"}
    assert jar_sets({"a": shared, "b": stored}) == ("iceberg", "s3", "postgresql")
    own = stored | {"io-impl": "example.FileIO"}
    assert jar_sets({"lake": own}) == ("iceberg",)


@pytest.mark.parametrize(
    ("properties", "is_by_path"),
    [
        ({}, False),
        ({"s3.endpoint": "http://127.0.0.1:9000"}, True),
        ({"s3.endpoint": "http://store", "s3.force-virtual-addressing": "true"}, False),
        ({"s3.force-virtual-addressing": "false"}, True),
    ],
)
def test_spark_addresses_a_store_as_pyiceberg_does(
    properties: dict[str, str], is_by_path: bool
) -> None:
    base = {"type": "sql", "uri": "sqlite:////tmp/c.db", "warehouse": "s3://bucket/lake"}
    conf = catalog_conf("lake", base | properties)
    assert ("spark.sql.catalog.lake.s3.path-style-access" in conf) == is_by_path


def test_a_catalog_whose_settings_would_be_another_s_is_refused() -> None:
    properties = {"type": "rest", "uri": "http://x"}
    with pytest.raises(BadConfig) as caught:
        session_conf(SparkSettings(), {"lake": properties, "lake.uri": properties}, ())
    assert caught.value.message == (
        "catalogs.lake.uri: Spark takes its settings for properties of catalog lake; give one of them a name without a dot."
    )
    session_conf(SparkSettings(), {"lake": properties, "lake_2": properties}, ())
