"""Tables over logs in memory, and a survey of them that runs when it is told to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from connectors.iceberg.pin_cache import PinCache
from connectors.kafka.samples import Sample
from connectors.table_standings import Survey
from connectors.table_survey import TableSurvey
from planner.errors import CatalogUnavailable
from planner.names import TableName
from planner.offsets import OffsetRange, OffsetVector
from planner.schema import Column
from planner.seam.binding import Binding
from planner.seam.watermark import Watermark
from planner.tiering.triggers import LogRetention
from tests.doubles.cold import MemoryColdStore
from tests.doubles.log import MemoryLog, MemoryRecord
from tests.harness.clock import Clock

COLUMNS = (Column(1, "id", pa.int64()),)
PARTITIONS = 3


class CountedBrokers:
    """Answers, and counts what it is asked for."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()

    def samples(
        self, ranges: Mapping[str, tuple[OffsetRange, ...]]
    ) -> dict[tuple[str, int], Sample]:
        spans = [(topic, span) for topic, own in ranges.items() for span in own]
        self.requests["samples"] += len(spans)
        return {
            (topic, span.partition): Sample(1_000 + span.start, 10.0) for topic, span in spans
        }

    def retention(self, topics: Sequence[str]) -> dict[str, LogRetention]:
        self.requests["retention"] += len(topics)
        return dict.fromkeys(topics, LogRetention(seconds=3_600.0))

    def newest(self, topics: Mapping[str, Sequence[int]]) -> dict[tuple[str, int], int]:
        self.requests["newest"] += len(topics)
        return {(topic, each): 2_000 for topic, own in topics.items() for each in own}


class SurveySite:
    """A number of tables, each over a topic of its own, and a survey of them that runs when it is told to."""

    def __init__(self, tables: int, store: MemoryColdStore | None = None) -> None:
        self.pinned: Counter[str] = Counter()
        self.catalog_answers = True
        self.clock = Clock()
        self.log, self.brokers = MemoryLog(), CountedBrokers()
        self.store = store or MemoryColdStore(fault=self._fault)
        self.names = [self.create(number) for number in range(tables)]
        self.pins = PinCache(self.store, refresh_s=1e6, clock=self.clock)
        self.pins.tables()
        self.survey = TableSurvey(
            *(self.store, self.pins, self.log, lambda: self.brokers),
            clock=self.clock,
            now_ms=lambda: 61_000,
        )

    def create(self, number: int) -> TableName:
        self.log.create_topic(f"topic_{number}", PARTITIONS)
        return self.bind(number, f"topic_{number}")

    def bind(self, number: int, topic: str) -> TableName:
        [bounds] = self.log.measure([topic]).values()
        binding = Binding(topic)
        first = Watermark(
            cluster_id="memory",
            topic=topic,
            topic_id=bounds.topic_id,
            next=OffsetVector.of((each, 0) for each in range(PARTITIONS)),
            shape=binding.shape,
            run="create",
        )
        name = TableName("lake", ("net",), f"table_{number}")
        self.store.create(name, COLUMNS, binding, first)
        return name

    def _fault(self, step: str) -> None:
        self.pinned[step] += 1
        if not self.catalog_answers:
            raise CatalogUnavailable("the catalog does not answer.")

    def round(self) -> Survey:
        return self.survey.measure(self.names)[0]

    def tier(self, number: int) -> None:
        """Move a table's watermark to the end of its log, without a row."""
        name = self.names[number]
        mark = self.store.pin(name).watermark
        assert mark is not None
        [bounds] = self.log.measure([mark.topic]).values()
        ends = OffsetVector.of((each.partition, each.log_end) for each in bounds.partitions)
        self.store.commit(
            name,
            "append",
            lambda rows: (rows, rows.slice(0, 0)),
            check=lambda *_: replace(mark, next=ends),
        )

    def append(self, number: int, partition: int = 0) -> None:
        self.log.append(f"topic_{number}", partition, MemoryRecord(b'{"id": 1}'))
