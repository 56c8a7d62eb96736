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
    assert site.survey.measure(site.names[3:4])[0].clusters[""].answered_s == site.clock.now


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


def test_who_looks_after_a_pause_has_a_round_of_then(site: SurveySite) -> None:
    """Not the last one from before the pause, which may be hours old, and no pin of then."""
    names = tuple(site.names[:1])
    site.survey.look(names, lambda: None)
    before = site.pinned["pin"]
    site.clock.now += 3_600
    thread = site.survey._thread
    assert thread is not None
    thread.join(10)
    assert not thread.is_alive()
    # The clients of brokers have threads and connections of their own.
    assert site.survey._brokers is None
    site.append(0)
    entry = site.survey.look(names, lambda: None).tables[names[0]]
    assert entry is not None
    assert (entry.status.lag, entry.pin_age_s, site.pinned["pin"]) == (1, 0.0, before + 1)


def test_a_pin_in_use_is_served_though_its_catalog_does_not_confirm_it(
    site: SurveySite,
) -> None:
    """The catalog lists its tables, but loads none: statements go on from the pin, however old."""
    name = site.names[0]
    site.pins.get(name)
    site.catalog_answers = False
    site.clock.now += 120
    site.pins.refresh(name)
    entry = site.survey.measure([name])[0].tables[name]
    assert entry is not None
    assert (entry.status.error, entry.catalog_error) == (None, "CatalogUnavailable")
    assert entry.pin_age_s == 120


def test_a_table_that_fails_has_its_own_limits_and_age(site: SurveySite) -> None:
    site.round()
    site.log.delete_topic("topic_3")
    site.clock.now += 10
    entry = site.round().tables[site.names[3]]
    assert entry is not None
    assert (entry.status.error_class, entry.pin_age_s) == ("UnknownTopic", 10)
    assert entry.binding is not None
    assert entry.binding.topic == "topic_3"


def test_no_table_waits_for_its_sample_because_others_move(
    site: SurveySite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first tables are tiered before each round, and there are more of them than samples in one."""
    monkeypatch.setattr("connectors.table_survey._SAMPLES", 4)
    for number in range(8):
        site.append(number)
    for _ in range(4):
        for number in range(6):
            site.tier(number)
            site.append(number)
        # Each round reads all pins.
        site.clock.now += 61
        tables = site.round().tables
    for number in (6, 7):
        entry = tables[site.names[number]]
        assert entry is not None
        assert entry.status.lag_s == 60.0


def test_of_two_tables_of_a_topic_the_one_that_waits_longer_is_dated(site: SurveySite) -> None:
    """In either order of their names: else records would expire unseen behind a table that is tiered in time."""
    first, other = site.names[0], site.bind(20, "topic_0")
    site.names.append(other)
    site.append(0)
    for late, tiered, age_s in (first, 20, 60.0), (other, 0, 59.999):
        site.tier(tiered)
        site.append(0)
        entry = site.survey.measure([first, other])[0].tables[late]
        assert entry is not None
        assert entry.status.lag_s == age_s
        site.clock.now += 61


def test_a_pin_that_its_catalog_cannot_confirm_is_stale_until_it_answers(
    site: SurveySite,
) -> None:
    def entry(number: int) -> tuple[str | None, str | None]:
        table = site.round().tables[site.names[number]]
        assert table is not None
        return table.status.error_class, table.catalog_error

    site.survey.measure(site.names[:1])
    site.catalog_answers = False
    site.pins.refresh_due(None)
    site.clock.now += 61
    assert (entry(0), entry(1)) == ((None, "CatalogUnavailable"), ("CatalogUnavailable", None))
    site.catalog_answers = True
    site.pins.refresh_due(None)
    assert (entry(0), entry(1)) == ((None, None), (None, None))


def test_retention_that_was_not_answered_is_asked_again_soon(
    site: SurveySite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, no table is about to lose records."""

    def retention_s() -> list[float | None]:
        site.clock.now += 31
        tables = site.round().tables.values()
        return [None if table is None else table.status.retention_s for table in tables]

    with monkeypatch.context() as late:
        late.setattr(site.brokers, "retention", lambda _topics: {})
        assert set(retention_s()) == {None}
    assert set(retention_s()) == {3_600.0}
    assert set(retention_s()) == {3_600.0}
    assert site.brokers.requests["retention"] == 20


def test_after_a_pause_no_pin_from_before_is_told(
    site: SurveySite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round reads some pins: at first the others are not read, which is better than hours old."""
    assert len(site.round().tables) == 20
    monkeypatch.setattr("connectors.table_survey._PINS_S", -1.0)
    site.clock.now += 3_600
    assert len(site.round().tables) == 16
    assert len(site.round().tables) == 20
