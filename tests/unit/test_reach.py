"""Where the files of a table may lie, and what its manifests may list."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from connectors.iceberg.scan.allowed_locations import Reach
from connectors.iceberg.scan.metrics import CONTENT, FORMAT, PATH, Block
from connectors.store.catalog_roots import CatalogRoots
from planner.errors import ForeignFile
from planner.names import TableName

CATALOGS = {
    "lake": {"warehouse": "s3://lake/wh"},
    "vault": {"warehouse": "s3a://vault/wh"},
    "inner": {"warehouse": "s3://lake/wh/inner"},
    "named": {"type": "rest", "warehouse": "a name"},
}
REST = {"type": "rest"}
ROOTS = CatalogRoots.of(
    CATALOGS, {"lake": ["file:///more"], "vault": ["/vault"]}, closed=["/live"]
)


def reach(
    catalog: str, location: str, metadata: str | None = None, roots: CatalogRoots = ROOTS
) -> Reach:
    name = TableName(catalog, ("n",), "t")
    return Reach.of(name, metadata or f"{location}/metadata/1.json", location, roots)


TABLE = reach("lake", "s3://lake/wh/t")
NAMED = reach("named", "s3://rest/t", "s3://rest/elsewhere/1.json")


def block(path: str, content: int = 0) -> Block:
    return Block(pa.table({PATH: [path], FORMAT: ["PARQUET"], CONTENT: [content]}))


@pytest.mark.parametrize(
    ("reach", "path"),
    [
        (TABLE, "s3://lake/wh/t/data/x.parquet"),
        (TABLE, "s3n://lake/wh/other/x.parquet"),
        (TABLE, "/more/x.parquet"),
        (TABLE, "FILE:///more/x.parquet"),
        (NAMED, "s3://rest/t/x.parquet"),
        (NAMED, "s3://rest/elsewhere/manifest.avro"),
    ],
)
def test_its_own_places_are_open(reach: Reach, path: str) -> None:
    reach.check(path)


@pytest.mark.parametrize(
    ("reach", "path"),
    [
        (TABLE, "s3://vault/wh/secret/x.parquet"),
        (TABLE, "s3://lake/wh2/x.parquet"),
        (TABLE, "s3://lake/wh/../x.parquet"),
        (TABLE, "s3://lake/wh/inner/x.parquet"),
        (TABLE, "/more/../etc/passwd"),
        (TABLE, "http://lake/wh/x.parquet"),
        (NAMED, "s3://rest/other/x.parquet"),
        (NAMED, "s3://lake/wh/t/x.parquet"),
    ],
)
def test_others_are_not(reach: Reach, path: str) -> None:
    with pytest.raises(ForeignFile, match="t: a file of the table lies outside"):
        reach.check(path)
    with pytest.raises(ForeignFile, match="lies outside its location"):
        reach.check_block(block(path), is_data=True)


@pytest.mark.parametrize(
    "location",
    [
        "s3://vault/wh/secret",
        "s3n://vault/wh/secret",
        "s3://lake/wh/inner/t",
        "/vault/t",
        "file:/vault/t",
        "FILE:///vault/t",
        "file://localhost/vault/t",
        "//vault/t",
        "/more/../vault/t",
        "file:///va\nult/t",
        " file:/vault/t",
        "file:///more/.\t./vault/t",
        "/live/t",
    ],
)
def test_no_table_lies_or_is_described_in_a_place_of_another_catalog(location: str) -> None:
    with pytest.raises(ForeignFile) as caught:
        reach("lake", location, "s3://lake/wh/t/metadata/1.json")
    assert str(caught.value) == (
        "lake.n.t: its location lies in a place of another catalog; move the table, or add the place to "
        "server.catalog_roots of its own."
    )
    with pytest.raises(ForeignFile, match="its metadata file lies in a place of another"):
        reach("lake", "s3://lake/wh/t", f"{location}/metadata/1.json")


def test_a_link_leads_to_no_place_of_another_catalog(tmp_path: Path) -> None:
    (tmp_path / "vault").mkdir()
    for name in ("to_vault", "by_another_name"):
        (tmp_path / name).symlink_to(tmp_path / "vault")
    catalogs = {"a": {"warehouse": "/a"}, "b": {"warehouse": str(tmp_path / "by_another_name")}}
    roots = CatalogRoots.of(catalogs)
    reach("b", str(tmp_path / "vault" / "t"), roots=roots)
    for location in ("to_vault", "vault", "by_another_name"):
        with pytest.raises(ForeignFile, match="another catalog"):
            reach("a", str(tmp_path / location / "t"), roots=roots)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("s3://vault/wh/../../lake/wh/x", "has a folder `..` in its path"),
        ("/more/../more/x", "has a folder `..` in its path"),
        ("file://localhost/more/x", "has a host in its path"),
        ("FILE://host/more/x", "has a host in its path"),
        ("fi\nle:/\t/host/more/x", "has a host in its path"),
    ],
)
def test_a_path_that_readers_take_for_different_places_is_refused(path: str, why: str) -> None:
    rest = f"{why}, which readers take for different places; write the table anew with plain paths."
    for what, act in (
        ("a file of the table", lambda: TABLE.check(path)),
        ("a file of the table", lambda: TABLE.check_block(block(path), is_data=True)),
        ("its location", lambda: reach("lake", path, "s3://lake/wh/t/metadata/1.json")),
        ("its metadata file", lambda: reach("lake", "s3://lake/wh/t", path)),
    ):
        with pytest.raises(ForeignFile) as caught:
            act()
        assert str(caught.value) == f"lake.n.t: {what} {rest}"


def test_a_root_over_a_link_holds_no_files_of_a_catalog_inside_it(tmp_path: Path) -> None:
    inner = tmp_path / "real" / "inner"
    inner.mkdir(parents=True)
    link = tmp_path / "a_link_with_a_longer_name"
    link.symlink_to(tmp_path / "real")
    roots = CatalogRoots.of(
        {"outer": {"warehouse": str(link)}, "inner": {"warehouse": str(inner)}}
    )
    table = reach("outer", f"{link}/t", roots=roots)
    table.check(f"{link}/t/x")
    table.check(f"{link}/other/x")
    with pytest.raises(ForeignFile, match="a file of the table lies outside"):
        table.check(f"{link}/inner/x")


def test_a_link_below_a_location_that_no_root_covers_is_followed(tmp_path: Path) -> None:
    for name in ("vault", "own", "t"):
        (tmp_path / name).mkdir()
    (tmp_path / "t" / "to_vault").symlink_to(tmp_path / "vault")
    (tmp_path / "t" / "to_own").symlink_to(tmp_path / "own")
    catalogs = {name: {"warehouse": str(tmp_path / name)} for name in ("own", "vault")}
    table = reach("own", str(tmp_path / "t"), roots=CatalogRoots.of(catalogs))
    table.check(f"{tmp_path}/t/x")
    table.check(f"{tmp_path}/t/to_own/x")
    with pytest.raises(ForeignFile, match="a file of the table lies outside"):
        table.check(f"{tmp_path}/t/to_vault/x")


def test_roots_that_are_equal_are_both_catalogs_own() -> None:
    catalogs = {name: {"warehouse": "s3://lake/wh"} for name in ("reader", "writer")}
    roots = CatalogRoots.of(catalogs | {"deeper": {"warehouse": "s3://lake/wh/d"}})
    assert roots.owners("s3a://lake/wh/t") == {"reader", "writer"}
    assert roots.owners("s3://lake/wh/d/t") == {"deeper"}
    assert roots.owners("s3://lake/elsewhere") == set()
    for name in catalogs:
        reach(name, "s3://lake/wh/t", roots=roots).check("s3://lake/wh/other/x")
    shared = CatalogRoots.of(
        catalogs | {"deeper": {"warehouse": "s3://lake/wh/d"}}, {"reader": ["s3://lake/wh/d"]}
    )
    assert shared.owners("s3://lake/wh/d/t") == {"deeper", "reader"}


def test_one_catalog_has_all_that_is_below_no_root() -> None:
    roots = CatalogRoots.of({"lake": {"warehouse": "s3://lake/wh"}})
    assert roots.owners("s3://elsewhere/t") == {"lake"}
    table = reach("lake", "s3://elsewhere/t", "s3://another/folder/1.json", roots)
    table.check("s3://elsewhere/t/x")
    table.check("s3://another/folder/manifest.avro")
    with pytest.raises(ForeignFile):
        table.check("s3://elsewhere/other/x")


def test_keys_count_in_places_of_their_catalog_alone() -> None:
    # Not what begins alike, s3://lake/wh/inner say.
    for prefix in ("s3://lake/wh/i", "s3://lake/wh/i/"):
        assert ROOTS.own_below("lake", prefix) == ["s3://lake/wh/i/"]
    # Nor beside a root: engines go by the text that a secret's scope begins with.
    assert ROOTS.own_below("lake", "s3://lake/") == ["s3://lake/wh/"]
    for prefix in ("s3", "s3://", "s3a://", "s3://la"):
        assert ROOTS.own_below("lake", prefix) == ["s3://lake/wh/"]
    assert ROOTS.own_below("lake", "s3://vault/wh/t") == []
    assert ROOTS.own_below("named", "s3://vault/") == []
    for alone, places in (
        ({"warehouse": "s3://lake/wh"}, ["s3://lake/wh/"]),
        (REST, ["s3://"]),
    ):
        assert CatalogRoots.of({"one": alone}).own_below("one", "s3://") == places


def test_of_keys_that_count_in_one_place_those_of_the_longest_prefix_do() -> None:
    for order in (1, -1):
        by_prefix = [("s3", "all"), ("s3://lake/wh", "warehouse"), ("s3://lake", "bucket")]
        handed_out = by_prefix[::order]
        assert ROOTS.by_location("lake", handed_out) == {"s3://lake/wh/": "warehouse"}


@pytest.mark.parametrize(
    ("catalogs", "owners"),
    [
        ({"lake": {"warehouse": "s3://lake"}, "rest": REST}, {"rest"}),
        ({"lake": {"warehouse": "s3://lake"}, "local": {"warehouse": "/x"}}, {"lake"}),
        ({"rest": REST | {"s3.endpoint": "http://x"}, "other": REST}, {"rest"}),
        ({"one": REST, "two": REST}, set()),
        ({"one": {"warehouse": "s3://a"}, "two": {"warehouse": "s3://b"}}, set()),
    ],
)
def test_storage_roots_that_no_catalog_names_are_those_of_the_one_without_a_place(
    catalogs: dict[str, dict[str, str]], owners: set[str]
) -> None:
    roots = CatalogRoots.of(catalogs, storage_roots=["s3://tables", "/local"])
    assert roots.owners("s3://tables/t/x") == owners


def test_a_storage_root_inside_a_warehouse_is_the_warehouse_s() -> None:
    catalogs = {"lake": {"warehouse": "s3://lake"}, "rest": REST}
    roots = CatalogRoots.of(catalogs, storage_roots=["s3a://lake/tables"])
    assert roots.owners("s3://lake/tables/t") == {"lake"}


@pytest.mark.parametrize(("content", "is_data"), [(1, True), (2, True), (0, False)])
def test_deletes_are_no_rows_and_rows_no_deletes(content: int, is_data: bool) -> None:
    with pytest.raises(ForeignFile, match="delete files as data files"):
        TABLE.check_block(block("s3://lake/wh/x", content), is_data=is_data)
    TABLE.check_block(block("s3://lake/wh/x", content), is_data=not is_data)
