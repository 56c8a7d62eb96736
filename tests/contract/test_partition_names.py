"""Names of partition fields: those we give, and those of others, which the extension may not survive.

The names here are ones that it does read. What is tested is the decision to keep it away from them.
"""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import FixedType, LongType, NestedField, StringType, StructType

from connectors.iceberg.partition_terms import partition_spec
from connectors.iceberg.store import IcebergStore
from planner.errors import BadConfig, UnsupportedFile
from planner.names import is_portable_partition_field, partition_field_name
from planner.ports import SqlRelation
from planner.reading.filters import EVERYTHING
from planner.seam.cut import cold_cut
from tests.harness.file_lake import NAME, Lake, equal_to, rows

ODD = "user agent"
SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "id_bucket", LongType()),
    NestedField(3, "id.orig_h", StringType()),
    NestedField(4, "id_orig_h", StringType()),
    NestedField(5, "key", StructType(NestedField(6, "host", StringType()))),
)


def names_of(spec: PartitionSpec) -> list[str]:
    return [field.name for field in spec.fields]


def test_create_names_partition_fields_by_ascii_letters_digits_and_underscores() -> None:
    def named(*terms: str) -> list[str]:
        return names_of(partition_spec(NAME, SCHEMA, terms))

    assert named("id", "id_orig_h", "key.host") == ["id", "id_orig_h", "key_host"]
    # Iceberg refuses a field that has the name of another column.
    assert named("id.orig_h", "bucket(4, id)") == ["id_orig_h_2", "id_bucket_2"]
    assert named("bucket(4, id.orig_h)", "bucket(4, id_orig_h)") == [
        "id_orig_h_bucket",
        "id_orig_h_bucket_2",
    ]
    with pytest.raises(BadConfig, match="given twice among id, id"):
        named("id", "id")


def test_create_refuses_partitions_by_fixed_bytes_as_they_are() -> None:
    schema = Schema(NestedField(1, "id", FixedType(16)))
    assert names_of(partition_spec(NAME, schema, ["bucket(16, id)"])) == ["id_bucket"]
    with pytest.raises(BadConfig) as refused:
        partition_spec(NAME, schema, ["id"])
    assert refused.value.message == (
        "c.n.t: a table partitioned by 'id', of type fixed[16], gets manifests that readers lose rows by; partition by "
        "bucket(16, id) instead."
    )


@pytest.mark.parametrize(
    ("name", "portable"),
    [
        ("user agent", "user_agent"),
        ("@timestamp", "_timestamp"),
        ("a/b", "a_b"),
        ("A9_", "A9_"),
    ],
)
def test_a_name_is_portable_by_its_characters_alone(name: str, portable: str) -> None:
    assert partition_field_name(name, ()) == portable
    assert is_portable_partition_field(portable)
    assert is_portable_partition_field(name) == (name == portable)
    numbered = {portable.lower(), f"{portable}_2".lower()}
    assert partition_field_name(name, numbered) == f"{portable}_3"


def test_an_empty_name_or_a_newline_at_the_end_is_not_portable() -> None:
    assert not is_portable_partition_field("")
    assert not is_portable_partition_field("host\n")


def partitioned(lake: Lake, name: str = ODD) -> Table:
    table = lake.create()
    with table.update_spec() as update:
        update.add_field("s", IdentityTransform(), name)
    return table


def relation(store: IcebergStore, conditions: object = EVERYTHING) -> SqlRelation:
    part = store.scan(cold_cut(store.pin(NAME)).cold, conditions)  # type: ignore[arg-type]
    assert isinstance(part, SqlRelation)
    return part


def ids(duck: duckdb.DuckDBPyConnection, part: SqlRelation) -> list[int]:
    items = duck.execute(f"SELECT id FROM ({part.sql}) ORDER BY id").fetchall()
    return [row[0] for row in items]


def test_an_odd_name_is_read_by_our_own_list(
    lake_of_files: Lake, duck: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = partitioned(lake_of_files)
    for number in (1, 2):
        table.append(rows(number))
    # More files than one would list where the extension could do it.
    monkeypatch.setattr("connectors.iceberg.scan.planner.MAX_LISTED_FILES", 1)
    store = lake_of_files.store()
    part = relation(store)
    assert "iceberg_scan" not in part.sql
    assert ids(duck, part) == [1, 2]
    one = relation(store, equal_to(2))
    assert one.sql.count(".parquet'") == 1
    assert ids(duck, one) == [2]


def by_an_older_spec(table: Table) -> Table:
    with table.update_spec() as update:
        update.remove_field(ODD)
    return table


@pytest.mark.parametrize("change", [lambda table: table, by_an_older_spec])
def test_where_our_own_list_is_not_enough_it_is_named_and_the_extension_kept_away(
    lake_of_files: Lake, monkeypatch: pytest.MonkeyPatch, change: Callable[[Table], Table]
) -> None:
    table = partitioned(lake_of_files)
    table.append(rows(1))
    change(table)
    monkeypatch.setattr("connectors.iceberg.scan.planner.MAX_LISTED_ALONE", 0)
    store = lake_of_files.store()
    pin = store.pin(NAME)
    for read in (
        lambda: store.scan(cold_cut(pin).cold),
        lambda: store.shares(cold_cut(pin).cold, EVERYTHING, ("id",), 2),
    ):
        with pytest.raises(UnsupportedFile) as refused:
            read()
        assert refused.value.message == (
            f"c.n.t: snapshot {pin.snapshot_id} has a partition field, 1000, whose name is not of ASCII letters, digits and "
            f"underscores alone; such a table can be read only where it has no delete files and every data file has its "
            f"columns' ids; write its files anew (CALL system.rewrite_data_files, options => map('rewrite-all', 'true', "
            f"'remove-dangling-deletes', 'true'))."
        )


def test_a_plain_name_goes_to_the_extension_as_before(
    lake_of_files: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = partitioned(lake_of_files, "agent")
    table.append(rows(1))
    monkeypatch.setattr("connectors.iceberg.scan.planner.MAX_LISTED_FILES", 0)
    assert "iceberg_scan" in relation(lake_of_files.store()).sql
