"""Where other tables lie, asked of real catalogs: one that cannot be read, one of two names, many of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import _GeneratorContextManager, closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog

from connectors.iceberg.catalogs import Catalogs
from connectors.iceberg.neighbours import Neighbours
from connectors.store.locations import local_path
from planner.maintenance.facts import Neighbour
from planner.names import TableName
from tests.fixtures.cold import IcebergCold
from tests.harness.builders import FLOWS

OTHER = TableName("lake", ("net",), "other")


class Loads(Catalogs):
    """Counts what it opens for a table."""

    loads = 0

    def using(
        self, name: str, table: TableName | None = None
    ) -> _GeneratorContextManager[Catalog]:
        self.loads += table is not None
        return super().using(name, table)


@pytest.fixture
def catalogs(iceberg: IcebergCold) -> Iterator[Loads]:
    iceberg.create()
    iceberg.create_plain(OTHER, pa.table({"id": [1]}))
    with closing(Loads(iceberg.properties)) as opened:
        yield opened


def metadata_file(iceberg: IcebergCold, table: TableName) -> Path:
    path = local_path(iceberg.table(table).metadata_location)
    assert path is not None
    return path


def test_another_table_lies_at_its_location_and_writes_where_its_properties_say(
    catalogs: Loads, iceberg: IcebergCold
) -> None:
    with iceberg.table(OTHER).transaction() as transaction:
        transaction.set_properties({"write.data.path": "s3://lake/elsewhere"})
    location = iceberg.table(OTHER).metadata.location
    expected = (Neighbour(OTHER, location, ("s3://lake/elsewhere",)),)
    assert Neighbours(catalogs).of(FLOWS) == expected


def test_tables_are_loaded_once_an_hour_and_new_ones_at_once(
    catalogs: Loads, iceberg: IcebergCold
) -> None:
    clock_s = 0.0
    neighbours = Neighbours(catalogs, clock=lambda: clock_s)
    # The table itself each time, and each of the two once.
    for loads in (3, 1, 1):
        before = catalogs.loads
        neighbours.of(FLOWS)
        assert catalogs.loads - before == loads
    third = TableName("lake", ("net",), "third")
    iceberg.create_plain(third, None)
    assert [each.name for each in neighbours.of(FLOWS)] == [OTHER, third]
    clock_s, before = 3_600.0, catalogs.loads
    neighbours.of(FLOWS)
    assert catalogs.loads - before == 4  # the table, and three that were read an hour ago


def test_an_entry_whose_files_are_gone_is_no_neighbour_and_a_damaged_one_is(
    catalogs: Loads, iceberg: IcebergCold
) -> None:
    file = metadata_file(iceberg, OTHER)
    file.write_text("{")
    unread = (Neighbour(OTHER, unread="ColdStoreUnavailable"),)
    assert Neighbours(catalogs).of(FLOWS) == unread
    file.unlink()
    assert Neighbours(catalogs).of(FLOWS) == ()


def test_one_of_another_catalog_that_cannot_be_read_lies_in_no_root_of_this_one(
    iceberg: IcebergCold, tmp_path: Path
) -> None:
    iceberg.create()
    vault = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/vault.db",
        "warehouse": f"file://{tmp_path}/vault",
    }
    with closing(load_catalog("vault", **vault)) as catalog:
        catalog.create_namespace("net")
        created = catalog.create_table(("net", "other"), pa.schema({"id": pa.int64()}))
    path = local_path(created.metadata_location)
    assert path is not None
    path.write_text("{")
    with closing(Catalogs(iceberg.properties | {"vault": vault})) as both:
        assert Neighbours(both).of(FLOWS) == ()


def test_two_names_of_one_table_are_one(iceberg: IcebergCold, tmp_path: Path) -> None:
    iceberg.create()
    lake = iceberg.properties["lake"]
    # A catalog of its own with the same table, as a second way to one service has it.
    again = lake | {"uri": f"sqlite:///{tmp_path}/again.db"}
    with closing(load_catalog("again", **again)) as catalog:
        catalog.create_namespace("net")
        catalog.register_table(("net", "flows"), iceberg.table().metadata_location)
    with closing(Catalogs({"lake": lake, "again": again})) as both:
        assert Neighbours(both).of(FLOWS) == ()
        # Once one of them moved on they are two tables with one folder.
        iceberg.tier([(0, 0, "a", 0)], 1, 0)
        copy = TableName("again", ("net",), "flows")
        location = iceberg.table().metadata.location
        assert Neighbours(both).of(FLOWS) == (Neighbour(copy, location, is_copy=True),)
