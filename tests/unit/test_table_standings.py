"""What ``status`` reads of catalogs, many tables at once."""

from __future__ import annotations

from connectors.table_standings import PINS_AT_ONCE, standings
from planner.names import TableName
from planner.seam.cut import Pin
from planner.seam.snapshots import Retained
from tests.doubles.cold import MemoryColdStore
from tests.harness.survey_site import SurveySite


class ForgetfulStore(MemoryColdStore):
    """Knows what its last pins retain, and has to read a metadata file for others."""

    def __init__(self) -> None:
        super().__init__()
        self.pinned: list[TableName] = []
        self.reads = 0

    def pin(self, table: TableName) -> Pin:
        pin = super().pin(table)
        self.pinned.append(table)
        return pin

    def retained(self, pin: Pin) -> Retained:
        self.reads += pin.table not in self.pinned[-2 * PINS_AT_ONCE :]
        return super().retained(pin)


def test_no_metadata_file_is_read_twice_over_many_tables() -> None:
    store = ForgetfulStore()
    site = SurveySite(100, store)
    statuses = standings(store, site.log, site.names, clusters={}, now_ms=0)
    site.pins.stop()
    assert [status.table for status in statuses] == list(map(str, site.names))
    assert None not in [status.published_ms for status in statuses]
    assert store.reads == 0


def test_a_survey_reads_none_again_after_a_pause() -> None:
    store = ForgetfulStore()
    site = SurveySite(100, store)
    for name in site.names:
        site.pins.get(name)
    site.round()
    first = store.reads
    site.survey._pins = {}
    site.round()
    site.pins.stop()
    assert store.reads == first
