"""The stream of a table: its first batches are the bounded answer, and its checkpoint is a cut.

Spark asks one reader, in a process of its own, where the log ends and which shares a batch has; tasks read them. A query
that goes on is asked for the shares of its last batch first: there the reader learns where it stands.
"""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from connectors.spark.errors import packing
from connectors.spark.lake.opened import OpenedLake
from connectors.spark.lake.tasks import TaskReader, shares
from connectors.spark.options import LakeSettings
from connectors.spark.shipping import SentReader
from planner.errors import BadParameter
from planner.names import Side, TableName
from planner.offsets import OffsetVector
from planner.reading.plan import plan_rows
from planner.schema import TableSchema
from planner.seam.cut import TableCut
from planner.seam.incremental import parse_after
from planner.seam.spark_stream import (
    StreamOffset,
    StreamStart,
    batch,
    batch_since,
    check_reached,
    next_end,
    parse_offset,
)
from planner.seam.time_travel import CUT_PREFIX, parse_cut

#: Offsets of one batch at most, where the option does not say.
MAX_OFFSETS = 2_000_000
_SPAN = re.compile(r"(\d{1,9})(ms|s|m|h|d)", re.ASCII)
_SPAN_US = {"ms": 1e3, "s": 1e6, "m": 6e7, "h": 3.6e9, "d": 8.64e10}
_SINCE = "since:"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """``start``: beginning, now, since:<time>, or the text of a cut or a position. ``max_offsets`` of one batch."""

    start: str = "beginning"
    max_offsets: int = MAX_OFFSETS

    @classmethod
    def of(cls, options: Mapping[str, str]) -> StreamOptions:
        """Read the options of a ``load()``.

        Raises:
            RuntimeError: one is malformed; with a BadParameter in its text.
        """
        start = (options.get("startingPosition") or cls().start).strip()
        text = options.get("maxOffsetsPerTrigger")
        with packing():
            if text is not None and not (text.isascii() and text.isdigit() and int(text) > 0):
                raise BadParameter(
                    f"option maxOffsetsPerTrigger takes a number of records above 0, not {text[:80]!r}.",
                    option="maxOffsetsPerTrigger",
                )
            if start.startswith(_SINCE):
                start = f"{_SINCE}{since_us(start.removeprefix(_SINCE), time.time())}"
        return cls(start, MAX_OFFSETS if text is None else int(text))


def since_us(text: str, now_s: float) -> int:
    """Return microseconds since 1970 of a time, or of a span before ``now_s`` (30s, 10m, 2h, 1d).

    Raises:
        BadParameter: it is neither.
    """
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    span = _SPAN.fullmatch(text)
    if span is not None:
        return max(0, int(now_s * 1e6 - int(span[1]) * _SPAN_US[span[2]]))
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise BadParameter(
            f"{text[:80]!r} is no time; write since:10m, or since:2026-11-24T08:00:00Z.",
            option="startingPosition",
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return (moment - _EPOCH) // dt.timedelta(microseconds=1)


class LakeStream(SentReader, DataSourceStreamReader):
    """One query over one table. Made wherever Spark likes: it opens nothing before it is asked something."""

    def __init__(
        self,
        table: TableName,
        columns: TableSchema,
        options: StreamOptions,
        settings: LakeSettings,
    ) -> None:
        """``columns`` are those of the query's start."""
        self._table = table
        self._columns = columns
        self._options = options
        self._settings = settings
        self._tasks = TaskReader(columns, settings.clusters, settings.secrets)
        self._opened: OpenedLake | None = None
        #: Where the batch that Spark plans next begins, as far as it is known.
        self._at: OffsetVector | None = None
        #: Below these no partition has a row: a topic may begin at a high offset, and nothing comes before it.
        self._first: OffsetVector | None = None

    @packing()
    def initialOffset(self) -> dict[str, Any]:
        return self._start(self._cut()).document

    @packing()
    def latestOffset(self) -> dict[str, Any]:
        return self._latest().document

    @packing()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return self._partitions(parse_offset(start), parse_offset(end))

    def stop(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def _cut(self) -> TableCut:
        if self._opened is None:
            self._opened = OpenedLake.of(self._settings)
        cut = self._opened.cut(self._table)
        if cut.hot is None:
            raise BadParameter(
                f"{self._table}: it is not bound to a topic, so nothing new comes to it; read it as a batch.",
                table=str(self._table),
            )
        return cut

    def _start(self, cut: TableCut) -> StreamOffset | StreamStart:
        topic_id, text = _topic_id(cut), self._options.start
        if text == "beginning":
            return StreamOffset(topic_id, OffsetVector())
        if text == "now":
            return StreamStart(topic_id)
        if text.startswith(_SINCE):
            return StreamStart(topic_id, int(text.removeprefix(_SINCE)))
        if text.startswith(CUT_PREFIX):
            entry = parse_cut(text).of(self._table)
            if entry.topic_id is None or entry.end is None:
                raise BadParameter(
                    f"{self._table}: the cut is from before it was bound to a topic; start from beginning, now or a time.",
                    table=str(self._table),
                )
            return StreamOffset(entry.topic_id, entry.end)
        if not text.startswith("p:"):
            raise BadParameter(
                f"{text[:80]!r} is no startingPosition; give beginning, now, since:<time>, the text of a cut or a position.",
                option="startingPosition",
            )
        positions = [each for each in parse_after(text).tables if each.table == self._table]
        if not positions:
            raise BadParameter(
                f"{self._table}: the position is of a statement without this table; start from beginning, now or a time.",
                table=str(self._table),
            )
        return StreamOffset(positions[0].topic_id, positions[0].next)

    def _latest(self) -> StreamOffset:
        cut = self._cut()
        topic_id = _topic_id(cut)
        if self._at is None:
            start = self._start(cut)
            if isinstance(start, StreamOffset):
                check_reached(cut, start)
                self._at = start.next
            elif start.since_us is None:
                # What the empty first batch writes down.
                return StreamOffset(topic_id, cut.end)
            else:
                firsts = self._firsts(cut, start.since_us).as_dict()
                self._at = OffsetVector.of((cut.end.as_dict() | firsts).items())
        check_reached(cut, StreamOffset(topic_id, self._at))
        if self._first is None:
            assert self._opened is not None  # noqa: S101 - by the cut
            lowest = self._opened.store.lowest_offset(cut.cold)
            mark = () if cut.watermark is None else cut.watermark.next
            self._first = OffsetVector.of((at, min(lowest, stop)) for at, stop in mark)
        end = next_end(cut, self._at, self._first, self._options.max_offsets)
        return StreamOffset(topic_id, end)

    def _firsts(self, cut: TableCut, time_us: int) -> OffsetVector:
        assert self._opened is not None  # noqa: S101 - by the cut
        cold = self._opened.first_cold(cut, time_us)
        hot = self._opened.first_hot(cut, time_us, cold.partitions)
        return OffsetVector.of((hot.as_dict() | cold.as_dict()).items())

    def _partitions(
        self, start: StreamOffset | StreamStart, end: StreamOffset | StreamStart
    ) -> list[InputPartition]:
        if not isinstance(end, StreamOffset):
            raise BadParameter(
                "the checkpoint's last batch has no end; start the query with a new one."
            )
        cut = self._cut()
        if isinstance(start, StreamOffset):
            step = batch(cut, start, end)
        elif start.since_us is None:
            check_reached(cut, end)
            self._at = end.next
            return []
        else:
            step = batch_since(cut, start, self._firsts(cut, start.since_us), end)
        self._at = end.next
        assert self._opened is not None  # noqa: S101 - by the cut
        read = plan_rows(Side.BOTH, step, records_only=True)
        columns, schemas = self._columns.columns, self._opened.schemas
        return shares(self._opened.store, read, columns, schemas)


def _topic_id(cut: TableCut) -> str:
    assert cut.hot is not None  # noqa: S101 - of bound tables
    return cut.hot.topic_id
