"""What a table of one catalog says changes no answer over another catalog's, nor opens its rows: SQLite catalogs on this disk,
and a REST catalog that hands out keys beside one on S3.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import SecretStr
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.manifest import write_manifest_list
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from connectors.iceberg.store import IcebergStore
from planner.names import TableName
from planner.ports import ArrowRelation
from planner.seam.cut import cold_cut
from tests.fixtures.live_rest import Answer, Rest
from tests.fixtures.object_store import ObjectStore
from tests.fixtures.rest_catalog import RestCatalog
from tests.fixtures.server import SqlServer, serving, settings_of, sqlite_catalog
from tests.harness.catalog_gateway import CatalogGateway
from tests.harness.store_gateway import StoreGateway
from thermocline.config.settings import Granted, IcebergRest, Settings

SECRET = TableName("vault", ("net",), "secret")
OURS = TableName("lake", ("net",), "ours")
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@dataclass
class Two:
    """Catalogs ``lake``, whose tables say what they like, and ``vault``, whose table ``secret`` has three rows."""

    folder: Path
    lake: Catalog
    secret: Table

    def lies_there(self) -> None:
        self.lake.create_table(
            "net.ours",
            ROWS.schema,
            location=f"{self.secret.location()}/x",
            properties={"write.metadata.path": self._own()},
        )

    def is_described_there(self) -> None:
        self.lake.register_table("net.ours", self.secret.metadata_location)

    def lists_a_data_file_there(self) -> None:
        table = self.lake.create_table("net.ours", ROWS.schema)
        pq.write_table(ROWS, self.folder / "vault" / "warehouse" / "plain.parquet")
        table.add_files([(self.folder / "vault" / "warehouse" / "plain.parquet").as_uri()])

    def lists_manifests_there(self) -> None:
        own = f"{self._own()}/list.avro"
        snapshot = self.secret.current_snapshot()
        assert snapshot is not None
        io = PyArrowFileIO()
        with write_manifest_list(
            2, io.new_output(own), snapshot.snapshot_id, None, 1, "deflate"
        ) as written:
            written.add_manifests(snapshot.manifests(io))
        self._describe(own)

    def names_a_manifest_list_there(self) -> None:
        snapshot = self.secret.current_snapshot()
        assert snapshot is not None
        self._describe(snapshot.manifest_list)

    def _own(self) -> str:
        return (self.folder / "lake" / "warehouse" / "net" / "ours").as_uri()

    def _describe(self, manifest_list: str) -> None:
        """Register the secret table's metadata with a location and a manifest list of the lake's choice."""
        document = json.loads(self.secret.metadata.model_dump_json())
        document["location"] = self._own()
        document["metadata-log"] = []
        document["snapshots"][-1]["manifest-list"] = manifest_list
        file = self.folder / "lake" / "warehouse" / "net" / "ours" / "1.metadata.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(document))
        self.lake.register_table("net.ours", file.as_uri())


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    with contextlib.ExitStack() as stack:
        made = {
            name: stack.enter_context(
                contextlib.closing(load_catalog(name, **sqlite_catalog(tmp_path / name)))
            )
            for name in ("lake", "vault")
        }
        for catalog in made.values():
            catalog.create_namespace("net")
        secret = made["vault"].create_table("net.secret", ROWS.schema)
        secret.append(ROWS)
        yield Two(tmp_path, made["lake"], secret.refresh())


def settings(folder: Path, **roots: str) -> Settings:
    catalogs = {name: sqlite_catalog(folder / name) for name in ("lake", "vault")}
    more = {name: (root,) for name, root in roots.items()}
    made = settings_of(catalogs, {}, catalog_roots=more)
    return made.model_copy(update={"iceberg_rest": IcebergRest(port=0)})


def total(server: SqlServer, table: TableName) -> int:
    return int(server.ask(f"SELECT sum(id) AS s FROM {table}")["s"][0].as_py())


PLACES = "lake.net.ours: its {} lies in a place of another catalog; move the table, or add the place to "
FILES = "lake.net.ours: a file of the table lies outside its location and its catalog's roots; "


@pytest.mark.parametrize(
    ("act", "sentence", "is_listed_by_clients"),
    [
        (Two.lies_there, PLACES.format("location"), False),
        (Two.is_described_there, PLACES.format("metadata file"), False),
        (Two.names_a_manifest_list_there, FILES, False),
        # An engine lists the files of a plain table itself, and reads them with rights of its own.
        (Two.lists_manifests_there, FILES, True),
        (Two.lists_a_data_file_there, FILES, True),
    ],
)
def test_a_table_reads_nothing_of_another_catalog(
    two: Two, act: Callable[[Two], None], sentence: str, is_listed_by_clients: bool
) -> None:
    act(two)
    with serving(settings(two.folder)) as server:
        rest = Rest(server)
        for _ in range(2):
            with pytest.raises(adbc.Error) as caught:
                total(server, OURS)
            assert sentence in str(caught.value)
            assert total(server, SECRET) == 6
        if not is_listed_by_clients:
            answer = rest.ask(rest.table(OURS))
            assert answer.error == (422, "ForeignFile")
            assert answer.body["error"]["message"].startswith(sentence)
        assert rest.rows(SECRET, "vault").num_rows == 3


def test_a_catalog_over_a_link_reads_nothing_of_one_inside_its_folder(tmp_path: Path) -> None:
    (tmp_path / "real" / "vault").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    catalogs = {
        "lake": {
            "type": "sql",
            "uri": f"sqlite:///{tmp_path}/lake.db",
            "warehouse": (tmp_path / "link").as_uri(),
        },
        "vault": sqlite_catalog(tmp_path / "real" / "vault"),
    }
    with (
        contextlib.closing(load_catalog("lake", **catalogs["lake"])) as lake,
        contextlib.closing(load_catalog("vault", **catalogs["vault"])) as vault,
    ):
        for catalog in (lake, vault):
            catalog.create_namespace("net")
        vault.create_table("net.secret", ROWS.schema).append(ROWS)
        lake.create_table("net.own", ROWS.schema).append(ROWS)
        file = tmp_path / "link" / "vault" / "warehouse" / "plain.parquet"
        pq.write_table(ROWS, file)
        lake.create_table("net.ours", ROWS.schema).add_files([file.as_uri()])
    with serving(settings_of(catalogs, {})) as server:
        assert total(server, SECRET) == total(server, TableName("lake", ("net",), "own")) == 6
        with pytest.raises(adbc.Error) as caught:
            total(server, OURS)
        assert FILES in str(caught.value)


def test_what_the_settings_say_is_of_both_is_read_by_both(two: Two) -> None:
    two.is_described_there()
    with serving(settings(two.folder, lake=str(two.folder / "vault" / "warehouse"))) as server:
        assert total(server, OURS) == total(server, SECRET) == 6


def test_live_files_of_a_catalog_are_no_table_s(two: Two) -> None:
    place = two.folder / "vault" / "warehouse-live" / "thermocline-live-0" / "x"
    two.lake.create_table("net.ours", ROWS.schema, location=place.as_uri())
    with (
        serving(settings(two.folder)) as server,
        pytest.raises(adbc.Error, match="lies in a place of another catalog"),
    ):
        total(server, OURS)


class FolderIO(PyArrowFileIO):
    """Each catalog's store gives ``shared://`` other files."""

    def new_input(self, location: str) -> PyArrowFile:
        return self._named(super().new_input(self._here(location)), location)

    def new_output(self, location: str) -> PyArrowFile:
        return self._named(super().new_output(self._here(location)), location)

    def _here(self, location: str) -> str:
        return location.replace("shared://", f"file://{self.properties['folder']}/")

    @staticmethod
    def _named(file: PyArrowFile, location: str) -> PyArrowFile:
        # What manifests say of it.
        file._location = location
        return file


def in_folder(folder: Path, name: str) -> dict[str, str]:
    return {
        "type": "sql",
        "uri": f"sqlite:///{folder}/{name}.db",
        "warehouse": "shared://wh",
        "py-io-impl": f"{__name__}.FolderIO",
        "folder": str(folder / name),
    }


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_two_stores_that_give_one_path_other_files_are_not_mixed(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    catalogs = {name: in_folder(tmp_path, name) for name in ("a", "b")}
    with (
        contextlib.closing(load_catalog("a", **catalogs["a"])) as a,
        contextlib.closing(load_catalog("b", **catalogs["b"])) as b,
    ):
        a.create_namespace("net")
        table = a.create_table("net.t", ROWS.schema)
        table.append(ROWS)
        table.append(ROWS)
        first, second = table.refresh().metadata.snapshots
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        # In the other store the newest list, of the same name, has one file.
        lists = [
            tmp_path / "b" / snapshot.manifest_list.removeprefix("shared://")
            for snapshot in (first, second)
        ]
        shutil.copy(*lists)
        b.create_namespace("net")
        b.register_table("net.t", table.metadata_location)
    with contextlib.closing(IcebergStore(catalogs)) as store:
        pins = {name: store.pin(TableName(name, ("net",), "t")) for name in order}
        for _ in range(2):
            files = {name: store.count_files(cold_cut(pin).cold) for name, pin in pins.items()}
            assert files == {"a": 2, "b": 1}
            for name, pin in pins.items():
                relation = store.scan(cold_cut(pin).cold)
                assert not isinstance(relation, ArrowRelation)
                assert relation.sql.count(".parquet") == files[name]


def test_closed_catalogs_are_answered_as_unknown_ones(two: Two) -> None:
    of_lake = {
        "of_lake": Granted(users=("anna",), tables=("lake.*",)),
        "of_all": Granted(users=("boss",), tables=("*",)),
    }
    users = {name: SecretStr("word") for name in ("anna", "boss", "eve")}
    made = settings(two.folder)
    guarded = made.model_copy(
        update={
            "permissions": of_lake,
            "server": made.server.model_copy(update={"users": users}),
        }
    )
    with serving(guarded) as server:
        rest = Rest(server)

        def ask(user: str, path: str, method: str = "GET") -> Answer:
            form = {
                "grant_type": "client_credentials",
                "client_id": user,
                "client_secret": "word",
            }
            token = rest.ask("/v1/oauth/tokens", "POST", urlencode(form).encode())
            bearer = f"Bearer {token.body['access_token']}"
            return rest.ask(path, method, authorization=bearer)

        for user in ("anna", "eve"):
            for method, path in (
                ("GET", "/v1/config?warehouse={}"),
                ("GET", "/v1/config?warehouse={}%40cold"),
                ("GET", "/v1/{}/namespaces"),
                ("GET", "/v1/{}/namespaces/net/tables/secret"),
                ("POST", "/v1/{}/namespaces"),
            ):
                closed, unknown = (
                    ask(user, path.format(name), method) for name in ("vault", "other")
                )
                assert closed.error == (404, "NoSuchWarehouseException")
                words = json.dumps(closed.body).replace("vault", "other")
                assert words == json.dumps(unknown.body)
            assert "vault" not in json.dumps(ask(user, "/v1/config").body)
        assert ask("anna", "/v1/config").body["overrides"] == {"prefix": "lake"}
        assert ask("eve", "/v1/config").error == (404, "NoSuchWarehouseException")
        assert ask("boss", "/v1/config").body["error"]["message"] == (
            "name a catalog as the warehouse: lake, vault."
        )
        assert ask("boss", "/v1/config?warehouse=vault").status == 200


@pytest.mark.parametrize("name", ["two\nlines", "two\r\nlines", "a\ttab", 'a "quote"'])
def test_a_table_is_read_whatever_line_ends_its_name_has(two: Two, name: str) -> None:
    two.lake.create_table(("net", name), ROWS.schema).append(ROWS)
    with serving(settings(two.folder)) as server:
        quoted = name.replace('"', '""')
        assert server.ask("SELECT table_name FROM information_schema.tables").to_pylist() == [
            {"table_name": name},
            {"table_name": "secret"},
        ]
        rows = server.ask(f'SELECT sum(id) AS s FROM lake.net."{quoted}" WHERE id > 1')
        assert rows.to_pylist() == [{"s": 5}]
        host, port = Rest(server).address
        with contextlib.closing(
            load_catalog("live", type="rest", uri=f"http://{host}:{port}", warehouse="lake")
        ) as live:
            assert live.list_tables("net") == [("net", name)]
            assert live.load_table(("net", name)).scan().to_arrow().num_rows == 3


@dataclass
class Thief:
    """A REST catalog ``lake`` whose keys come with the address of ``store``, and a catalog ``vault`` on S3."""

    settings: Settings
    gateway: CatalogGateway
    store: StoreGateway
    namespace: str
    root: str
    secret: TableMetadata
    lake: Catalog

    def bucket_requests(self) -> list[str]:
        """Requests that its store got for the vault's files."""
        bucket = self.secret.location.removeprefix("s3://").partition("/")[0]
        return [
            request.path for request in self.store.requests if f"/{bucket}/" in request.path
        ]


@pytest.fixture
def thief(
    rest_catalog: RestCatalog, object_store: ObjectStore, tmp_path: Path
) -> Iterator[Thief]:
    vault = object_store.catalog(tmp_path)
    with contextlib.ExitStack() as stack:
        gateway = stack.enter_context(CatalogGateway(rest_catalog.port))
        store = stack.enter_context(StoreGateway(object_store.port))
        own = rest_catalog.catalog() | {"uri": gateway.uri}
        keys = {
            **{name: own.pop(name) for name in ("s3.access-key-id", "s3.secret-access-key")},
            "s3.endpoint": store.endpoint,
        }
        lake = stack.enter_context(
            contextlib.closing(load_catalog("lake", **rest_catalog.catalog()))
        )
        namespace = rest_catalog.namespace()
        lake.create_namespace(namespace)
        made = stack.enter_context(contextlib.closing(load_catalog("vault", **vault)))
        made.create_namespace("net")
        secret = made.create_table("net.secret", ROWS.schema)
        secret.append(ROWS)
        gateway.vend = lambda: {**keys, "s3.session-token": "any"}
        settings = settings_of(
            {"lake": own, "vault": vault},
            {},
            storage_roots=(rest_catalog.root, vault["warehouse"]),
        )
        settings = settings.model_copy(
            update={"iceberg_rest": IcebergRest(port=0, vended=("lake",))}
        )
        yield Thief(
            settings, gateway, store, namespace, rest_catalog.root, secret.metadata, lake
        )


def test_keys_of_a_table_in_another_catalog_s_folder_do_not_count_there(thief: Thief) -> None:
    thief.lake.create_table(
        (thief.namespace, "evil"), ROWS.schema, location=thief.secret.location
    )
    with serving(thief.settings) as server:
        evil = TableName("lake", (thief.namespace,), "evil")
        with pytest.raises(
            adbc.Error, match="evil: its metadata file lies in a place of another"
        ):
            server.ask(f"SELECT * FROM {evil}")
        thief.store.requests.clear()
        assert total(server, SECRET) == 6
        assert thief.bucket_requests() == []
        rest = Rest(server)
        assert rest.ask(rest.table(evil)).error == (422, "ForeignFile")


def test_keys_count_in_a_place_of_two_catalogs_where_both_mean_one_store(
    thief: Thief, object_store: ObjectStore
) -> None:
    name = TableName("lake", (thief.namespace,), "shared")
    place = thief.settings.catalogs["vault"]["warehouse"]
    table = thief.lake.create_table(
        (thief.namespace, "shared"), ROWS.schema, location=f"{place}/net/shared"
    )
    table.append(ROWS)
    roots = thief.settings.server.model_copy(update={"catalog_roots": {"lake": (place,)}})
    with serving(thief.settings.model_copy(update={"server": roots})) as server:
        with pytest.raises(adbc.Error, match="another catalog has, too, in another store"):
            total(server, name)
        assert total(server, SECRET) == 6
        assert not any("secret" in path for path in thief.bucket_requests())
        vend = thief.gateway.vend
        assert vend is not None
        same = {**vend(), "s3.endpoint": object_store.endpoint}
        thief.gateway.vend = lambda: same
        assert total(server, name) == total(server, SECRET) == 6


def test_keys_by_prefix_count_in_the_catalog_s_own_places(thief: Thief) -> None:
    name = TableName("lake", (thief.namespace,), "good")
    thief.lake.create_table((thief.namespace, "good"), ROWS.schema).append(ROWS)
    thief.gateway.places = (f"{thief.root}/", f"{thief.secret.location}/", "s3://bucket")
    with serving(thief.settings) as server:
        assert total(server, name) == 6
        thief.store.requests.clear()
        assert total(server, SECRET) == 6
        assert thief.bucket_requests() == []
        rest = Rest(server)
        answer = rest.ask(rest.table(name))
        assert answer.status == 200, answer
        places = [entry["prefix"] for entry in answer.body["storage-credentials"]]
        assert places == [f"{thief.root}/"]
        assert answer.body["config"]["s3.endpoint"] == thief.store.endpoint
