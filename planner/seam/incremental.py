"""Following a statement: which rows of its tables are new since a position, and what the next position is.

A position is one offset vector per bound table: the end of a cut. A statement *after* a position reads, of each bound
table, the offsets from there to the end of its own cut: tiered ones from cold, the rest from the tail. So consecutive
rounds have every record once, wherever the watermark went, from any server. Servers keep no state of a follower.

The client keeps the text of a position, which is opaque. It only narrows what its statement may read anyway, so it is
checked for form, not signed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from planner.errors import (
    BadParameter,
    LogTruncated,
    TopicRecreated,
    UnsupportedStatement,
    keep_history,
)
from planner.names import TableName
from planner.offsets import OffsetVector
from planner.seam.cut import Increment, TableCut
from planner.seam.time_travel import MALFORMED, pack, table_of, unpack, vector_of
from planner.seam.watermark import as_str

POSITION_VERSION = 1
_PREFIX = "p:"

Start = Literal["now", "beginning"]


@dataclass(frozen=True, slots=True)
class TablePosition:
    """The first new offset per partition of one topic. A partition absent from it was added later: 0."""

    table: TableName
    topic_id: str
    next: OffsetVector


@dataclass(frozen=True, slots=True)
class After:
    """Where a follower stands: at a start, or at a position. ``since_us`` is UTC, microseconds since 1970.

    ``start`` is None exactly when ``tables`` is the position.
    """

    start: Start | None = None
    since_us: int | None = None
    tables: tuple[TablePosition, ...] = ()


def parse_after(text: str) -> After:
    """Read ``now``, ``beginning``, ``since:<microseconds>`` or the text of a position.

    Raises:
        BadParameter: it is another text, or of a newer version.
    """
    if text in ("now", "beginning"):
        return After(start=text)  # type: ignore[arg-type]
    kind, _, value = text.partition(":")
    if kind == "since" and value.isascii() and value.isdigit() and len(value) < 19:
        return After(start="beginning", since_us=int(value))
    try:
        return _position(unpack(_PREFIX, text))
    except MALFORMED as error:
        raise BadParameter(
            "the position is not one this server gave out; start again from now, beginning or a time."
        ) from error


def format_position(cuts: Iterable[TableCut]) -> str:
    document = {
        "v": POSITION_VERSION,
        "tables": [
            {
                "table": [cut.table.catalog, list(cut.table.namespace), cut.table.name],
                "topic": cut.hot.topic_id,
                "next": cut.end.items,
            }
            for cut in cuts
            if cut.hot is not None
        ],
    }
    return pack(_PREFIX, document)


def narrow(cut: TableCut, after: After) -> TableCut:
    """Return a cut of the new offsets only; a table without a topic is read whole.

    Raises:
        BadParameter: the position does not name this table.
        NotForKeyedTables: its rows are not its records.
        TopicRecreated: its offsets are of another topic.
        LogTruncated: it lies above the cut's end: records of earlier answers are gone.
    """
    if cut.hot is None:
        return cut
    if cut.binding is not None and cut.binding.upsert is not None:
        raise keep_history(cut.table, "following")
    if after.start == "now":
        return replace(cut, increment=Increment(cut.end))
    if after.start == "beginning":
        return replace(cut, increment=Increment(OffsetVector(), after.since_us))
    position = next((each for each in after.tables if each.table == cut.table), None)
    if position is None:
        raise BadParameter(
            f"{cut.table}: the position is of a statement without this table; start again from now, beginning or a "
            f"time.",
            table=str(cut.table),
        )
    if position.topic_id != cut.hot.topic_id:
        raise TopicRecreated(
            f"{cut.table}: the position is of a topic with id {position.topic_id}, the table is bound to one with id "
            f"{cut.hot.topic_id}; their offsets have nothing to do with each other. Start again.",
            table=str(cut.table),
            expected=position.topic_id,
            found=cut.hot.topic_id,
        )
    ends = cut.end.as_dict()
    for partition, next_offset in position.next:
        if next_offset > ends.get(partition, 0):
            raise LogTruncated(
                f"{cut.table}: rows of {cut.hot.topic}/{partition} up to offset {next_offset} were answered before, and the "
                f"log ends at {ends.get(partition, 0)} now; it lost records.",
                table=str(cut.table),
                topic=cut.hot.topic,
                partition=partition,
                seen=next_offset,
                log_end=ends.get(partition, 0),
            )
    return replace(cut, increment=Increment(position.next))


def check_followed(bound: Collection[TableName], sides: Collection[str]) -> None:
    """Refuse statements that cannot be followed. ``sides`` are names of one side of a table (``flows$cold``).

    Raises:
        UnsupportedStatement: a side is named, or no table is bound to a topic.
    """
    if sides:
        raise UnsupportedStatement(
            f"{min(sides)} cannot be followed: it is one side of a table, and rows change sides. Follow the table."
        )
    if not bound:
        raise UnsupportedStatement(
            "there is nothing to follow: the statement reads no table that is bound to a topic."
        )


def _position(document: dict[str, Any]) -> After:
    if document["v"] != POSITION_VERSION:
        raise ValueError("another version")
    return After(tables=tuple(map(_table_position, document["tables"])))


def _table_position(item: dict[str, Any]) -> TablePosition:
    return TablePosition(
        table_of(item["table"]), as_str(item["topic"]), vector_of(item["next"])
    )
