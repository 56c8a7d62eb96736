"""doctor over catalogs and stores as teams have them: keys that are wrong or only read, another host's certificate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from connectors.iceberg.create import NewTable, create_table
from connectors.store.object_store import CA_BUNDLE
from planner.errors import CatalogUnavailable
from planner.names import TableName
from planner.schema import Column
from planner.seam.binding import Binding
from tests.fixtures.catalog_on_s3 import CatalogOnS3
from tests.fixtures.certificates import Authority
from tests.fixtures.object_store import ObjectStore
from tests.fixtures.oidc import Provider
from tests.fixtures.rest_catalog import RestCatalog
from tests.fixtures.server import serving, settings_of
from tests.fixtures.spark import first_watermark
from tests.harness.catalog_gateway import CatalogGateway
from tests.harness.doctor_site import UNLOCKED, DoctorSite
from tests.harness.store_gateway import Fault, StoreGateway, StoreRequest
from thermocline.doctor.findings import Finding
from thermocline.doctor.stores import stores
from thermocline.doctor.systems import catalogs

READING = ("GET", "HEAD")
_BINDING = Binding("flows")
_COLUMNS = [Column(0, "id", pa.int64())]


@pytest.fixture
def gateway(object_store: ObjectStore) -> Iterator[StoreGateway]:
    with StoreGateway(object_store.port) as started:
        yield started


@pytest.fixture
def certificate(authority: Authority, tmp_path: Path) -> Callable[[str], Path]:
    """A file with key and certificate of a host; the authority's own is ``ca.pem`` beside it."""
    (tmp_path / "ca.pem").write_bytes(authority.certificate)

    def of(host: str) -> Path:
        pem, file = authority.server(host), tmp_path / f"{host}.pem"
        file.write_bytes(pem.key + pem.certificate)
        return file

    return of


def of_store(properties: dict[str, str], *roots: str) -> Finding:
    """The one finding about a store that cannot be used."""
    [finding] = stores(settings_of({"lake": properties}, {}, storage_roots=roots), {})
    assert finding.check == "store of lake"
    return finding


def of_catalog(properties: dict[str, str]) -> Finding:
    [finding] = catalogs(settings_of({"lake": properties}, {}), {})
    assert finding.state == "fail"
    return finding


def test_catalog_store_and_their_clocks_are_tried_and_no_probe_is_left(
    catalog_on_s3: CatalogOnS3, object_store: ObjectStore, tmp_path: Path
) -> None:
    site = DoctorSite(tmp_path / "thermocline.toml")
    roots = f'storage_roots = ["{catalog_on_s3.root}"]\n'
    site.write(catalog_on_s3.properties, {}, f"{UNLOCKED}{roots}")
    # Tables of other tests may be there, whose topics are not.
    findings = site.findings(failed=None)
    checks = ["catalog lake", "store of lake", "clock of the store of lake"]
    checks += ["clock of catalog lake"] * (catalog_on_s3.kind == "rest")
    assert {findings[check][0] for check in checks} == {"ok"}
    bucket = object_store.folder / catalog_on_s3.root.split("/")[2]
    assert not [path for path in bucket.rglob("*") if "probe" in path.name]


def test_rights_that_only_read_are_told_and_are_enough_for_a_server(
    rest_catalog: RestCatalog, gateway: StoreGateway
) -> None:
    owner, namespace = rest_catalog.catalog(), rest_catalog.namespace()
    with closing(load_catalog("lake", **owner)) as catalog:
        catalog.create_namespace(namespace)
        rows = pa.table({"id": pa.array(range(1_000), pa.int64())})
        catalog.create_table((namespace, "flows"), rows.schema).append(rows)
    gateway.choose_fault = lambda request: None if request.method in READING else Fault.DENIED
    with CatalogGateway(rest_catalog.port) as readable:
        readable.writable.clear()
        properties = owner | {"s3.endpoint": gateway.endpoint, "uri": readable.uri}
        finding = of_store(properties, rest_catalog.root)
        assert finding.state == "warn"
        assert finding.what == "files may be read there, and not written"
        gateway.requests.clear()
        settings = settings_of({"lake": properties}, {}, storage_roots=(rest_catalog.root,))
        name = TableName("lake", (namespace,), "flows")
        with serving(settings) as server:
            answer = server.ask(f"SELECT sum(id) AS s FROM {name}")
            assert answer.to_pylist() == [{"s": 499_500}]
            server.refresh(name)
        assert readable.requests[403] == 0
        assert {request.method for request in gateway.requests} <= set(READING)
        new = NewTable(TableName("lake", (namespace,), "new"), _COLUMNS, _BINDING)
        with pytest.raises(CatalogUnavailable, match="refuses our credentials; check token"):
            create_table(settings.catalogs, new, first_watermark(0, binding=_BINDING))


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"s3.secret-access-key": "wrong"}, "s3.access-key-id, s3.secret-access-key"),
        ({"s3.endpoint": "http://127.0.0.1:1"}, "s3.endpoint"),
        ({"warehouse": "s3://no-such-bucket/lake"}, "warehouse"),
    ],
    ids=["secret", "endpoint", "bucket"],
)
def test_what_is_wrong_with_a_store_is_named_with_the_key_to_change(
    object_store: ObjectStore, tmp_path: Path, change: dict[str, str], key: str
) -> None:
    finding = of_store(object_store.catalog(tmp_path) | change)
    assert finding.state == "fail"
    assert key in finding.fix, finding


@pytest.mark.parametrize(
    ("fault", "key"),
    [
        (Fault.DENIED, "s3.access-key-id, s3.secret-access-key"),
        (Fault.EXPIRED, "s3.session-token"),
        (Fault.SKEWED, "set it"),
        (Fault.ELSEWHERE, "s3.region"),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, Fault) else "",
)
def test_what_a_store_refuses_is_named_with_the_key_to_change(
    object_store: ObjectStore, gateway: StoreGateway, tmp_path: Path, fault: Fault, key: str
) -> None:
    gateway.choose_fault = lambda _: fault
    finding = of_store(object_store.catalog(tmp_path) | {"s3.endpoint": gateway.endpoint})
    assert finding.state == "fail"
    assert key in finding.fix, finding


def test_a_store_that_lets_nobody_remove_is_no_store_for_a_tierer(
    object_store: ObjectStore, gateway: StoreGateway, tmp_path: Path
) -> None:
    def choose(request: StoreRequest) -> Fault | None:
        return Fault.DENIED if request.method == "DELETE" else None

    gateway.choose_fault = choose
    finding = of_store(object_store.catalog(tmp_path) | {"s3.endpoint": gateway.endpoint})
    assert finding.state == "fail"
    assert finding.what.startswith("a file cannot be removed there: ")


def test_a_place_that_nobody_named_is_a_warning(rest_catalog: RestCatalog) -> None:
    finding = of_store(rest_catalog.catalog())
    assert (finding.state, finding.fix) == (
        "warn",
        "add their place to server.storage_roots",
    )


def test_a_certificate_of_another_host_is_named_by_catalog_and_store(
    rest_catalog: RestCatalog,
    object_store: ObjectStore,
    certificate: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    trust, other = str(tmp_path / "ca.pem"), certificate("elsewhere.example")
    with CatalogGateway(rest_catalog.port, certificate=other) as gateway:
        properties = rest_catalog.catalog() | {"uri": gateway.uri, "ssl.cabundle": trust}
        what = of_catalog(properties).what
        assert "set ssl.cabundle to the certificate of the authority" in what
        assert "reach it by the name in its certificate" in what
    with StoreGateway(object_store.port, other) as store:
        properties = object_store.catalog(tmp_path)
        finding = of_store(properties | {"s3.endpoint": store.endpoint, CA_BUNDLE: trust})
        assert "the certificate of s3.endpoint is of another host" in finding.what
        assert finding.fix == f"set {CA_BUNDLE}"


def test_a_login_that_is_refused_and_a_clock_behind_tls_are_told(
    rest_catalog: RestCatalog,
    provider: Provider,
    certificate: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    provider.secrets["doctor"] = "hush"
    with CatalogGateway(rest_catalog.port, provider, certificate("localhost")) as gateway:
        properties = rest_catalog.catalog() | {
            "uri": gateway.uri,
            "credential": "doctor:hush",
            "oauth2-server-uri": f"{provider.issuer}/token",
            "ssl.cabundle": str(tmp_path / "ca.pem"),
        }
        checks = {
            finding.check: finding.state
            for finding in catalogs(settings_of({"lake": properties}, {}), {})
        }
        assert checks == {"catalog lake": "ok", "clock of catalog lake": "ok"}
        finding = of_catalog(properties | {"credential": "doctor:wrong-word"})
        assert "check token, or credential, scope and oauth2-server-uri" in finding.what
        assert "wrong-word" not in str(finding)
