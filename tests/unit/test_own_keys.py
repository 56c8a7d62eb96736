"""Keys of a catalog's own are never handed out with a table (``iceberg_rest.vended``)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import load_catalog

from connectors.iceberg.catalogs import Catalogs
from connectors.iceberg.store import IcebergStore
from planner.names import TableName

OWN = {"s3.access-key-id": "ours", "s3.secret-access-key": "secret"}


def catalog(folder: Path, name: str) -> dict[str, str]:
    return {
        "type": "sql",
        "uri": f"sqlite:///{folder}/{name}.db",
        "warehouse": f"file://{folder}/wh",
    }


def test_a_metadata_file_of_two_catalogs_brings_no_keys_of_the_other(tmp_path: Path) -> None:
    lake, other = catalog(tmp_path, "lake") | OWN, catalog(tmp_path, "other")
    made = load_catalog("lake", **lake)
    made.create_namespace("net")
    table = made.create_table("net.flows", pa.schema([("id", pa.int64())]))
    shared = load_catalog("other", **other)
    shared.create_namespace("net")
    shared.register_table("net.flows", table.metadata_location)
    store = IcebergStore({"lake": lake, "other": other})
    ours = TableName("other", ("net",), "flows")
    pin = store.pin(ours)
    store.pin(TableName("lake", ("net",), "flows"))
    assert store.files.vended(pin) == ({}, ())
    store.close()


def test_properties_of_a_table_choose_neither_its_store_nor_what_code_runs(
    tmp_path: Path,
) -> None:
    lake = catalog(tmp_path, "lake") | OWN
    made = load_catalog("lake", **lake)
    made.create_namespace("net")
    made.create_table("net.flows", pa.schema([("id", pa.int64())]))
    own = {"s3.endpoint": "http://elsewhere", "py-io-impl": "os.system", "s3.region": "x"}
    catalogs = Catalogs({"lake": lake})
    name = TableName("lake", ("net",), "flows")
    # pyiceberg itself would call os.system from here on.
    catalogs.load(name).transaction().set_properties(own).commit_transaction()
    loaded = catalogs.load(name)
    assert loaded.properties.items() >= own.items()
    assert not own.keys() & loaded.io.properties.keys()
    assert loaded.io.properties.items() >= OWN.items()
    with catalogs.using("lake") as opened:
        new = opened.create_table("net.new", loaded.schema(), properties=own)
    assert not own.keys() & new.io.properties.keys()
    catalogs.close()


def test_what_a_catalog_says_of_all_its_tables_is_our_own(tmp_path: Path) -> None:
    catalogs = Catalogs({"lake": catalog(tmp_path, "lake")})
    with catalogs.using("lake") as opened:
        # As pyiceberg's client of a REST catalog does with what /v1/config says.
        opened.properties.update(OWN)
    assert OWN.items() <= catalogs.own_properties("lake").items()
    catalogs.close()
