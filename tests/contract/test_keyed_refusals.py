"""What has no meaning for a keyed table is refused by name, with the way that there is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from connectors.iceberg.create import NewTable, create_table
from connectors.iceberg.repair_commit import IcebergRepairCommitter
from connectors.iceberg.store import IcebergStore
from connectors.repairs import accepting, moving_shape
from connectors.spark.lake.opened import refuse_keyed
from planner.errors import BadBinding, NotForKeyedTables, ShapeMismatch
from planner.schema import Column
from planner.seam.binding import Binding
from planner.seam.cut import cold_cut
from planner.tiering.plan import TieringBudget, plan_tiering
from tests.harness.builders import FLOWS, bounds, watermark
from tests.harness.keyed_log import KEYED, KEYED_COLUMNS

_KEYED_ONLY = "is not for a keyed table, which has the newest row of each key alone"


class Devices:
    def __init__(self, root: Path) -> None:
        warehouse = root / "warehouse"
        self.catalogs = {
            "lake": {
                "type": "sql",
                "uri": f"sqlite:///{root}/catalog.db",
                "warehouse": warehouse.as_uri(),
            }
        }
        self.root = root
        create_table(
            self.catalogs,
            NewTable(FLOWS, KEYED_COLUMNS, KEYED, key=("id",)),
            watermark(0),
        )
        self.store = IcebergStore(self.catalogs)
        self.catalog = load_catalog("lake", **self.catalogs["lake"])
        self.committer = IcebergRepairCommitter(self.catalogs)

    def table(self) -> Table:
        return self.catalog.load_table((*FLOWS.namespace, FLOWS.name))

    def close(self) -> None:
        self.committer.close()
        self.store.close()
        self.catalog.close()


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[Devices]:
    with closing(Devices(tmp_path)) as value:
        yield value


def test_another_shape_is_a_reason_to_rebuild(devices: Devices) -> None:
    with devices.table().transaction() as changed:
        changed.set_properties({"thermocline.on_error": "skip"})
    pin = devices.store.pin(FLOWS)
    with pytest.raises(ShapeMismatch, match="`thermocline rebuild lake"):
        plan_tiering(pin, bounds((0, 5)), TieringBudget())
    with pytest.raises(NotForKeyedTables) as caught:
        devices.committer.look(FLOWS, moving_shape(pin))
    assert caught.value.message == (
        f"lake.net.flows: to go on with another shape {_KEYED_ONLY}; read it all again, with `thermocline rebuild "
        f"lake.net.flows`."
    )


def test_rows_of_another_writer_cannot_be_let_stay(devices: Devices) -> None:
    table = devices.table()
    table.append(pa.Table.from_pylist([{"id": 1}], table.schema().as_arrow()))
    head = devices.table().metadata.current_snapshot_id
    assert head is not None
    with pytest.raises(NotForKeyedTables) as caught:
        devices.committer.look(FLOWS, accepting(FLOWS, [head], {}))
    assert caught.value.message == (
        f"lake.net.flows: to let rows of another writer stay {_KEYED_ONLY}; roll the table back to the snapshot before it, and "
        f"write such rows to the topic."
    )


def test_spark_reads_a_keyed_table_through_a_server(devices: Devices) -> None:
    with pytest.raises(NotForKeyedTables) as caught:
        refuse_keyed(cold_cut(devices.store.pin(FLOWS)))
    assert caught.value.message == (
        f"lake.net.flows: a cut that Spark reads by itself {_KEYED_ONLY}; read it through a server: tc.connect(spark, "
        f"server=…), or the option server."
    )


@pytest.mark.parametrize(
    ("columns", "key", "sentence"),
    [
        (
            (Column(0, "id", pa.float64()),),
            ("id",),
            "column id of the key is double, whose NaN and zeros are not equal alike everywhere; use a decimal or a text.",
        ),
        (
            (Column(0, "id", pa.list_(pa.int64())),),
            ("id",),
            "column id of the key is list<long>, and only plain values can be a key.",
        ),
        (
            (Column(0, "id", pa.int64()),),
            ("kafka_offset",),
            "column kafka_offset of the key says where a record is, and not which row it changes.",
        ),
    ],
)
def test_columns_that_are_no_key_make_no_table(
    tmp_path: Path, columns: tuple[Column, ...], key: tuple[str, ...], sentence: str
) -> None:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    catalogs = {"lake": {"type": "sql", "uri": uri, "warehouse": tmp_path.as_uri()}}
    with pytest.raises(BadBinding) as caught:
        create_table(catalogs, NewTable(FLOWS, columns, KEYED, key=key), watermark(0))
    assert caught.value.message == f"lake.net.flows: {sentence}"
    policy = Binding("flows", on_error="null", key=KEYED.key, upsert=KEYED.upsert)
    with pytest.raises(BadBinding, match="error policy null is not for a keyed table"):
        create_table(
            catalogs, NewTable(FLOWS, KEYED_COLUMNS, policy, key=("id",)), watermark(0)
        )
