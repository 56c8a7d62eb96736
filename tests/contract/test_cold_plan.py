"""Our own list of files: what is cached, what is damaged, and when the extension's scan has to do."""

from __future__ import annotations

import ctypes
import decimal
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.table import Table
from pyiceberg.types import LongType, StringType

from connectors.iceberg.errors import DamagedFile
from connectors.iceberg.file_access import EngineCalls
from connectors.iceberg.file_io import OwnFiles
from connectors.iceberg.relations import read_sql
from connectors.iceberg.scan.allowed_locations import Reach
from connectors.iceberg.scan.manifests import Manifests
from connectors.iceberg.scan.planner import FileList
from connectors.iceberg.store import IcebergStore
from connectors.store.catalog_roots import CatalogRoots
from planner.errors import (
    BadStatement,
    ColdStoreUnavailable,
    FederationError,
    ForeignFile,
    InternalError,
    SnapshotExpired,
    UnsupportedFile,
    UnsupportedStatement,
)
from planner.ports import ArrowRelation, SqlRelation
from planner.reading.filters import EVERYTHING, ScanFilter
from planner.seam.cut import cold_cut
from tests.harness.file_lake import NAME, SCHEMA, Lake, equal_to, rows, slice_of

Scan = Callable[[IcebergStore, ScanFilter], tuple[list[int], str]]


@pytest.fixture
def scan(duck: duckdb.DuckDBPyConnection) -> Scan:
    """Return the ids a scan gives, and how it reads them: files named, or by the extension."""

    def scanned(
        store: IcebergStore, expected: ScanFilter = EVERYTHING
    ) -> tuple[list[int], str]:
        part = store.scan(slice_of(store), expected)
        if isinstance(part, ArrowRelation):
            assert not part.table.num_rows
            return [], "nothing"
        assert isinstance(part, SqlRelation)
        items = duck.execute(f"SELECT id FROM ({part.sql}) ORDER BY id").fetchall()
        files = part.sql.count(".parquet'")
        way = "extension" if "iceberg_scan" in part.sql else f"{files} files"
        return [row[0] for row in items], way

    return scanned


def test_files_that_cannot_match_are_not_named(lake_of_files: Lake, scan: Scan) -> None:
    table = lake_of_files.create()
    for number in (1, 2, 3):
        table.append(rows(number))
    store = lake_of_files.store()
    assert scan(store, EVERYTHING) == ([1, 2, 3], "3 files")
    assert scan(store, equal_to(2)) == ([2], "1 files")
    assert scan(store, (*equal_to(1), *equal_to(3))) == ([1, 3], "2 files")
    assert scan(store, equal_to(9)) == ([], "nothing")


def test_what_a_condition_leaves_is_worked_out_once(lake_of_files: Lake) -> None:
    """No files, too: that is the answer to whoever asks for new rows."""
    lake_of_files.create().append(rows(1, 2, 3))
    store = lake_of_files.store()
    cold = slice_of(store)
    for condition in (equal_to(2), equal_to(9)):
        assert store.scan(cold, condition) is store.scan(cold, condition)


def test_the_engine_is_told_how_many_rows_there_are(
    lake_of_files: Lake, duck: duckdb.DuckDBPyConnection
) -> None:
    """Or it joins in an order for the thousand rows it takes each file to have."""
    table = lake_of_files.create()
    table.append(rows(*range(5_000)))
    table.append(rows(*range(5_000, 70_000)))
    store = lake_of_files.store()

    def estimate(rows_filter: ScanFilter) -> str:
        part = store.scan(slice_of(store), rows_filter)
        assert isinstance(part, SqlRelation)
        (plan,) = duck.execute(f"EXPLAIN SELECT id FROM ({part.sql})").fetchall()
        return re.findall(r"~([\d,]+) rows", plan[1])[0]

    assert estimate(EVERYTHING) == "70,000"
    assert estimate(equal_to(3)) == "5,000"


@pytest.mark.parametrize(("counted", "estimate"), [(0, 1), (-5, 1), (2**80, 10**12), (7, 7)])
def test_what_writers_counted_is_an_estimate_and_nothing_else(
    lake_of_files: Lake, duck: duckdb.DuckDBPyConnection, counted: int, estimate: int
) -> None:
    lake_of_files.create().append(rows(1, 2, 3))
    store = lake_of_files.store()
    path = str(lake_of_files.files("*.parquet")[0])
    files = FileList([path], [1], counted, frozenset(), frozenset())
    sql = read_sql(slice_of(store).schema.columns, files)
    assert f"explicit_cardinality = {estimate})" in sql
    assert duck.execute(f"SELECT count(*), max(id) FROM ({sql})").fetchall() == [(3, 3)]


def test_a_new_snapshot_reads_only_what_it_added(lake_of_files: Lake, scan: Scan) -> None:
    table = lake_of_files.create()
    table.append(rows(1))
    store = lake_of_files.store()
    assert scan(store, EVERYTHING) == ([1], "1 files")
    for manifest in lake_of_files.files("*-m0.avro"):
        manifest.unlink()
    table.append(rows(2))
    assert scan(store, EVERYTHING) == ([1, 2], "2 files")


def test_a_pin_that_is_refreshed_reads_ahead_for_the_next_statement(
    lake_of_files: Lake, scan: Scan
) -> None:
    table = lake_of_files.create()
    table.append(rows(1))
    store = lake_of_files.store()
    assert scan(store, EVERYTHING) == ([1], "1 files")
    table.append(rows(2))
    store.pin(NAME)
    for manifest in lake_of_files.files("*-m0.avro"):
        manifest.unlink()
    assert scan(store, EVERYTHING) == ([1, 2], "2 files")


def test_reading_ahead_leaves_errors_to_the_statement(lake_of_files: Lake, scan: Scan) -> None:
    table = lake_of_files.create()
    table.append(rows(1))
    store = lake_of_files.store()
    assert scan(store, EVERYTHING) == ([1], "1 files")
    table.append(rows(2))
    for manifest in lake_of_files.files("*-m0.avro"):
        manifest.unlink()
    store.pin(NAME)
    with pytest.raises(SnapshotExpired):
        scan(store, EVERYTHING)


@pytest.mark.parametrize("bound", [0, 1 << 12])
def test_manifests_beyond_the_bound_are_decoded_again(
    lake_of_files: Lake, scan: Scan, bound: int
) -> None:
    table = lake_of_files.create()
    store = lake_of_files.store(max_cache_memory_bytes=bound)
    for number in range(6):
        table.append(rows(number))
        assert scan(store, equal_to(number)) == ([number], "1 files")
    assert scan(store, EVERYTHING) == ([*range(6)], "6 files")


@pytest.mark.parametrize(
    ("pattern", "keep", "error"),
    [
        ("*-m0.avro", None, SnapshotExpired),
        ("*-m0.avro", -30, ColdStoreUnavailable),
        ("*.parquet", None, SnapshotExpired),
        ("*.parquet", -20, ColdStoreUnavailable),
        ("snap-*.avro", None, SnapshotExpired),
        ("snap-*.avro", 300, ColdStoreUnavailable),
    ],
)
def test_a_file_that_is_gone_or_cut_short_is_a_named_error(
    lake_of_files: Lake, pattern: str, keep: int | None, error: type[Exception]
) -> None:
    lake_of_files.create().append(rows(1, 2))
    store = lake_of_files.store()
    cold = slice_of(store)
    (file,) = lake_of_files.files(pattern)
    content = file.read_bytes()
    file.unlink()
    if keep is not None:
        file.write_bytes(content[:keep])
    with pytest.raises(error) as caught:
        store.scan(cold)
    assert str(lake_of_files.folder) not in str(caught.value)


@pytest.mark.parametrize("harmed", [60, 400])
def test_a_manifest_whose_entries_are_lost_is_damaged(lake_of_files: Lake, harmed: int) -> None:
    """DuckDB's reader takes the damage for the end of the file; the manifest list knows better."""
    lake_of_files.create().append(rows(1, 2))
    store = lake_of_files.store()
    (manifest,) = lake_of_files.files("*-m0.avro")
    content = manifest.read_bytes()
    manifest.write_bytes(content[:-harmed] + bytes(harmed))
    with pytest.raises(ColdStoreUnavailable, match="one of its manifests is damaged"):
        store.scan(slice_of(store))


def test_a_manifest_the_reader_does_not_know_is_read_all_the_same(
    lake_of_files: Lake, scan: Scan
) -> None:
    table = lake_of_files.create(**{"write.avro.compression-codec": "zstandard"})
    table.append(rows(1))
    table.append(rows(2))
    assert scan(lake_of_files.store(), equal_to(2)) == ([2], "1 files")


def _scanned(
    lake_of_files: Lake,
    duck: duckdb.DuckDBPyConnection,
    columns: str,
    names: tuple[str, ...] | None = None,
) -> tuple[list[tuple[object, ...]], bool]:
    """The rows, which are those of the extension's, and whether they were found by name."""
    store = lake_of_files.store()
    cold = slice_of(store)
    part = store.scan(cold, EVERYTHING, names)
    assert isinstance(part, SqlRelation)
    assert "read_parquet" in part.sql
    query = f"SELECT {columns} FROM ({{}}) ORDER BY ALL"
    items = duck.execute(query.format(part.sql)).fetchall()
    assert items == duck.execute(query.format(store.extension_sql(cold))).fetchall()
    return items, "schema = MAP" not in part.sql


def test_columns_are_found_by_name_where_all_files_have_the_names_of_today(
    lake_of_files: Lake, duck: duckdb.DuckDBPyConnection
) -> None:
    table = lake_of_files.create()
    table.append(rows(1))
    table.append(rows(2).select(["at", "id", "s"]))
    assert _scanned(lake_of_files, duck, 'id, s, "at".x') == (
        [(1, "s1", 1), (2, "s2", 2)],
        True,
    )
    assert _scanned(lake_of_files, duck, "id, s", ("id", "s")) == ([(1, "s1"), (2, "s2")], True)


def test_a_column_that_only_some_files_have_and_the_table_dropped_hinders_nobody(
    lake_of_files: Lake, duck: duckdb.DuckDBPyConnection
) -> None:
    table = lake_of_files.create()
    table.append(rows(1))
    with table.update_schema() as update:
        update.delete_column("s")
    table.append(rows(2).select(["id", "at"]))
    assert _scanned(lake_of_files, duck, 'id, "at".x') == ([(1, 1), (2, 2)], True)


def test_a_column_that_only_newer_files_have_hinders_none_but_who_reads_it(
    lake_of_files: Lake, duck: duckdb.DuckDBPyConnection
) -> None:
    table = lake_of_files.create()
    table.append(rows(1))
    with table.update_schema() as update:
        update.add_column("more", LongType())
    more = rows(2).append_column(pa.field("more", pa.int64()), pa.array([7]))
    table.append(more)
    assert _scanned(lake_of_files, duck, "id, s", ("id", "s")) == ([(1, "s1"), (2, "s2")], True)
    assert _scanned(lake_of_files, duck, "id, more", ("id", "more")) == (
        [(1, None), (2, 7)],
        False,
    )


@pytest.mark.parametrize(
    ("change", "names", "values"),
    [
        ("added", "id, s, more", (1, "s1", None)),
        ("renamed", "id, text", (1, "s1")),
        ("swapped", "id, text, s", (1, "s1", None)),
    ],
)
def test_columns_are_found_by_id_where_a_name_would_mean_something_else(
    lake_of_files: Lake,
    duck: duckdb.DuckDBPyConnection,
    change: str,
    names: str,
    values: tuple[object, ...],
) -> None:
    table = lake_of_files.create()
    table.append(rows(1))
    if change != "added":
        with table.update_schema() as update:
            update.rename_column("s", "text")
    if change != "renamed":
        with table.update_schema() as update:
            kind = StringType() if change == "swapped" else LongType()
            update.add_column("s" if change == "swapped" else "more", kind)
    assert _scanned(lake_of_files, duck, f'{names}, "at".x') == ([(*values, 1)], False)
    assert _scanned(lake_of_files, duck, "id", ("id",)) == ([(1,)], True), "others are not read"


def test_names_that_differ_in_case_alone_are_not_told_apart_by_name(
    lake_of_files: Lake, duck: duckdb.DuckDBPyConnection
) -> None:
    fields = [*SCHEMA, pa.field("ID", pa.int64())]
    lake_of_files.catalog.create_table("n.t", schema=pa.schema(fields)).append(
        rows(1).append_column(fields[-1], pa.array([7]))
    )
    store = lake_of_files.store()
    part = store.scan(slice_of(store), EVERYTHING)
    assert isinstance(part, SqlRelation)
    assert "schema = MAP" in part.sql


def test_files_without_field_ids_are_left_to_the_extension(
    lake_of_files: Lake, scan: Scan
) -> None:
    table = lake_of_files.create()
    table.append(rows(1))
    foreign = lake_of_files.folder / "foreign.parquet"
    pq.write_table(rows(7), foreign)
    table.add_files([f"file://{foreign}"])
    store = lake_of_files.store()
    assert scan(store, EVERYTHING) == ([1, 7], "extension")
    assert scan(store, equal_to(1)) == ([1], "1 files")


def test_members_that_some_files_name_otherwise_are_left_to_the_extension(
    lake_of_files: Lake, scan: Scan
) -> None:
    table = lake_of_files.create()
    table.append(rows(1))
    with table.update_schema() as update:
        update.rename_column("at.x", "y")
    table.append(
        pa.Table.from_pylist([{"id": 2, "s": "b", "at": {"y": 2}}], table.schema().as_arrow())
    )
    store = lake_of_files.store()
    assert scan(store, EVERYTHING) == ([1, 2], "extension")
    assert scan(store, equal_to(1)) == ([1], "1 files")
    assert scan(store, equal_to(2)) == ([2], "1 files")


#: Names that Iceberg's writers escape in Parquet, each with a type and a value.
MEMBERS: dict[str, tuple[pa.DataType, Any]] = {
    "user-agent": (pa.string(), "u"),
    "a b": (pa.list_(pa.int64()), [1, None]),
    "@x": (pa.list_(pa.list_(pa.struct([("x-y", pa.int64())]))), [[{"x-y": 1}, None], [], None]),
    "1d": (pa.struct([("x-y", pa.string()), ("z", pa.bool_())]), {"x-y": "v", "z": None}),
    "it's": (pa.map_(pa.string(), pa.struct([("x y", pa.int64())])), [("k", {"x y": 3}), ("n", None)]),
    'a"b': (pa.map_(pa.struct([("x y", pa.int64())]), pa.int64()), [({"x y": 1}, 2)]),
    "a.b": (pa.decimal128(20, 2), decimal.Decimal("1.50")),
}  # fmt: skip


def test_members_whose_names_parquet_escapes_are_read_by_field_id(
    lake_of_files: Lake, duck: duckdb.DuckDBPyConnection
) -> None:
    struct = pa.struct([(name, kind) for name, (kind, _) in MEMBERS.items()])
    full, empty = {name: value for name, (_, value) in MEMBERS.items()}, dict.fromkeys(MEMBERS)
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("a struct", struct),
            ("a list", pa.list_(struct)),
            ("a map", pa.map_(pa.string(), struct)),
        ]
    )
    table = lake_of_files.catalog.create_table("n.t", schema=schema)
    for content in (
        {
            "id": 1,
            "a struct": full,
            "a list": [full, None],
            "a map": [("k", full), ("n", None)],
        },
        {"id": 2},
        {"id": 3, "a struct": empty, "a list": [empty], "a map": [("k", empty)]},
    ):
        table.append(pa.Table.from_pylist([content], schema))
    store = lake_of_files.store()
    cold = slice_of(store)
    part = store.scan(cold)
    assert isinstance(part, SqlRelation)
    assert "iceberg_scan" not in part.sql
    # What EXPLAIN shows as files_to_read.
    assert store.count_files(cold) == 3
    columns = ", ".join(f'"{name}", typeof("{name}")' for name in schema.names)
    query = f"SELECT {columns} FROM ({{}}) ORDER BY id"
    items = duck.execute(query.format(part.sql)).fetchall()
    assert items == duck.execute(query.format(store.extension_sql(cold))).fetchall()
    assert items[0][2]["a b"] == [1, None]
    where = """SELECT id FROM ({}) WHERE "a struct"."user-agent" = 'u' AND "a list"[1]."1d"."x-y" = 'v'"""
    assert duck.execute(where.format(part.sql)).fetchall() == [(1,)]


def test_names_that_are_patterns_are_left_to_the_extension(
    lake_of_files: Lake, scan: Scan
) -> None:
    table = lake_of_files.create(
        **{"write.data.path": f"file://{lake_of_files.folder}/odd[ab]"}
    )
    table.append(rows(1))
    assert scan(lake_of_files.store(), EVERYTHING) == ([1], "extension")


def own_files(io: PyArrowFileIO, folder: Path) -> OwnFiles:
    roots = CatalogRoots.of({"c": {"warehouse": str(folder)}}, {"c": [f"elsewhere://{folder}"]})
    return OwnFiles(io, Reach.of(NAME, f"{folder}/1.json", f"{folder}/t", roots))


class ElsewhereIO(PyArrowFileIO):
    """The files of this machine under addresses it cannot open by path."""

    def new_input(self, location: str) -> PyArrowFile:
        return super().new_input(location.replace("elsewhere://", "file://"))


def test_manifests_of_another_machine_are_read_through_its_client(lake_of_files: Lake) -> None:
    table = lake_of_files.create()
    table.append(rows(1, 2))
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifests = Manifests(max_memory_bytes=1 << 20)
    try:
        io = own_files(ElsewhereIO(), lake_of_files.folder)
        listed = manifests.list(io, snapshot.manifest_list)
        (here,) = listed.data
        away = replace(here, path=here.path.replace("file://", "elsewhere://"))
        (block,) = manifests.blocks(io, [away])
        assert block.paths.to_pylist() == [
            task.file.file_path for task in table.scan().plan_files()
        ]
        with pytest.raises(DamagedFile, match="manifests"):
            manifests.blocks(io, [replace(away, length=away.length + 1)])
    finally:
        manifests.close()


class _Allocated(ctypes.Structure):
    """``struct mallinfo2`` of glibc."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def allocated_bytes() -> int:
    """What ``malloc`` has given out, touched or not."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        pytest.skip("the C library does not tell")
    libc.mallinfo2.restype = _Allocated
    result = libc.mallinfo2()
    return int(result.uordblks + result.hblkhd)


def test_a_manifest_takes_no_more_than_its_files_need(lake_of_files: Lake) -> None:
    table = lake_of_files.create()
    for key in (1, 2):
        table.append(rows(key))
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    io = own_files(PyArrowFileIO(), lake_of_files.folder)
    manifests = Manifests(max_memory_bytes=1 << 20)
    try:
        first, second = manifests.list(io, snapshot.manifest_list).data
        manifests.blocks(io, [first])  # what is loaded once
        before = allocated_bytes()
        items = manifests.blocks(io, [second])
        # A batch of DuckDB's own choice is 112 MB.
        assert allocated_bytes() - before < 16 << 20
        assert [len(block) for block in items] == [1]
    finally:
        manifests.close()


def test_a_version_reads_the_same_by_files_and_by_the_extension(
    lake_of_files: Lake, duck: duckdb.DuckDBPyConnection
) -> None:
    table = lake_of_files.create()
    table.append(rows(1))
    first = table.refresh().current_snapshot()
    with table.update_schema() as update:
        update.rename_column("s", "text")
        update.add_column("more", LongType())
    table.append(rows(2).rename_columns(["id", "text", "at"]))
    store = lake_of_files.store()
    newest = store.pin(NAME)
    assert first is not None
    old = cold_cut(store.pin_version(newest, first.snapshot_id)).cold
    assert old.schema.names == ("id", "s", "at")
    part = store.scan(old)
    assert isinstance(part, SqlRelation)
    assert "read_parquet" in part.sql
    by_files = duck.execute(part.sql).fetchall()
    assert by_files == duck.execute(store.extension_sql(old)).fetchall()
    assert [row[:2] for row in by_files] == [(1, "s1")]
    store.probe(old)
    current = cold_cut(newest).cold
    answer = duck.execute(f"SELECT id, text FROM ({store.extension_sql(current)}) ORDER BY 1")
    assert answer.fetchall() == [(1, "s1"), (2, "s2")]


def test_a_file_of_another_place_is_refused_unless_the_settings_name_it(
    lake_of_files: Lake, tmp_path_factory: pytest.TempPathFactory
) -> None:
    table = lake_of_files.create()
    table.append(rows(1))
    vault = tmp_path_factory.mktemp("vault")
    pq.write_table(
        rows(2).cast(pa.schema([field.remove_metadata() for field in SCHEMA])),
        vault / "x.parquet",
    )
    table.add_files([str(vault / "x.parquet")])
    store = lake_of_files.store()
    with pytest.raises(ForeignFile, match=r"server\.catalog_roots"):
        store.scan(slice_of(store))
    catalogs = {"c": lake_of_files.properties}
    opened = IcebergStore(catalogs, roots=CatalogRoots.of(catalogs, {"c": [vault.as_uri()]}))
    lake_of_files.stores.append(opened)
    opened.scan(slice_of(opened))


def by_the_extension(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Table:
    table = lake.create()
    table.append(rows(1))
    monkeypatch.setattr("connectors.iceberg.scan.planner.MAX_LISTED_FILES", 0)
    return table


@pytest.mark.parametrize("kind", [BadStatement, UnsupportedStatement, InternalError])
def test_what_the_extension_cannot_read_in_a_statement_is_refused_before_its_scan(
    lake_of_files: Lake, monkeypatch: pytest.MonkeyPatch, kind: type[FederationError]
) -> None:
    by_the_extension(lake_of_files, monkeypatch)

    def try_manifests(_location: str, _snapshot_id: int) -> None:
        raise kind("required field is NULL.")

    store = lake_of_files.store(engine=EngineCalls(try_manifests=try_manifests))
    cold = slice_of(store)
    for read in (lambda: store.scan(cold), lambda: store.shares(cold, EVERYTHING, ("id",), 2)):
        with pytest.raises(UnsupportedFile) as refused:
            read()
        assert refused.value.message == (
            f"c.n.t: snapshot {cold.snapshot_id} has manifests that DuckDB's Iceberg extension cannot read, which it needs "
            f"for the deletes or old files of this table; write its files anew (CALL system.rewrite_data_files, options => "
            f"map('rewrite-all', 'true', 'remove-dangling-deletes', 'true'))."
        )


def test_a_store_that_does_not_answer_is_named_as_such_and_tried_again(
    lake_of_files: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = by_the_extension(lake_of_files, monkeypatch)
    tried: list[tuple[str, int]] = []

    def try_manifests(location: str, snapshot_id: int) -> None:
        tried.append((location, snapshot_id))
        if len(tried) == 1:
            raise ColdStoreUnavailable("a file of the table could not be read; try again.")

    store = lake_of_files.store(engine=EngineCalls(try_manifests=try_manifests))
    cold = slice_of(store)
    with pytest.raises(ColdStoreUnavailable, match="try again"):
        store.scan(cold)
    for _ in range(2):
        part = store.scan(cold)
        assert isinstance(part, SqlRelation)
        assert "iceberg_scan" in part.sql
    # Once for each snapshot: the same metadata file never changes.
    assert tried == [(table.metadata_location, cold.snapshot_id)] * 2
