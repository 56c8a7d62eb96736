"""Which deletes may apply to a data file, and which paths are a table's alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.manifest import DataFileContent

from connectors.iceberg.maintenance_facts import _Entry, _file_sizes
from connectors.spark.maintenance.orphans import SafeToRemove
from connectors.spark.maintenance.target import refused_by_iceberg
from planner.errors import BadBinding, TieringConflict
from planner.maintenance.facts import Neighbour
from planner.maintenance.steps import Expiry, OrphanRemoval, Step
from planner.names import TableName

DATA, POSITION, EQUALITY = (
    DataFileContent.DATA,
    DataFileContent.POSITION_DELETES,
    DataFileContent.EQUALITY_DELETES,
)
ONE, OTHER, UNPARTITIONED = (0, (1,)), (0, (2,)), (1, ())


def entry(
    content: DataFileContent,
    path: str | None = None,
    partition: tuple[int, tuple[object, ...]] = ONE,
    *,
    rows: int = 10,
    number: int = 5,
) -> _Entry:
    return _Entry(content, path, partition, 100, rows, number)


def deletes(*entries: _Entry) -> list[tuple[int, int]]:
    """Deleted rows and delete files of each data file."""
    sizes = _file_sizes((entry(DATA, "a"), *entries), 0)
    return [(size.deleted_rows, size.delete_files) for size in sizes]


def test_deletes_of_one_file_are_its_own() -> None:
    assert deletes(entry(POSITION, "a", rows=3), entry(POSITION, "b", rows=4)) == [(3, 1)]
    # Two may name one row, and a rewritten file is not the one that they name.
    assert deletes(entry(POSITION, "a", rows=8), entry(POSITION, "a", rows=8)) == [(10, 2)]


def test_older_deletes_do_not_apply() -> None:
    assert deletes(entry(POSITION, "a", number=4)) == [(0, 0)]
    assert deletes(entry(POSITION, "a", number=5)) == [(10, 1)]
    assert deletes(entry(EQUALITY, number=5)) == [(0, 0)]
    assert deletes(entry(EQUALITY, number=6)) == [(0, 1)]


def test_deletes_of_a_partition_apply_to_its_files_alone() -> None:
    assert deletes(entry(POSITION)) == [(0, 1)]
    assert deletes(entry(POSITION, None, OTHER)) == [(0, 0)]
    assert deletes(entry(EQUALITY, None, UNPARTITIONED, number=6)) == [(0, 1)]
    assert deletes(entry(POSITION, None, UNPARTITIONED)) == [(0, 0)]


def test_a_file_of_another_spec_has_no_partition_of_this_one() -> None:
    [size] = _file_sizes([entry(DATA, "a", UNPARTITIONED)], 0)
    assert size.partition is None


FLOWS, INNER = TableName("lake", ("net",), "flows"), TableName("lake", ("net",), "inner")


def safe(own: str, *others: Neighbour) -> SafeToRemove:
    return SafeToRemove.of(FLOWS, own, others)


@pytest.mark.parametrize(
    ("own", "other"),
    [
        ("s3://lake/net/flows", "s3a://lake/net/flows/inner"),
        ("s3://lake/net/flows", "s3://lake/net"),
        ("file:///lake/net/flows", "/lake/net/flows/"),
    ],
)
def test_a_folder_that_another_table_lies_in_or_above_is_nobodys(own: str, other: str) -> None:
    with pytest.raises(BadBinding) as refused:
        safe(own, Neighbour(INNER, other))
    assert refused.value.message == (
        "lake.net.flows: the table lake.net.inner lies or writes in its folder, or lies above it, so nothing tells whose a file "
        "is; no orphans are removed."
    )


def test_a_folder_that_another_table_writes_in_is_not_the_tables_alone() -> None:
    own = "s3://lake/net/flows"
    with pytest.raises(BadBinding, match=r"lake\.net\.inner lies or writes"):
        safe(own, Neighbour(INNER, "s3://lake/net/inner", (f"{own}/data/inner",)))


def test_a_table_that_cannot_be_read_may_lie_anywhere() -> None:
    with pytest.raises(BadBinding) as refused:
        safe("s3://lake/net/flows", Neighbour(INNER, unread="ColdStoreUnavailable"))
    assert refused.value.message == (
        "lake.net.flows: the table lake.net.inner could not be read (ColdStoreUnavailable), and may lie in this one's folder; "
        "no orphans are removed. Mend it, or take it out of its catalog."
    )


def test_a_folder_that_a_link_of_the_disk_names_is_the_same(tmp_path: Path) -> None:
    own, link = tmp_path / "flows", tmp_path / "link"
    own.mkdir()
    link.symlink_to(own)
    with pytest.raises(BadBinding, match=r"lake\.net\.inner lies or writes"):
        safe(str(own), Neighbour(INNER, f"file://{link}/inner"))
    assert f"file:{link}/data/a.parquet" in safe(str(link))


def test_only_what_lies_in_the_tables_own_folder_may_go() -> None:
    # Above it another may be told to write: what it names there is no folder of this one.
    own = safe(
        "s3://lake/net/flows", Neighbour(INNER, "s3://lake/net/flows2", ("s3://lake/net",))
    )
    assert "s3a://lake/net/flows/data/a.parquet" in own
    assert "s3://lake/net/flows2/data/a.parquet" not in own
    assert "s3://lake/net/flows/../flows2/data/a.parquet" not in own
    live = f"s3://lake/net/flows/thermocline-live-{'0' * 32}/t/a.parquet"
    assert live not in own


@pytest.mark.parametrize("step", [OrphanRemoval(), Expiry(1, 1, 0, 1)])
def test_orphans_that_iceberg_cannot_tell_are_no_conflict(step: Step) -> None:
    refused = refused_by_iceberg(
        FLOWS, step, ("org.apache.iceberg.exceptions.ValidationException",)
    )
    assert refused is not None
    if isinstance(step, Expiry):
        assert type(refused) is TieringConflict
        return
    assert type(refused) is BadBinding
    assert refused.message == (
        "lake.net.flows: Iceberg looks for no orphans here: gc.enabled is false, or the table's metadata names its files by "
        "another scheme or host than the folder does; no orphans were removed."
    )
    assert refused_by_iceberg(FLOWS, step, ("java.lang.RuntimeException",)) is None
