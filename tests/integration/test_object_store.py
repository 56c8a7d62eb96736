"""The whole loop on S3: pyiceberg and Spark write there, the server's engine reads there."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from tests.fixtures.kafka import Kafka
from tests.fixtures.object_store import ObjectStore, running_store
from tests.fixtures.postgresql import PostgreSQL
from tests.fixtures.server import SqlServer, settings_of
from tests.harness.whole_loop import check_whole_loop
from thermocline.catalog_access import engine_secrets
from thermocline.serve.assembly import running_server


def _filled(properties: dict[str, str], rows: int, name: str = "lake") -> None:
    with closing(load_catalog(name, **properties)) as catalog:
        catalog.create_namespace("default")
        data = pa.table({"id": pa.array(range(rows), pa.int64()), "name": ["x"] * rows})
        catalog.create_table("default.flows", data.schema).append(data)


def test_a_table_on_s3_is_read(object_store: ObjectStore, tmp_path: Path) -> None:
    properties = object_store.catalog(tmp_path)
    _filled(properties, 1_000)
    settings = settings_of({"lake": properties}, {})
    with running_server(settings) as running:
        server = SqlServer(running, settings)
        answer = server.ask("SELECT count(*) AS n, sum(id) AS s FROM flows WHERE id < 10")
        assert answer.to_pylist() == [{"n": 10, "s": 45}]


@pytest.mark.soak  # test_least_rights.py has these parts, with users who may do less
@pytest.mark.kafka
@pytest.mark.spark
def test_a_topic_is_tiered_to_s3_by_postgresql_and_read_on_both_sides_of_the_seam(
    object_store: ObjectStore, postgresql: PostgreSQL, kafka: Kafka, tmp_path: Path
) -> None:
    check_whole_loop(postgresql.catalog(tmp_path) | object_store.warehouse(), kafka, tmp_path)


def test_each_catalog_has_a_store_and_a_key_of_its_own(
    object_store: ObjectStore, tmp_path: Path
) -> None:
    properties: dict[str, dict[str, str]] = {}
    key = ("another-key", "another-secret")
    with running_store(tmp_path, key) as other:
        for name, store in (("lake", object_store), ("pond", other)):
            folder = tmp_path / name
            folder.mkdir()
            properties[name] = store.catalog(folder)
            _filled(properties[name], 10, name)
        with running_server(settings_of(properties, {})) as running:
            answer = SqlServer(running, settings_of(properties, {})).ask(
                "SELECT sum(a.id + b.id) AS s FROM lake.default.flows a JOIN pond.default.flows b USING (id)"
            )
            assert answer.to_pylist() == [{"s": 90}]
        names = ("s3.access-key-id", "s3.secret-access-key")
        stolen = properties["pond"] | {each: properties["lake"][each] for each in names}
        settings = settings_of({**properties, "pond": stolen}, {})
        with running_server(settings) as running:
            server = SqlServer(running, settings)
            with pytest.raises(adbc.Error, match="refuses the catalog's key"):
                server.ask("SELECT * FROM pond.default.flows")
            assert server.ask("SELECT count(*) AS n FROM lake.default.flows").to_pylist() == [
                {"n": 10}
            ]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (
            {"s3.secret-access-key": "wrong"},
            "the object store refuses the catalog's key; check s3.access-key-id, s3.secret-access-key and what it "
            "may read, and this machine's clock",
        ),
        (
            {"s3.endpoint": "http://127.0.0.1:1"},
            "the object store does not answer; check s3.endpoint, or try again",
        ),
    ],
    ids=["secret", "endpoint"],
)
def test_a_store_that_refuses_is_named(
    object_store: ObjectStore, tmp_path: Path, other: dict[str, str], reason: str
) -> None:
    properties = object_store.catalog(tmp_path)
    _filled(properties, 10)
    settings = settings_of({"lake": properties | other}, {})
    with running_server(settings) as running, pytest.raises(adbc.Error) as caught:
        SqlServer(running, settings).ask("SELECT * FROM flows")
    sentence, _, rest = str(caught.value).partition(" (statement ")
    assert sentence == (
        f"IO: [FlightSQL] lake.default.flows: its metadata file could not be read: {reason}"
    )
    assert rest.endswith("). Detail: Unavailable (Unavailable; Prepare)")


def test_a_key_taken_away_is_named_by_the_engine_too(
    object_store: ObjectStore, tmp_path: Path
) -> None:
    """pyiceberg reads with one key, the engine with another."""
    properties = object_store.catalog(tmp_path)
    _filled(properties, 10)
    settings = settings_of({"lake": properties}, {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "thermocline.serve.assembly.engine_secrets",
            lambda its: [
                secret.replace(properties["s3.secret-access-key"], "wrong")
                for secret in engine_secrets(its)
            ],
        )
        with running_server(settings) as running, pytest.raises(adbc.Error) as caught:
            SqlServer(running, settings).ask("SELECT * FROM flows")
    sentence = str(caught.value).partition(" (statement ")[0]
    assert sentence.endswith(
        "a file of the table could not be read: the object store refuses the catalog's key; check s3.access-key-id, "
        "s3.secret-access-key and what it may read"
    )
