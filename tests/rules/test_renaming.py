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


def evolve(lake: Lake, *changes: Callable[[Columns], Columns]) -> None:
    for change in changes:
        lake.store.set_columns(FLOWS, change)
        lake.note(FLOWS)
    lake.board.refresh(FLOWS)


def send(lake: Lake, text: str) -> None:
    lake.log.append("flows", 1, MemoryRecord(text.encode()))


def hosts(lake: Lake, **sql: str) -> list[str | None]:
    return lake.ask(HOSTS, **sql)["host"].to_pylist()


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


def cut_of(lake: Lake) -> str:
    (text,) = lake.ask("SELECT thermocline_cut() AS cut FROM flows GROUP BY 1")[
        "cut"
    ].to_pylist()
    return str(text)


def test_a_cut_is_read_with_the_names_of_then(lake: Lake) -> None:
    """Here and on another server, in whatever order names were added, taken back and published with."""
    send(lake, '{"t": "under another name"}')
    before = cut_of(lake)
    evolve(lake, also_called("host", "t"))
    named = cut_of(lake)
    evolve(lake, not_called("host", "t"), renamed("host", "host_2"), renamed("host_2", "host"))
    send(lake, '{"host_2": "later"}')
    for tiered in (False, True):
        if tiered:
            tier(lake)
        for restarted in (False, True):
            if restarted:
                lake.stop_server()
                lake.start_server()
            assert hosts(lake, cut=before) == [None]
            assert hosts(lake, cut=named) == ["under another name"]
            assert hosts(lake) == [None, "later"]


def test_a_cut_whose_snapshot_is_gone_is_read_from_what_was_tiered_alike(lake: Lake) -> None:
    send(lake, '{"host": "hot"}')
    cut = cut_of(lake)
    tier(lake)
    lake.store.expire(FLOWS, set())
    lake.board.refresh(FLOWS)
    assert hosts(lake, cut=cut) == ["hot"]
    # Names that were added after all of it was tiered leave the rows alone.
    evolve(lake, also_called("host", "t"))
    assert hosts(lake, cut=cut) == ["hot"]


def test_a_cut_is_not_answered_with_rows_that_were_tiered_under_other_names(lake: Lake) -> None:
    """Not even where names, schema id and policies are those of the cut again."""
    send(lake, '{"t": "under another name"}')
    cut = cut_of(lake)
    assert hosts(lake, cut=cut) == [None]
    evolve(lake, also_called("host", "t"))
    tier(lake)
    lake.store.expire(FLOWS, set())
    lake.board.refresh(FLOWS)
    assert hosts(lake) == ["under another name"]
    refused(lake, cut)
    evolve(lake, not_called("host", "t"))
    refused(lake, cut)
    send(lake, '{"t": "NULL again"}')
    tier(lake)
    assert hosts(lake) == ["under another name", None]
    refused(lake, cut)


def refused(lake: Lake, cut: str) -> None:
    with pytest.raises(CutExpired, match="its policies or its topic have changed since"):
        hosts(lake, cut=cut)
