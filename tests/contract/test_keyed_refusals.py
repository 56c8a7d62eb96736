"""What has no meaning for a keyed table is refused by name, with the way that there is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from connectors.iceberg.create import NewTable, create_table
from connectors.iceberg.repair_commit import IcebergRepairCommitter
from connectors.iceberg.single_keys import single_keys
from connectors.iceberg.store import IcebergStore
from connectors.repairs import accepting, covering, moving_shape
from connectors.spark.lake.opened import refuse_keyed
from planner.covering import PartitionRows, RowsOfHead
from planner.errors import (
    BadBinding,
    ForeignCommit,
    NotForKeyedTables,
    ShapeMismatch,
    WatermarkMissing,
)
from planner.schema import TIMESTAMPTZ, Column
from planner.seam.binding import Binding
from planner.seam.cut import cold_cut
from planner.seam.watermark import format_watermark
from planner.tiering.plan import TieringBudget, plan_tiering
from tests.fixtures.cold import replace_files
from tests.harness.builders import FLOWS, bounds, watermark
from tests.harness.keyed_log import KEYED, KEYED_COLUMNS
from tests.harness.published import publish

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

    @property
    def head(self) -> int:
        head = self.table().metadata.current_snapshot_id
        assert head is not None
        return head

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
    with pytest.raises(NotForKeyedTables) as caught:
        devices.committer.look(FLOWS, accepting(FLOWS, [devices.head], {}))
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


def rewrite(devices: Devices, *rows: tuple[int, int]) -> None:
    """Replace all files by one of (offset, id), as another writer's copy-on-write UPDATE does."""
    table = devices.table()
    files = [task.file for task in table.scan().plan_files()]
    replace_files(table, Operation.OVERWRITE, files, as_rows(table, rows))


def as_rows(table: Table, rows: Iterable[tuple[int, int]]) -> pa.Table:
    named = [
        {"kafka_partition": 0, "kafka_offset": offset, "id": key, "state": "open"}
        for offset, key in rows
    ]
    return pa.Table.from_pylist(named, table.schema().as_arrow())


@pytest.fixture
def tiered(devices: Devices) -> Devices:
    """Three rows that were tiered."""
    table = devices.table()
    mark = watermark(3, key=(4,), prev_snapshot_id=table.metadata.current_snapshot_id)
    publish(table, as_rows(table, [(0, 1), (1, 2), (2, 3)]), format_watermark(mark))
    return devices


def test_a_key_that_another_writer_gave_two_rows_stops_all_who_read_the_table(
    tiered: Devices,
) -> None:
    rewrite(tiered, (0, 1), (1, 2), (2, 5))
    pin = tiered.store.pin(FLOWS)
    rewrite(tiered, (0, 1), (1, 2), (2, 2))
    for read in (
        lambda: tiered.store.pin(FLOWS),
        lambda: tiered.committer.look(FLOWS, moving_shape(pin)),
    ):
        with pytest.raises(ForeignCommit, match="and a key has two rows since; roll the table"):
            read()
    rewrite(tiered, (0, 1), (1, 2))
    assert tiered.store.pin(FLOWS).watermark == pin.watermark


def test_what_a_keyed_table_covers_cannot_be_said(tiered: Devices) -> None:
    """Where expiry hid what other writers did, which rows are the newest of their keys is not known."""
    rewrite(tiered, (0, 1), (1, 2))
    hidden = tiered.head
    rewrite(tiered, (0, 1))
    tiered.table().maintenance.expire_snapshots().by_id(hidden).commit()
    for entry in tiered.table().metadata.metadata_log:
        Path(entry.metadata_file.removeprefix("file://")).unlink(missing_ok=True)
    with pytest.raises(WatermarkMissing, match="or create the table again from its topic"):
        tiered.store.pin(FLOWS)
    rows = RowsOfHead(tiered.head, (PartitionRows(0, 0, 0, 1, 1),), 0)
    with pytest.raises(NotForKeyedTables) as caught:
        tiered.committer.look(FLOWS, covering(FLOWS, rows, {}))
    assert caught.value.message == (
        f"lake.net.flows: to say what it covers {_KEYED_ONLY}; create it again from its topic."
    )


def test_keys_are_looked_for_in_their_columns_whatever_these_are_called(
    tiered: Devices,
) -> None:
    rewrite(tiered, (0, 1), (1, 2), (2, 5))
    with tiered.table().update_schema() as update:
        update.rename_column("id", "device")
        update.rename_column("state", "id")
    assert tiered.store.pin(FLOWS).watermark is not None


def test_keys_that_cannot_be_read_are_not_taken_for_different_ones(tiered: Devices) -> None:
    rewrite(tiered, (0, 1), (1, 2), (2, 5))
    [task] = tiered.table().scan().plan_files()
    Path(task.file.file_path.removeprefix("file://")).write_bytes(b"")
    with pytest.raises(ForeignCommit, match="whether a key has two rows since is not known;"):
        tiered.store.pin(FLOWS)


VALUES = {
    "a": (pa.int32(), 1, 2),
    "b": (pa.string(), "a", "A"),
    "c": (pa.binary(), b"a", b"a\0"),
    "d": (pa.binary(2), b"ab", b"ba"),
    "e": (pa.decimal128(38, 9), Decimal(1), Decimal("1.000000001")),
    "f": (pa.timestamp("us"), datetime(2026, 1, 1), datetime(2026, 1, 1, 0, 0, 0, 1)),
    "g": (TIMESTAMPTZ, datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)),
    "h": (pa.date32(), date(2026, 1, 1), date(2026, 1, 2)),
    "i": (pa.bool_(), True, False),
    "j": (pa.uuid(), UUID(int=1).bytes, UUID(int=1 << 127).bytes),
}


@pytest.mark.parametrize("name", VALUES)
def test_keys_of_each_type_are_told_apart(tmp_path: Path, name: str) -> None:
    """By all of their columns."""
    uri = f"sqlite:///{tmp_path}/catalog.db"
    catalogs = {"lake": {"type": "sql", "uri": uri, "warehouse": tmp_path.as_uri()}}
    columns = tuple(Column(0, each, kind) for each, (kind, _, _) in VALUES.items())
    create_table(catalogs, NewTable(FLOWS, columns, KEYED, key=tuple(VALUES)), watermark(0))
    with closing(load_catalog("lake", **catalogs["lake"])) as catalog:
        table = catalog.load_table((*FLOWS.namespace, FLOWS.name))
        key = tuple(table.schema().find_field(each).field_id for each in VALUES)
        one = {each: first for each, (_, first, _) in VALUES.items()}
        places = {"kafka_partition": 0, "kafka_offset": 0}
        for other, expected in ((VALUES[name][2], True), (VALUES[name][1], False)):
            rows = [{**places, **one}, {**places, **one, name: other}]
            table.append(pa.Table.from_pylist(rows, table.schema().as_arrow()))
            head = table.metadata.current_snapshot_id
            assert head is not None
            assert single_keys(table, head, key) is expected


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
