"""What a survey reads, of whom, and when it ends: catalogs and brokers get no more requests than they have to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pytest

from connectors.iceberg.pin_cache import PinCache
from connectors.kafka.samples import Sample
from connectors.table_survey import Survey, TableSurvey
from planner.errors import CatalogUnavailable, FederationError
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


class Brokers:
    """Answers, and counts what it is asked for."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()

    def samples(
        self, ranges: Mapping[str, tuple[OffsetRange, ...]]
    ) -> dict[tuple[str, int], Sample]:
        spans = [(topic, span) for topic, own in ranges.items() for span in own]
        self.requests["samples"] += len(spans)
        return {(topic, span.partition): Sample(1_000, 10.0) for topic, span in spans}

    def retention(self, topics: Sequence[str]) -> dict[str, LogRetention]:
        self.requests["retention"] += len(topics)
        return dict.fromkeys(topics, LogRetention(seconds=3_600.0))

    def newest(self, topics: Mapping[str, Sequence[int]]) -> dict[tuple[str, int], int]:
        self.requests["newest"] += len(topics)
        return {(topic, each): 2_000 for topic, own in topics.items() for each in own}


class Site:
    """A number of tables, each over a topic of its own, and a survey of them that runs when it is told to."""

    def __init__(self, tables: int) -> None:
        self.pinned: Counter[str] = Counter()
        self.catalog_answers = True
        self.clock = Clock()
        self.log, self.brokers = MemoryLog(), Brokers()
        self.store = MemoryColdStore(fault=self._fault)
        self.names = [self.create(number) for number in range(tables)]
        self.pins = PinCache(self.store, refresh_s=1e6, clock=self.clock)
        self.pins.tables()
        self.survey = TableSurvey(
            *(self.store, self.pins, self.log, lambda: self.brokers),
            clock=self.clock,
            now_ms=lambda: 61_000,
        )

    def create(self, number: int) -> TableName:
        topic, binding = f"topic_{number}", Binding(f"topic_{number}")
        topic_id = self.log.create_topic(topic, PARTITIONS)
        first = Watermark(
            cluster_id="memory",
            topic=topic,
            topic_id=topic_id,
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

    def append(self, number: int, partition: int = 0) -> None:
        self.log.append(f"topic_{number}", partition, MemoryRecord(b'{"id": 1}'))


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site(20)
    yield made
    made.survey.stop()
    made.pins.stop()


def test_a_table_stands_where_log_and_pin_say(site: Site) -> None:
    site.append(0)
    site.append(0, partition=2)
    entry = site.round().tables[site.names[0]]
    assert entry is not None
    status = entry.status
    assert [each.lag for each in status.partitions] == [1, 0, 1]
    assert (status.lag, status.lag_bytes, status.lag_s) == (2, 20, 60.0)
    assert (status.retention_s, status.headroom_s) == (3_600.0, 3_540.0)
    assert {each.newest_ms for each in status.partitions} == {2_000}


def test_nothing_is_asked_again_that_has_not_changed(site: Site) -> None:
    site.append(0)
    site.round()
    first = dict(site.brokers.requests), site.pinned["pin"]
    assert first == ({"samples": 1, "retention": 20, "newest": 20}, 20)
    site.round()
    assert (dict(site.brokers.requests), site.pinned["pin"]) == first
    site.append(0)
    site.round()
    assert site.brokers.requests == Counter({"samples": 1, "retention": 20, "newest": 21})


def test_pins_in_use_are_the_servers_own(site: Site) -> None:
    for name in site.names:
        site.pins.get(name)
    before = site.pinned["pin"]
    assert len(site.round().tables) == 20
    assert site.pinned["pin"] == before


def test_a_catalog_that_does_not_answer_is_not_asked_table_by_table(site: Site) -> None:
    site.pins.get(site.names[0])
    site.catalog_answers = False
    site.pins.refresh_due(None)
    before = site.pinned["pin"]
    tables = site.round().tables
    assert site.pinned["pin"] == before
    classes = {name: entry and entry.status.error_class for name, entry in tables.items()}
    assert classes.pop(site.names[0]) is None
    assert set(classes.values()) == {"CatalogUnavailable"}


def test_a_topic_that_is_gone_hides_no_other(site: Site) -> None:
    site.log.delete_topic("topic_3")
    tables, clusters = site.round().tables, site.round().clusters
    failing = {name for name, entry in tables.items() if entry and entry.status.error}
    assert failing == {site.names[3]}
    assert clusters[""].error is None


def test_it_runs_while_somebody_looks_and_no_longer(site: Site) -> None:
    """Nothing is read before the first look. Each look has the newest round; who comes with other tables waits for one that has them."""
    assert (site.survey._thread, site.pinned["pin"]) == (None, 0)
    survey = site.survey.look(tuple(site.names[:2]), lambda: None)
    assert survey.tables.keys() == set(site.names[:2])
    survey = site.survey.look(tuple(site.names[5:7]), lambda: None)
    assert survey.tables.keys() >= set(site.names[5:7])
    assert site.survey._in_view() == {*site.names[:2], *site.names[5:7]}
    site.clock.now += 61
    assert site.survey._in_view() is None


def test_who_waits_for_the_first_round_can_be_cancelled(site: Site) -> None:
    class Gone(FederationError):
        pass

    def check() -> None:
        raise Gone("gone")

    with pytest.raises(Gone):
        site.survey.look(tuple(site.names), check)
