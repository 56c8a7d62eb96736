"""REST catalogs that want a login, speak TLS by an authority of one's own, fail after a commit, or fall silent."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from connectors.iceberg.store import IcebergStore
from connectors.store.catalog_roots import REST_SOCKET_TIMEOUT
from connectors.store.object_store import CA_BUNDLE
from planner.errors import CatalogUnavailable
from planner.names import TableName
from planner.schema import Column
from tests.fixtures.certificates import Authority
from tests.fixtures.commands import cli_site_at
from tests.fixtures.kafka import Kafka
from tests.fixtures.object_store import ObjectStore
from tests.fixtures.oidc import Provider
from tests.fixtures.rest_catalog import RestCatalog
from tests.fixtures.server import SqlServer, settings_of
from tests.harness.catalog_gateway import CatalogGateway, Fault
from tests.harness.store_gateway import StoreGateway
from tests.harness.whole_loop import check_whole_loop
from thermocline.serve.assembly import running_server

pytestmark = pytest.mark.timeout(300)
CLIENT, SECRET = "tierer", "hush-of-the-tests"
#: Less than a tierer takes to start, to read and to publish.
TOKEN_S = 4


@pytest.fixture
def guarded(
    rest_catalog: RestCatalog, provider: Provider, authority: Authority, tmp_path: Path
) -> Iterator[tuple[CatalogGateway, dict[str, str]]]:
    """A catalog over TLS that wants tokens, and the properties of one who may."""
    provider.secrets[CLIENT] = SECRET
    provider.expires_in_s = TOKEN_S
    server = authority.server()
    (tmp_path / "server.pem").write_bytes(server.key + server.certificate)
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    with CatalogGateway(rest_catalog.port, provider, tmp_path / "server.pem") as gateway:
        yield (
            gateway,
            {
                **rest_catalog.catalog(),
                "uri": gateway.uri,
                "credential": f"{CLIENT}:{SECRET}",
                "oauth2-server-uri": f"{provider.issuer}/token",
                "scope": "catalog",
                "ssl.cabundle": str(tmp_path / "ca.pem"),
            },
        )


def tables(properties: dict[str, str]) -> tuple[TableName, ...]:
    store = IcebergStore({"lake": properties})
    try:
        return store.tables()
    finally:
        store.close()


@pytest.mark.kafka
@pytest.mark.spark
def test_a_topic_is_tiered_and_read_over_tls_with_tokens_that_expire_meanwhile(
    guarded: tuple[CatalogGateway, dict[str, str]],
    rest_catalog: RestCatalog,
    object_store: ObjectStore,
    provider: Provider,
    kafka: Kafka,
    tmp_path: Path,
) -> None:
    """Catalog and store have certificates by one authority of one's own."""
    _, properties = guarded
    name = TableName("lake", (rest_catalog.namespace(),), "flows")
    with StoreGateway(object_store.port, tmp_path / "server.pem") as store:
        of_store = {"s3.endpoint": store.endpoint, CA_BUNDLE: str(tmp_path / "ca.pem")}
        check_whole_loop(
            properties | of_store,
            kafka,
            tmp_path,
            name=name,
            storage_roots=(rest_catalog.root,),
        )
        assert {each.method for each in store.requests} >= {"GET", "PUT"}
    assert provider.grants.keys() == {"client_credentials"}
    # Server and tierer began with one each.
    assert provider.grants["client_credentials"] > 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(
            {"credential": f"{CLIENT}:wrong-word"},
            "check token, or credential, scope and oauth2",
            id="secret",
        ),
        pytest.param(
            {"credential": "nobody:wrong-word"},
            "check token, or credential, scope and oauth2",
            id="name",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            {"credential": "", "token": "wrong-word"},
            "check token, or credential, scope and",
            id="token",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            {"ssl.cabundle": ""},
            "to the certificate of the authority that signed its",
            id="authority",
        ),
    ],
)
@pytest.mark.kafka
@pytest.mark.spark
def test_a_login_that_is_refused_is_named_by_server_and_tierer(
    guarded: tuple[CatalogGateway, dict[str, str]],
    rest_catalog: RestCatalog,
    provider: Provider,
    kafka: Kafka,
    tmp_path: Path,
    change: dict[str, str],
    words: str,
) -> None:
    _, properties = guarded
    with CatalogGateway(rest_catalog.port, provider) as plain:
        if "ssl.cabundle" not in change:
            # Without an authority of its own a command has the JVM of the one before.
            change = {"uri": plain.uri, "ssl.cabundle": "", **change}
        wrong = {key: value for key, value in {**properties, **change}.items() if value}
        with pytest.raises(CatalogUnavailable) as caught:
            tables(wrong)
        assert words in caught.value.message
        assert "wrong-word" not in caught.value.message
        site = cli_site_at(tmp_path, wrong, "s3://nowhere", kafka.settings)
        code, _, err = site.run("tier", "--once", "lake.net.flows")
    assert code != 0
    assert words in " ".join(err.split())
    assert "wrong-word" not in err


def test_a_token_that_expired_is_replaced_while_the_login_is_good(
    guarded: tuple[CatalogGateway, dict[str, str]], provider: Provider
) -> None:
    """With another key of that name, all tokens until then are over, whatever the machine takes."""
    gateway, properties = guarded
    provider.expires_in_s = 60
    store = IcebergStore({"lake": properties})
    try:
        store.tables()
        provider.add("first")
        store.tables()
        assert gateway.requests[401] == 1
        provider.secrets.clear()
        provider.add("first")
        with pytest.raises(CatalogUnavailable, match="check token, or credential"):
            store.tables()
        provider.secrets[CLIENT] = SECRET
        store.tables()
    finally:
        store.close()


#: What happens to which of a publish's commits: that of its branch, of its rows, of its watermark.
IN_SHORT = {(Fault.DONE_AND_FAILED, 2)}


@pytest.mark.parametrize(
    ("fault", "commit"),
    [
        pytest.param(
            *case,
            marks=() if case in IN_SHORT else pytest.mark.soak,
            id=f"{case[0].name}-{case[1]}",
        )
        for case in itertools.product(Fault, range(3))
    ],
)
@pytest.mark.kafka
@pytest.mark.spark
def test_a_commit_whose_answer_is_lost_is_found_out_and_never_doubled(
    rest_catalog: RestCatalog, kafka: Kafka, tmp_path: Path, fault: Fault, commit: int
) -> None:
    name = TableName("lake", (rest_catalog.namespace(),), "flows")
    topic = kafka.topic()
    with CatalogGateway(rest_catalog.port) as gateway:
        catalog = {**rest_catalog.catalog(), "uri": gateway.uri}
        settings = settings_of(
            {"lake": catalog}, kafka.settings, storage_roots=(rest_catalog.root,)
        )
        # A catalog that has just started may take longer for its first answers: only who waits for none has a limit.
        if fault is Fault.DONE_AND_SILENT:
            catalog[REST_SOCKET_TIMEOUT] = "3000"
        site = cli_site_at(tmp_path, catalog, rest_catalog.root, kafka.settings)
        with running_server(settings) as running:
            sql = SqlServer(running, settings)
            table = sql.bind(topic, [Column(0, "id", pa.int64())], name=name)
            kafka.produce(topic, [b'{"id": %d}' % number for number in range(50)])
            gateway.faults = [None] * commit + [fault]
            code, _, err = site.run("tier", "--once", str(table))
            assert not gateway.faults, "it never came to that commit"
            if code:
                assert "the catalog did not take the commit or did not answer; try again" in err
                code, _, err = site.run("tier", "--once", str(table))
            assert code == 0, err
            sql.refresh(table)
            cold = f'{table.namespace[0]}."{table.name}$cold"'
            answer = sql.ask(
                f"SELECT count(*) AS n, count(DISTINCT kafka_offset) AS d FROM {cold}"
            )
            assert answer.to_pylist() == [{"n": 50, "d": 50}]
        code, out, err = site.run("verify", str(table))
        assert code == 0, out + err


def test_a_catalog_that_falls_silent_is_waited_for_no_longer_than_its_limit(
    rest_catalog: RestCatalog,
) -> None:
    with CatalogGateway(rest_catalog.port) as gateway:
        store = IcebergStore(
            {
                "lake": {
                    **rest_catalog.catalog(),
                    "uri": gateway.uri,
                    REST_SOCKET_TIMEOUT: "2000",
                }
            }
        )
        try:
            store.tables()
            gateway.silent.set()
            began = time.monotonic()
            with pytest.raises(CatalogUnavailable, match="does not answer; try again"):
                store.tables()
            assert time.monotonic() - began < 10
            gateway.silent.clear()
            store.tables()
        finally:
            store.close()
