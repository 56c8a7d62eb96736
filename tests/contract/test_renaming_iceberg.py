"""Renames, mapping edits and cuts as a real Iceberg table has them: schema ids that come back, metadata that ages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from connectors.iceberg.create import NAME_MAPPING
from connectors.iceberg.store import IcebergStore
from planner.errors import CutExpired, SnapshotExpired
from planner.offsets import OffsetVector
from planner.schema import Column
from planner.seam.binding import Binding
from planner.seam.watermark import Watermark
from proxy.session import Deadline
from tests.doubles.log import MemoryLog, MemoryRecord
from tests.fixtures.cold import IcebergCold
from tests.harness.builders import FLOWS
from tests.harness.serving import SESSION, forget, serve

Texts = list[str | None]


class Table:
    def __init__(self, iceberg: IcebergCold) -> None:
        self.iceberg = iceberg
        self.log = MemoryLog()
        topic_id = self.log.create_topic("flows")
        binding = Binding("flows")
        begin = OffsetVector(((0, 0),))
        first = Watermark("memory", "flows", topic_id, begin, binding.shape, "create")
        self.iceberg.create(columns=[Column(0, "s", pa.string())], binding=binding, first=first)
        self.start(iceberg.store)

    def start(self, store: IcebergStore) -> None:
        self.board, self.tails, self.statements = serve(store, self.log)

    def stop(self) -> None:
        forget(self.board, self.tails)

    def send(self, text: str) -> None:
        self.log.append("flows", 0, MemoryRecord(text.encode()))

    def ask(self, sql: str, cut: str | None = None) -> Texts:
        self.board.refresh(FLOWS)
        session = SESSION if cut is None else replace(SESSION, cut=cut)
        ticket = self.statements.plan(session, sql, None, Deadline(60)).ticket
        stream = self.statements.open(session, ticket, Deadline(60))
        try:
            return pa.Table.from_batches(list(stream), stream.schema).column(0).to_pylist()
        finally:
            stream.close()

    def texts(self, cut: str | None = None) -> Texts:
        return self.ask("SELECT s FROM flows ORDER BY kafka_offset", cut)

    def cut(self) -> str:
        (text,) = self.ask("SELECT thermocline_cut() FROM flows GROUP BY 1")
        return str(text)

    def schema_id(self) -> int:
        return self.iceberg.table().metadata.current_schema_id

    def set_property(self, key: str, text: str) -> None:
        with self.iceberg.table().transaction() as transaction:
            transaction.set_properties({key: text})

    def also_call(self, name: str) -> None:
        fields = json.loads(self.iceberg.table().properties[NAME_MAPPING])
        (value,) = (field for field in fields if "s" in field["names"])
        value["names"].append(name)
        self.set_property(NAME_MAPPING, json.dumps(fields))


@pytest.fixture
def table(iceberg: IcebergCold) -> Iterator[Table]:
    value = Table(iceberg)
    yield value
    value.stop()


def test_a_rename_that_is_taken_back_decodes_the_tail_again(table: Table) -> None:
    table.send('{"s": "before"}')
    assert table.texts() == ["before"]
    first = table.schema_id()
    table.iceberg.rename_column("s", "s2")
    table.send('{"s2": "renamed"}')
    assert table.ask("SELECT s2 FROM flows ORDER BY kafka_offset") == ["before", "renamed"]
    table.iceberg.rename_column("s2", "s")
    assert table.schema_id() == first
    table.send('{"s2": "still renamed"}')
    assert table.texts() == ["before", "renamed", "still renamed"]


def test_an_edited_mapping_decodes_the_tail_again_and_its_cuts_as_before(
    table: Table,
) -> None:
    """Also where the metadata's own log has forgotten the file of then; without that file, by name."""
    table.set_property("write.metadata.previous-versions-max", "1")
    table.set_property("write.metadata.delete-after-commit.enabled", "false")
    table.send('{"t": "under another name"}')
    cut = table.cut()
    file = table.board.get(FLOWS).metadata_location.removeprefix("file://")
    assert table.texts() == [None]
    first = table.schema_id()
    table.also_call("t")
    assert table.schema_id() == first
    assert table.texts() == ["under another name"]
    assert table.texts(cut) == [None]
    for number in range(3):
        table.set_property("comment", str(number))
    log = table.iceberg.table().metadata.metadata_log
    assert file not in [entry.metadata_file.removeprefix("file://") for entry in log]
    table.stop()
    other = IcebergStore(table.iceberg.properties)
    try:
        table.start(other)
        assert table.texts(cut) == [None]
        table.stop()
        Path(file).unlink()
        table.start(other)
        with pytest.raises(CutExpired, match="the metadata file of then is gone"):
            table.texts(cut)
        assert table.texts() == ["under another name"]
    finally:
        other.close()


@pytest.mark.parametrize(
    "name",
    ["../../../etc/passwd", "x/y.metadata.json", "passwd", "..", "", "a\\b.metadata.json"],
)
def test_a_forged_name_of_a_file_reads_nothing_beside_the_tables_metadata(
    table: Table, name: str
) -> None:
    """The text of a cut is not signed."""
    pin = table.board.get(FLOWS)
    table.also_call("t")
    with pytest.raises(SnapshotExpired, match="not one of this table's any more"):
        table.iceberg.store.pin_at(replace(pin.reference, metadata_file=name))
