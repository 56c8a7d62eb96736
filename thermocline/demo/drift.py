"""How events change while the demo runs, and how their tables follow: a step at each look of the demo."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from thermocline.demo.events import JsonEvents
from thermocline.demo.observer import Observation
from thermocline.demo.world import World

if TYPE_CHECKING:
    from thermocline.demo.avro import AvroEvents

#: Newer agents begin to send a field without a column; later its owner adds the column. Of Avro: a schema each.
UPGRADE_AFTER_S, COLUMN_AFTER_S, SCHEMA_DELAY_S = 15.0, 12.0, 3.0


def json_drift(world: World, demo: Observation, events: Sequence[JsonEvents]) -> Iterator[None]:
    """Fields that appear: ignored while no column asks for them, then added as columns while all runs.

    Not before the first publish: rows tiered before a column was added stay NULL in it, which is to be seen.
    """
    yield from _until(lambda: demo.elapsed_s >= UPGRADE_AFTER_S)
    for table, each in zip(demo.tables, events, strict=True):
        each.upgraded = True
        table.later = f"new field {table.feed.later}: ignored"
    column_s = UPGRADE_AFTER_S + COLUMN_AFTER_S
    yield from _until(lambda: demo.elapsed_s >= column_s and demo.all_published)
    for table in demo.tables:
        world.add_column(table.feed)
    yield from _later_is_a_column(demo)


def avro_drift(world: World, demo: Observation, events: Sequence[AvroEvents]) -> Iterator[None]:
    """Newer schemas, registered by the producers that use them: a number gets wider, then a field comes.

    The tierer has the tables follow. Not before the first publish, as with JSON.
    """
    yield from _until(lambda: demo.elapsed_s >= UPGRADE_AFTER_S)
    for table, each in zip(demo.tables, events, strict=True):
        each.version += 1
        table.later = f"schema 2: {table.feed.wider} is sent as a long"
    yield from _until(
        lambda: all(
            world.columns(table.feed)[table.feed.wider] == "long" for table in demo.tables
        )
    )
    for table in demo.tables:
        table.later = f"{table.feed.wider}: a long now"
    end_s = demo.elapsed_s + SCHEMA_DELAY_S
    yield from _until(lambda: demo.elapsed_s >= end_s and demo.all_published)
    for table, each in zip(demo.tables, events, strict=True):
        each.version += 1
        table.later = f"schema 3: new field {table.feed.later}"
    yield from _until(
        lambda: all(table.feed.later in world.columns(table.feed) for table in demo.tables)
    )
    yield from _later_is_a_column(demo)


def _later_is_a_column(demo: Observation) -> Iterator[None]:
    """From now on the later field is asked for; steps do not end."""
    # The server looks at the catalog once a second.
    end_s = demo.elapsed_s + SCHEMA_DELAY_S
    yield from _until(lambda: demo.elapsed_s >= end_s)
    for table in demo.tables:
        table.later, table.later_is_column = f"{table.feed.later}: a column now", True
    yield from _until(lambda: False)


def _until(holds: Callable[[], bool]) -> Iterator[None]:
    while not holds():
        yield
