"""A store that speaks TLS by an authority of one's own: pyiceberg, the engine and the tierer's Java all trust it, or say so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from connectors.store.object_store import CA_BUNDLE
from planner.errors import BadConfig
from tests.fixtures.certificates import Authority
from tests.fixtures.kafka import Kafka
from tests.fixtures.object_store import ObjectStore
from tests.fixtures.server import SqlServer, serving, settings_of
from tests.harness.store_gateway import StoreGateway
from tests.harness.whole_loop import check_whole_loop
from thermocline.catalog_access import engine_ca_file, engine_secrets


@pytest.fixture
def gateway(
    object_store: ObjectStore, authority: Authority, tmp_path: Path
) -> Iterator[StoreGateway]:
    server = authority.server()
    (tmp_path / "server.pem").write_bytes(server.key + server.certificate)
    with StoreGateway(object_store.port, tmp_path / "server.pem") as started:
        yield started


@pytest.fixture
def properties(
    object_store: ObjectStore, gateway: StoreGateway, authority: Authority, tmp_path: Path
) -> dict[str, str]:
    bundle = tmp_path / "ca.pem"
    bundle.write_bytes(authority.certificate)
    return {
        **object_store.catalog(tmp_path),
        "s3.endpoint": gateway.endpoint,
        CA_BUNDLE: str(bundle),
    }


def fill(object_store: ObjectStore, properties: dict[str, str]) -> None:
    """As another writer, who reaches the store without TLS."""
    plain = {**properties, "s3.endpoint": object_store.endpoint}
    with closing(load_catalog("lake", **plain)) as catalog:
        catalog.create_namespace("default")
        data = pa.table({"id": pa.array(range(1_000), pa.int64())})
        catalog.create_table("default.flows", data.schema).append(data)


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.soak  # test_rest_faults.py has catalog and store over TLS
def test_a_topic_is_tiered_and_read_over_tls_by_an_authority_of_ones_own(
    properties: dict[str, str], gateway: StoreGateway, kafka: Kafka, tmp_path: Path
) -> None:
    check_whole_loop(properties, kafka, tmp_path)
    assert {each.method for each in gateway.requests} >= {"GET", "PUT"}


def test_an_authority_that_nobody_named_is_named_by_both_readers(
    object_store: ObjectStore, properties: dict[str, str]
) -> None:
    fill(object_store, properties)
    words = "is of another host, or of an authority that is not trusted here; set s3.cabundle"
    strange = {key: value for key, value in properties.items() if key != CA_BUNDLE}
    with serving(settings_of({"lake": strange}, {})) as server:
        assert words in refusal(server)
    settings = settings_of({"lake": properties}, {})
    with (
        pytest.MonkeyPatch.context() as patch,
    ):
        # The engine alone does not know it.
        patch.setattr("thermocline.serve.assembly.engine_ca_file", lambda *_: None)
        with serving(settings) as server:
            assert words in refusal(server)
    with serving(settings) as server:
        assert server.ask("SELECT sum(id) AS s FROM flows").to_pylist() == [{"s": 499_500}]


def test_a_certificate_of_another_host_is_named_by_both_readers(
    object_store: ObjectStore,
    properties: dict[str, str],
    authority: Authority,
    tmp_path: Path,
) -> None:
    fill(object_store, properties)
    other = authority.server("elsewhere.example")
    (tmp_path / "other.pem").write_bytes(other.key + other.certificate)
    words = "the certificate of s3.endpoint is of another host"
    with StoreGateway(object_store.port, tmp_path / "other.pem") as elsewhere:
        settings = settings_of({"lake": properties | {"s3.endpoint": elsewhere.endpoint}}, {})
        with serving(settings) as server:
            assert words in refusal(server)
        with pytest.MonkeyPatch.context() as patch:
            # The engine alone is sent there.
            patch.setattr(
                "thermocline.serve.assembly.engine_secrets", lambda _: engine_secrets(settings)
            )
            with serving(settings_of({"lake": properties}, {})) as server:
                assert words in refusal(server)


def refusal(server: SqlServer) -> str:
    with pytest.raises(adbc.Error) as caught:
        server.ask("SELECT sum(id) AS s FROM flows")
    return str(caught.value)


def test_a_bundle_without_certificates_is_named(
    properties: dict[str, str], tmp_path: Path
) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing\n")
    settings = settings_of({"lake": {**properties, CA_BUNDLE: str(empty)}}, {})
    with pytest.raises(BadConfig, match=r"catalogs\.lake\.s3\.cabundle: .* as PEM"):
        engine_ca_file(settings, tmp_path)
