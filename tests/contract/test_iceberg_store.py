"""What only real catalogs and files can show: creation, scans of every type, statistics, failures."""

from __future__ import annotations

import datetime as dt
import json
import math
import sqlite3
import uuid
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import BucketTransform, IdentityTransform

from connectors.iceberg.store import IcebergStore
from planner.errors import (
    BadBinding,
    BadConfig,
    CatalogUnavailable,
    ColdStoreUnavailable,
    FederationError,
    ForeignCommit,
    SnapshotExpired,
    UnknownTable,
    UnsupportedType,
    WatermarkMissing,
)
from planner.names import LEADING_COLUMNS, TableName
from planner.offsets import OffsetVector
from planner.schema import METADATA_TYPES, TIMESTAMPTZ, Column
from planner.seam.binding import MIRROR, Binding
from planner.seam.formats import JsonFormat
from planner.seam.snapshots import NEVER_EXPIRES_MS, TAG
from planner.seam.watermark import SUMMARY_KEY, parse_watermark
from tests.fixtures.cold import PAYLOAD, IcebergCold, cold_slice
from tests.harness.builders import BINDING, FLOWS, vector, watermark

NESTED = TableName("lake", ("net", "eu"), "flows")
TYPES = TableName("lake", ("net",), "types")


# Creation.


def test_creation_is_one_commit_of_schema_watermark_mirror_and_tag(
    iceberg: IcebergCold,
) -> None:
    iceberg.create(first=watermark(7, 0))
    metadata = iceberg.table().metadata
    assert metadata.metadata_log == []
    (snapshot,) = metadata.snapshots
    assert snapshot.summary is not None
    text = snapshot.summary.additional_properties[SUMMARY_KEY]
    assert parse_watermark(text) == watermark(7, 0)
    assert metadata.properties[MIRROR] == text
    assert metadata.refs[TAG].snapshot_id == snapshot.snapshot_id
    assert metadata.refs[TAG].max_ref_age_ms == NEVER_EXPIRES_MS
    assert metadata.properties["write.wap.enabled"] == "true"
    assert metadata.properties["write.distribution-mode"] == "none"


def test_a_nested_namespace_needs_two_commits_and_is_bound_from_the_first(
    iceberg: IcebergCold,
) -> None:
    iceberg.create(NESTED)
    before = iceberg.table(NESTED).metadata.metadata_log
    first = Path(before[0].metadata_file.removeprefix("file://"))
    document = json.loads(first.read_text())
    assert document["properties"]["thermocline.topic"] == "flows"
    assert document["snapshots"] == []
    assert iceberg.store.pin(NESTED).watermark == watermark(0, 0)


def test_a_creation_that_died_between_its_commits_is_refused(iceberg: IcebergCold) -> None:
    """The first of the two commits alone: columns and binding, no snapshot."""
    leading = schema_of_leading_columns()
    iceberg.catalog.create_namespace(NESTED.namespace)
    iceberg.catalog.create_table(
        (*NESTED.namespace, NESTED.name), leading, properties=BINDING.properties()
    )
    with pytest.raises(WatermarkMissing, match="no first watermark"):
        iceberg.store.pin(NESTED)


def test_layout_terms_become_spec_and_order(iceberg: IcebergCold) -> None:
    iceberg.create(
        partition_by=[
            "day(kafka_timestamp)",
            "bucket(16, host)",
            "truncate( 8 ,host)",
            "bytes",
        ],
        sort_by=["host desc nulls first", "kafka_partition", "kafka_offset ASC"],
    )
    table = iceberg.table()
    assert [(field.name, str(field.transform)) for field in table.spec().fields] == [
        ("kafka_timestamp_day", "day"),
        ("host_bucket", "bucket[16]"),
        ("host_trunc", "truncate[8]"),
        ("bytes", "identity"),
    ]
    assert [str(field) for field in table.sort_order().fields] == [
        "4 DESC NULLS FIRST",
        "1 ASC NULLS FIRST",
        "2 ASC NULLS FIRST",
    ]


def test_null_policy_adds_the_columns_it_needs(iceberg: IcebergCold) -> None:
    iceberg.create(
        columns=[Column(0, "kafka_key", pa.binary()), *PAYLOAD],
        binding=Binding("flows", on_error="null"),
    )
    assert iceberg.store.pin(FLOWS).schema.names == (
        "kafka_partition",
        "kafka_offset",
        "kafka_timestamp",
        "kafka_value",
        "kafka_error",
        "kafka_key",
        "host",
        "bytes",
    )


def test_epoch_units_of_columns_reach_binding_shape_and_watermark(iceberg: IcebergCold) -> None:
    iceberg.create(columns=[*PAYLOAD, Column(0, "seen", TIMESTAMPTZ, epoch_unit="ms")])
    pin = iceberg.store.pin(FLOWS)
    assert pin.binding == Binding("flows", JsonFormat(epoch_units=((6, "ms"),)))
    assert pin.watermark is not None
    assert pin.binding is not None
    assert pin.watermark.shape == pin.binding.shape
    assert pin.schema.columns[5].epoch_unit == "ms"


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"columns": (*PAYLOAD, Column(0, "HOST", pa.string()))}, BadConfig, "given twice"),
        (
            {"columns": [Column(0, "kafka_offset", pa.int64())]},
            BadConfig,
            "added to every table",
        ),
        ({"columns": [Column(0, "_partition", pa.string())]}, BadConfig, "reserved by Iceberg"),
        ({"columns": [Column(0, "", pa.string())]}, BadConfig, "is reserved"),
        ({"columns": [Column(0, "kafka_key", pa.string())]}, BadBinding, "kafka_key is string"),
        ({"columns": [Column(0, "t", pa.time64("us"))]}, UnsupportedType, "t holds time"),
        ({"columns": [Column(0, "n", pa.uint8())]}, UnsupportedType, "n holds uint8"),
        (
            {"partition_by": ["week(kafka_timestamp)"]},
            BadConfig,
            "not a transform Iceberg knows",
        ),
        ({"partition_by": ["bucket(host)"]}, BadConfig, "not a transform Iceberg knows"),
        ({"partition_by": ["bucket(0, host)"]}, BadConfig, "not a transform Iceberg knows"),
        ({"partition_by": ["day(host)"]}, BadConfig, "cannot be used on string"),
        ({"partition_by": ["day(nothing)"]}, BadConfig, "column nothing"),
        ({"partition_by": ["day(kafka_timestamp"]}, BadConfig, "not a partition or sort term"),
        ({"partition_by": ["host; drop"]}, BadConfig, "not a partition or sort term"),
        ({"partition_by": ["host", "host"]}, BadConfig, "given twice"),
        ({"sort_by": ["host sideways"]}, BadConfig, "not a partition or sort term"),
    ],
)
def test_what_cannot_be_created_is_named_and_leaves_nothing(
    iceberg: IcebergCold, options: dict[str, Any], kind: type[FederationError], says: str
) -> None:
    with pytest.raises(kind) as caught:
        iceberg.create(**options)
    assert says in caught.value.message
    assert "lake.net.flows" in caught.value.message
    assert iceberg.store.tables() == ()


@pytest.mark.parametrize("name", ["flows$cold", "flows$tail", "flows$Seam"])
def test_no_table_is_created_under_the_name_of_a_side(iceberg: IcebergCold, name: str) -> None:
    table = replace(FLOWS, name=name)
    with pytest.raises(BadConfig) as caught:
        iceberg.create(table)
    assert caught.value.message == (
        f"{table}: a name that ends in $cold or $tail or $seam or $schemas or $snapshots means a side of the table before it; choose another name."
    )
    assert iceberg.store.tables() == ()


def test_somebody_who_creates_the_table_meanwhile_wins(
    iceberg: IcebergCold, monkeypatch: pytest.MonkeyPatch
) -> None:
    iceberg.create(first=watermark(3, 3))
    # As if the other creation came after the look and before the commit.
    monkeypatch.setattr(SqlCatalog, "table_exists", lambda *_: False)
    for table in (FLOWS, NESTED):
        if table == NESTED:
            iceberg.create(NESTED, first=watermark(3, 3))
        with pytest.raises(BadConfig, match="the table exists already"):
            iceberg.create(table)
        assert iceberg.store.pin(table).watermark == watermark(3, 3)


# Scans.


def test_every_type_is_scanned_as_it_was_written(
    iceberg: IcebergCold, duck: duckdb.DuckDBPyConnection
) -> None:
    first, last = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999)
    schema = pa.schema(
        {
            "yes": pa.bool_(),
            "i": pa.int32(),
            "l": pa.int64(),
            "f": pa.float32(),
            "d": pa.float64(),
            "wide": pa.decimal128(38, 9),
            "narrow": pa.decimal128(9, 2),
            "day": pa.date32(),
            "time of day": pa.time64("us"),
            "ts": pa.timestamp("us"),
            "tz": TIMESTAMPTZ,
            'a "text"': pa.string(),
            "bytes": pa.binary(),
            "four": pa.binary(4),
            "id": pa.uuid(),
            "list": pa.list_(pa.int32()),
            "struct": pa.struct({"a": pa.int32(), "in": pa.struct({"x": pa.string()})}),
            "map": pa.map_(pa.string(), pa.list_(pa.decimal128(5, 2))),
        }
    )
    rows: list[dict[str, Any]] = [
        {
            "yes": True,
            "i": -(2**31),
            "l": 2**63 - 1,
            "f": math.inf,
            "d": -0.0,
            "wide": Decimal("12345678901234567890123456789.123456789"),
            "narrow": Decimal("-1234567.89"),
            "day": dt.date(1, 1, 1),
            "time of day": dt.time(23, 59, 59, 999_999),
            "ts": first,
            "tz": last.replace(tzinfo=dt.UTC),
            'a "text"': "ü\x00'\"",
            "bytes": b"\x00\xff",
            "four": b"\x00abc",
            "id": uuid.UUID(int=2**127 + 5),
            "list": [1, None],
            "struct": {"a": None, "in": {"x": None}},
            "map": [("k", [Decimal("1.50"), None]), ("", [])],
        },
        dict.fromkeys(schema.names),
        dict.fromkeys(schema.names) | {"list": [], "struct": {"a": 1, "in": None}, "map": []},
    ]
    iceberg.create_plain(TYPES, pa.Table.from_pylist(rows, schema))
    pin = iceberg.store.pin(TYPES)
    assert pin.schema.arrow.equals(schema)
    read = iceberg.read(cold_slice(pin))
    # repr tells -0.0 from 0.0; the two zones are the same instant.
    assert repr(read.drop("tz").to_pylist()) == repr(
        [{key: row[key] for key in schema.names if key != "tz"} for row in rows]
    )
    assert read["tz"].to_pylist() == [row["tz"] for row in rows]
    kinds = dict(
        duck.execute(
            f"SELECT column_name, column_type FROM (DESCRIBE {_sql(iceberg, pin)})"
        ).fetchall()
    )
    assert kinds["id"] == "UUID"
    assert kinds["four"] == "BLOB"
    assert kinds["tz"] == "TIMESTAMP WITH TIME ZONE"
    assert kinds["wide"] == "DECIMAL(38,9)"


def _sql(iceberg: IcebergCold, pin: Any) -> str:
    relation = iceberg.store.scan(cold_slice(pin))
    return relation.sql  # type: ignore[union-attr]


def test_rows_of_several_partition_specs_are_all_scanned(iceberg: IcebergCold) -> None:
    iceberg.create(partition_by=["bucket(4, host)"])
    iceberg.tier([(0, 0, "a", 1), (0, 1, "b", 2), (0, 2, None, 3)], 3, 0)
    with iceberg.table().update_spec() as update:
        update.remove_field("host_bucket")
        update.add_field("bytes", IdentityTransform(), "bytes")
    iceberg.tier([(0, 3, "c", 4)], 4, 0)
    with iceberg.table().update_spec() as update:
        update.add_field("kafka_offset", BucketTransform(2), "offset_bucket")
    iceberg.tier([(0, 4, "d", None)], 5, 0)
    read = iceberg.read(cold_slice(iceberg.store.pin(FLOWS)))
    assert sorted(read["kafka_offset"].to_pylist()) == [0, 1, 2, 3, 4]
    assert sorted(map(str, read["host"].to_pylist())) == ["None", "a", "b", "c", "d"]


def test_a_path_with_a_quote_is_scanned(
    tmp_path: Path, duck: duckdb.DuckDBPyConnection
) -> None:
    root = tmp_path / "it's here"
    root.mkdir()
    harness = IcebergCold(root, duck)
    harness.create()
    harness.tier([(0, 0, "a", 1)], 1, 0)
    assert harness.read(cold_slice(harness.store.pin(FLOWS))).num_rows == 1
    harness.close()


@pytest.mark.parametrize("kind", ["variant", "unknown", "geography", "timestamptz_ns"])
def test_a_type_no_engine_of_ours_shows_is_refused_by_name(
    iceberg: IcebergCold, kind: str
) -> None:
    iceberg.create_plain(TYPES, None)
    file = _metadata_file(iceberg, TYPES)
    document = json.loads(file.read_text())
    document |= {"format-version": 3, "next-row-id": 0, "last-column-id": 2}
    document["schemas"][0]["fields"].append(
        {"id": 2, "name": "x", "type": kind, "required": False}
    )
    file.write_text(json.dumps(document))
    with pytest.raises(UnsupportedType, match=f"holds {kind}, which this program cannot read"):
        iceberg.store.pin(TYPES)


# What an overwrite added.


def watermark_of(store: IcebergStore) -> OffsetVector:
    mark = store.pin(FLOWS).watermark
    assert mark is not None
    return mark.next


@pytest.mark.parametrize("metrics", ["full", "none"])
def test_statistics_or_the_rows_themselves_prove_an_update(
    iceberg: IcebergCold, metrics: str
) -> None:
    keys = [f"write.metadata.metrics.column.kafka_{name}" for name in ("partition", "offset")]
    iceberg.create(properties=dict.fromkeys(keys, metrics))
    iceberg.tier([(0, 8, "a", 1), (0, 9, "b", 2)], 10, 0)
    (file,) = [task.file for task in iceberg.table().scan().plan_files()]
    assert (2 in (file.upper_bounds or {})) == (metrics == "full")
    iceberg.update(8, "changed")
    assert watermark_of(iceberg.store) == vector(10, 0)
    iceberg.move(9, 10)
    with pytest.raises(ForeignCommit, match="offset 10 of partition 0"):
        iceberg.store.pin(FLOWS)


def test_a_row_without_an_offset_cannot_be_proven(iceberg: IcebergCold) -> None:
    iceberg.create()
    iceberg.tier([(0, 8, "a", 1), (0, 9, "b", 2)], 10, 0)
    iceberg._rewrite(9, "kafka_offset", None)
    with pytest.raises(ForeignCommit, match="which offsets its rows have is not known"):
        iceberg.store.pin(FLOWS)


def test_what_a_snapshot_added_is_looked_up_once(iceberg: IcebergCold) -> None:
    iceberg.create()
    iceberg.tier([(0, 8, "a", 1), (1, 1, "b", 2)], 9, 2)
    iceberg.update(8, "changed")
    assert watermark_of(iceberg.store) == vector(9, 2)
    iceberg.lose_files(iceberg.store.pin(FLOWS))
    assert watermark_of(iceberg.store) == vector(9, 2)
    other = IcebergStore(iceberg.properties)
    with pytest.raises(ColdStoreUnavailable, match="is not in the store"):
        other.pin(FLOWS)
    other.close()


# Failures of catalogs and files: named, and without a path.


@pytest.fixture
def store_with_secrets(tmp_path: Path) -> Iterator[IcebergStore]:
    store = IcebergStore(
        {
            "gone": {"type": "sql", "uri": f"sqlite:///{tmp_path}/none/hunter2.db"},
            "odd": {"type": "sql", "uri": "nonsense://user:hunter2@host/db"},
            "rest": {"type": "rest", "uri": "http://127.0.0.1:9/hunter2", "token": "hunter2"},
            "typo": {"type": "sqlite", "uri": "hunter2"},
        }
    )
    yield store
    store.close()


@pytest.mark.parametrize(
    ("catalog", "kind", "says"),
    [
        ("gone", CatalogUnavailable, "catalog gone does not answer"),
        ("odd", BadConfig, "catalog odd: its properties name no catalog"),
        ("rest", CatalogUnavailable, "catalog rest does not answer"),
        ("typo", BadConfig, "catalog typo: its properties name no catalog"),
        (
            "none",
            UnknownTable,
            "there is no catalog none; configured are gone, odd, rest, typo",
        ),
    ],
)
def test_a_catalog_that_cannot_be_asked_is_named(
    store_with_secrets: IcebergStore, catalog: str, kind: type[FederationError], says: str
) -> None:
    with pytest.raises(kind) as caught:
        store_with_secrets.pin(TableName(catalog, ("net",), "flows"))
    assert says in caught.value.message
    assert "hunter2" not in repr(caught.value) + repr(caught.value.facts)


def test_a_catalog_that_goes_away_later_is_unavailable(iceberg: IcebergCold) -> None:
    iceberg.create()
    iceberg.store.pin(FLOWS)
    with sqlite3.connect(iceberg.root / "catalog.db") as connection:
        connection.execute("DROP TABLE iceberg_tables")
    connection.close()
    with pytest.raises(CatalogUnavailable, match="catalog lake does not answer"):
        iceberg.store.pin(FLOWS)
    with pytest.raises(CatalogUnavailable):
        iceberg.store.tables()


def test_a_metadata_file_that_is_gone_or_damaged_is_named(iceberg: IcebergCold) -> None:
    iceberg.create()
    file = _metadata_file(iceberg, FLOWS)
    text = file.read_text()
    file.write_text(text[:100])
    with pytest.raises(
        ColdStoreUnavailable, match="is damaged or of a format version"
    ) as caught:
        iceberg.store.pin(FLOWS)
    assert str(iceberg.root) not in caught.value.message
    file.unlink()
    with pytest.raises(ColdStoreUnavailable, match="is not in the store") as caught:
        iceberg.store.pin(FLOWS)
    assert str(iceberg.root) not in caught.value.message


@pytest.mark.parametrize(
    ("damage", "error", "text"),
    [
        (b"", SnapshotExpired, r"snapshot \d+ is gone"),
        (b"Obj\x01", ColdStoreUnavailable, "one of its manifests is damaged"),
    ],
)
def test_a_manifest_that_is_gone_or_damaged_is_named(
    iceberg: IcebergCold, damage: bytes, error: type[Exception], text: str
) -> None:
    iceberg.create()
    iceberg.tier([(0, 0, "a", 1)], 1, 0)
    cold = cold_slice(iceberg.store.pin(FLOWS))
    snapshot = iceberg.table().current_snapshot()
    assert snapshot is not None
    (manifest,) = snapshot.manifests(iceberg.table().io)
    path = Path(manifest.manifest_path.removeprefix("file://"))
    other = IcebergStore(iceberg.properties)
    listed = other.scan(cold)
    path.unlink()
    if damage:
        path.write_bytes(damage)
    with pytest.raises(error, match=text) as caught:
        iceberg.store.scan(cold)
    assert str(iceberg.root) not in str(caught.value)
    assert other.scan(cold) == listed, "a manifest that was read is not needed again"
    other.close()


def test_a_probe_tells_what_a_failed_scan_missed(iceberg: IcebergCold) -> None:
    iceberg.create()
    iceberg.tier([(0, 0, "a", 1)], 1, 0)
    cold = cold_slice(iceberg.store.pin(FLOWS))
    iceberg.store.probe(cold)
    snapshot = iceberg.table().current_snapshot()
    assert snapshot is not None
    (manifest,) = snapshot.manifests(iceberg.table().io)
    files = [
        cold.metadata_location,
        snapshot.manifest_list,
        manifest.manifest_path,
        *(task.file.file_path for task in iceberg.table().scan().plan_files()),
    ]
    other = IcebergStore(iceberg.properties)
    for location in files:
        path = Path(location.removeprefix("file://"))
        value = path.read_bytes()
        path.unlink()
        for store in (iceberg.store, other):
            with pytest.raises(SnapshotExpired, match=r"snapshot \d+ is gone"):
                store.probe(cold)
        path.write_bytes(value)
        other.probe(cold)
    other.close()


def test_an_old_metadata_file_that_was_cleaned_up_is_a_stale_plan(iceberg: IcebergCold) -> None:
    iceberg.create()
    old = iceberg.store.pin(FLOWS)
    iceberg.tier([(0, 0, "a", 1)], 1, 0)
    Path(old.metadata_location.removeprefix("file://")).unlink()
    with pytest.raises(SnapshotExpired):
        iceberg.store.pin_at(old.reference)


def test_two_stores_share_nothing_but_the_catalog(iceberg: IcebergCold) -> None:
    iceberg.create()
    other = IcebergStore(iceberg.properties)
    assert other.pin(FLOWS) == iceberg.store.pin(FLOWS)
    iceberg.tier([(0, 0, "a", 1)], 1, 0)
    assert watermark_of(other) == vector(1, 0)
    other.close()


def schema_of_leading_columns() -> pa.Schema:
    return pa.schema({name: METADATA_TYPES[name] for name in LEADING_COLUMNS})


def _metadata_file(iceberg: IcebergCold, table: TableName) -> Path:
    return Path(iceberg.table(table).metadata_location.removeprefix("file://"))


def test_two_fields_of_one_dotted_name_are_refused(iceberg: IcebergCold) -> None:
    inner = pa.struct([pa.field("b", pa.int64())])
    with pytest.raises(
        BadConfig, match=r"two fields are called a\.b, one by a dot in its name"
    ):
        iceberg.create(columns=[Column(0, "a.b", pa.int64()), Column(0, "a", inner)])
