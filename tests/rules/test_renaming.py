"""What a tail, a publish and a cut stand on while columns are renamed and the name mapping is edited (T14, T21)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from planner.errors import CutExpired
from tests.doubles.log import MemoryRecord
from tests.harness.lake import FLOWS, Lake
from tests.harness.renaming import Columns, also_called, not_called, renamed

#: Partition 1 of the lake has one record; what these tests send follows it.
HOSTS = "SELECT host FROM flows WHERE kafka_partition = 1 AND kafka_offset >= 1 ORDER BY kafka_offset"


def evolve(lake_in_memory: Lake, *changes: Callable[[Columns], Columns]) -> None:
    for change in changes:
        lake_in_memory.store.set_columns(FLOWS, change)
        lake_in_memory.note(FLOWS)
    lake_in_memory.board.refresh(FLOWS)


def send(lake_in_memory: Lake, text: str) -> None:
    lake_in_memory.log.append("flows", 1, MemoryRecord(text.encode()))


def hosts(lake_in_memory: Lake, **sql: str) -> list[str | None]:
    return lake_in_memory.ask(HOSTS, **sql)["host"].to_pylist()


def tier(lake_in_memory: Lake) -> None:
    target, plan = lake_in_memory.plan_tiering(FLOWS, 1000)
    target.publish(target.stage(plan))
    lake_in_memory.board.refresh(FLOWS)


def schema_id(lake_in_memory: Lake) -> int:
    return lake_in_memory.store.facts(FLOWS).schema.schema_id


def test_a_rename_that_is_taken_back_decodes_the_tail_again(lake_in_memory: Lake) -> None:
    """Iceberg gives the table its old schema id back; the name it had in between stays in the mapping."""
    send(lake_in_memory, '{"host": "before"}')
    assert hosts(lake_in_memory) == ["before"]
    first = schema_id(lake_in_memory)
    evolve(lake_in_memory, renamed("host", "host_2"))
    assert schema_id(lake_in_memory) != first
    send(lake_in_memory, '{"host_2": "renamed"}')
    evolve(lake_in_memory, renamed("host_2", "host"))
    assert schema_id(lake_in_memory) == first
    send(lake_in_memory, '{"host_2": "still renamed"}')
    hot = hosts(lake_in_memory)
    assert hot == ["before", "renamed", "still renamed"]
    tier(lake_in_memory)
    assert hosts(lake_in_memory) == hot


def test_an_edited_name_mapping_decodes_the_tail_again(lake_in_memory: Lake) -> None:
    send(lake_in_memory, '{"t": "under another name"}')
    assert hosts(lake_in_memory) == [None]
    first = schema_id(lake_in_memory)
    evolve(lake_in_memory, also_called("host", "t"))
    assert schema_id(lake_in_memory) == first
    assert hosts(lake_in_memory) == ["under another name"]


def cut_of(lake_in_memory: Lake) -> str:
    (text,) = lake_in_memory.ask("SELECT thermocline_cut() AS cut FROM flows GROUP BY 1")[
        "cut"
    ].to_pylist()
    return str(text)


def test_a_cut_is_read_with_the_names_of_then(lake_in_memory: Lake) -> None:
    """Here and on another server, in whatever order names were added, taken back and published with."""
    send(lake_in_memory, '{"t": "under another name"}')
    before = cut_of(lake_in_memory)
    evolve(lake_in_memory, also_called("host", "t"))
    named = cut_of(lake_in_memory)
    evolve(
        lake_in_memory,
        not_called("host", "t"),
        renamed("host", "host_2"),
        renamed("host_2", "host"),
    )
    send(lake_in_memory, '{"host_2": "later"}')
    for tiered in (False, True):
        if tiered:
            tier(lake_in_memory)
        for restarted in (False, True):
            if restarted:
                lake_in_memory.stop_server()
                lake_in_memory.start_server()
            assert hosts(lake_in_memory, cut=before) == [None]
            assert hosts(lake_in_memory, cut=named) == ["under another name"]
            assert hosts(lake_in_memory) == [None, "later"]


def test_a_cut_whose_snapshot_is_gone_is_read_from_what_was_tiered_alike(
    lake_in_memory: Lake,
) -> None:
    send(lake_in_memory, '{"host": "hot"}')
    cut = cut_of(lake_in_memory)
    tier(lake_in_memory)
    lake_in_memory.store.expire(FLOWS, set())
    lake_in_memory.board.refresh(FLOWS)
    assert hosts(lake_in_memory, cut=cut) == ["hot"]
    # Names that were added after all of it was tiered leave the rows alone.
    evolve(lake_in_memory, also_called("host", "t"))
    assert hosts(lake_in_memory, cut=cut) == ["hot"]


def test_a_cut_is_not_answered_with_rows_that_were_tiered_under_other_names(
    lake_in_memory: Lake,
) -> None:
    """Not even where names, schema id and policies are those of the cut again."""
    send(lake_in_memory, '{"t": "under another name"}')
    cut = cut_of(lake_in_memory)
    assert hosts(lake_in_memory, cut=cut) == [None]
    evolve(lake_in_memory, also_called("host", "t"))
    tier(lake_in_memory)
    lake_in_memory.store.expire(FLOWS, set())
    lake_in_memory.board.refresh(FLOWS)
    assert hosts(lake_in_memory) == ["under another name"]
    refused(lake_in_memory, cut)
    evolve(lake_in_memory, not_called("host", "t"))
    refused(lake_in_memory, cut)
    send(lake_in_memory, '{"t": "NULL again"}')
    tier(lake_in_memory)
    assert hosts(lake_in_memory) == ["under another name", None]
    refused(lake_in_memory, cut)


def refused(lake_in_memory: Lake, cut: str) -> None:
    with pytest.raises(CutExpired, match="its policies or its topic have changed since"):
        hosts(lake_in_memory, cut=cut)
