"""What a tail, a publish and a cut stand on while columns are renamed and the name mapping is edited (T14, T21)."""

from __future__ import annotations

from collections.abc import Callable

from connectors.memory.log import Record
from tests.properties.lake import FLOWS, Lake
from tests.properties.renaming import Columns, also_called, renamed

#: Partition 1 of the lake has one record; what these tests send follows it.
HOSTS = "SELECT host FROM flows WHERE kafka_partition = 1 AND kafka_offset >= 1 ORDER BY kafka_offset"


def evolve(lake: Lake, *changes: Callable[[Columns], Columns]) -> None:
    for change in changes:
        lake.store.set_columns(FLOWS, change)
        lake.note(FLOWS)
    lake.board.refresh(FLOWS)


def send(lake: Lake, text: str) -> None:
    lake.log.append("flows", 1, Record(text.encode()))


def hosts(lake: Lake, **asked: str) -> list[str | None]:
    return lake.ask(HOSTS, **asked)["host"].to_pylist()


def tier(lake: Lake) -> None:
    target, plan = lake.plan_tiering(FLOWS, 1000)
    target.publish(target.stage(plan))
    lake.board.refresh(FLOWS)


def schema_id(lake: Lake) -> int:
    return lake.store.facts(FLOWS).schema.schema_id


def test_a_rename_that_is_taken_back_decodes_the_tail_again(lake: Lake) -> None:
    """Iceberg gives the table its old schema id back; the name it had in between stays in the mapping."""
    send(lake, '{"host": "before"}')
    assert hosts(lake) == ["before"]
    first = schema_id(lake)
    evolve(lake, renamed("host", "host_2"))
    assert schema_id(lake) != first
    send(lake, '{"host_2": "renamed"}')
    evolve(lake, renamed("host_2", "host"))
    assert schema_id(lake) == first
    send(lake, '{"host_2": "still renamed"}')
    hot = hosts(lake)
    assert hot == ["before", "renamed", "still renamed"]
    tier(lake)
    assert hosts(lake) == hot


def test_an_edited_name_mapping_decodes_the_tail_again(lake: Lake) -> None:
    send(lake, '{"t": "under another name"}')
    assert hosts(lake) == [None]
    first = schema_id(lake)
    evolve(lake, also_called("host", "t"))
    assert schema_id(lake) == first
    assert hosts(lake) == ["under another name"]
