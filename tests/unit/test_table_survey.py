"""What a survey reads, of whom, and when it ends: catalogs and brokers get no more requests than they have to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from planner.errors import FederationError
from tests.harness.survey_site import SurveySite


@pytest.fixture
def site() -> Iterator[SurveySite]:
    made = SurveySite(20)
    yield made
    made.survey.stop()
    made.pins.stop()


def test_a_table_stands_where_log_and_pin_say(site: SurveySite) -> None:
    site.append(0)
    site.append(0, partition=2)
    entry = site.round().tables[site.names[0]]
    assert entry is not None
    status = entry.status
    assert [each.lag for each in status.partitions] == [1, 0, 1]
    assert (status.lag, status.lag_bytes, status.lag_s) == (2, 20, 60.0)
    assert (status.retention_s, status.headroom_s) == (3_600.0, 3_540.0)
    assert {each.newest_ms for each in status.partitions} == {2_000}


def test_nothing_is_asked_again_that_has_not_changed(site: SurveySite) -> None:
    site.append(0)
    site.round()
    first = dict(site.brokers.requests), site.pinned["pin"]
    assert first == ({"samples": 1, "retention": 20, "newest": 20}, 20)
    site.round()
    assert (dict(site.brokers.requests), site.pinned["pin"]) == first
    site.append(0)
    site.round()
    assert site.brokers.requests == Counter({"samples": 1, "retention": 20, "newest": 21})


def test_pins_in_use_are_the_servers_own(site: SurveySite) -> None:
    for name in site.names:
        site.pins.get(name)
    before = site.pinned["pin"]
    assert len(site.round().tables) == 20
    assert site.pinned["pin"] == before


def test_a_catalog_that_does_not_answer_is_not_asked_table_by_table(site: SurveySite) -> None:
    site.pins.get(site.names[0])
    site.catalog_answers = False
    site.pins.refresh_due(None)
    before = site.pinned["pin"]
    tables = site.round().tables
    assert site.pinned["pin"] == before
    classes = {name: entry and entry.status.error_class for name, entry in tables.items()}
    assert classes.pop(site.names[0]) is None
    assert set(classes.values()) == {"CatalogUnavailable"}


def test_a_topic_that_is_gone_hides_no_other(site: SurveySite) -> None:
    site.log.delete_topic("topic_3")
    tables, clusters = site.round().tables, site.round().clusters
    failing = {name for name, entry in tables.items() if entry and entry.status.error}
    assert failing == {site.names[3]}
    assert clusters[""].error is None


def test_it_runs_while_somebody_looks_and_no_longer(site: SurveySite) -> None:
    """Nothing is read before the first look. Each look has the newest round; who comes with other tables waits for one that has them."""
    assert (site.survey._thread, site.pinned["pin"]) == (None, 0)
    survey = site.survey.look(tuple(site.names[:2]), lambda: None)
    assert survey.tables.keys() == set(site.names[:2])
    survey = site.survey.look(tuple(site.names[5:7]), lambda: None)
    assert survey.tables.keys() >= set(site.names[5:7])
    assert site.survey._in_view() == {*site.names[:2], *site.names[5:7]}
    site.clock.now += 61
    assert site.survey._in_view() is None


def test_who_waits_for_the_first_round_can_be_cancelled(site: SurveySite) -> None:
    class Gone(FederationError):
        pass

    def check() -> None:
        raise Gone("gone")

    with pytest.raises(Gone):
        site.survey.look(tuple(site.names), check)
