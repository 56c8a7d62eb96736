"""Rows of ``system.tails`` as grants leave them: each user has his own, and others once the grants are others."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from planner.offsets import OffsetRange
from planner.permissions import Grant, GrantList, TablePattern
from planner.seam.watermark import Outcomes
from proxy.access.policy import AccessPolicy
from proxy.engine.engine import Engine
from proxy.ops.table_list import SurveyRows, TableList
from proxy.session import Deadline, Session
from proxy.tail.budget import TailLimits, TailState
from proxy.tail.tails import Tails
from tests.harness.survey_site import PARTITIONS, SurveySite

ADA, BOB, EVE = (Session(name, user=name) for name in ("ada", "bob", "eve"))


def grant(user: str, table: str, **rest: Any) -> Grant:
    return Grant(user, (TablePattern.parse(table),), users=frozenset((user,)), **rest)


@pytest.fixture
def site() -> Iterator[SurveySite]:
    made = SurveySite(3)
    yield made
    made.survey.stop()
    made.pins.stop()


def tails_of(*states: TailState, max_rows: int = 1_000) -> Tails:
    limits = TailLimits(max_rows, 1 << 30, 5)
    return cast("Tails", SimpleNamespace(states=lambda: states, limits=limits))


def test_a_round_is_filtered_for_each_user_and_anew_under_other_grants(
    engine: Engine, site: SurveySite
) -> None:
    access = AccessPolicy(engine)
    makers = TableList(site.survey, site.pins, tails_of(), access).makers()

    def states(session: Session) -> list[tuple[str, str, int]]:
        rows = makers["tails"](session, Deadline(60)).to_pylist()
        tables = sorted({(row["table_name"], row["state"]) for row in rows})
        return [(*each, sum(row["table_name"] == each[0] for row in rows)) for each in tables]

    whole = [(f"table_{number}", "ok", PARTITIONS) for number in range(3)]
    assert states(EVE) == whole
    some = access.expression("id < 3")
    access.policy = GrantList(
        (
            grant("ada", "lake.*"),
            grant("bob", "lake.net.table_1", rows=some),
            grant("bob", "lake.net.table_2"),
        )
    )
    for _ in range(2):
        assert states(ADA) == whole
        assert states(BOB) == [("table_1", "closed", 1), ("table_2", "ok", PARTITIONS)]
        assert states(EVE) == []
    access.policy = GrantList((grant("bob", "lake.net.table_0"),))
    assert (states(ADA), states(BOB)) == ([], [("table_0", "ok", PARTITIONS)])


def test_times_and_sizes_of_records_are_closed_with_the_columns_that_tell_them(
    engine: Engine, site: SurveySite
) -> None:
    site.append(0)
    access = AccessPolicy(engine)
    masks = (("kafka_timestamp", access.expression("NULL")),)
    access.policy = GrantList(
        (
            grant("ada", "lake.*"),
            grant("bob", "lake.*", without=("id",)),
            grant("eve", "lake.*", masks=masks),
        )
    )
    makers = TableList(site.survey, site.pins, tails_of(), access).makers()

    def row(session: Session) -> dict[str, Any]:
        first: dict[str, Any] = makers["tails"](session, Deadline(60)).to_pylist()[0]
        return first

    whole = row(ADA)
    times = {"oldest_at", "newest_at", "lag_s", "newest_age_s", "headroom_s"}
    sizes = {"lag_bytes", "table_lag_bytes", "tail_bytes"}
    assert None not in [whole[name] for name in times | sizes]
    for session, closed in (BOB, sizes), (EVE, sizes | times):
        assert row(session) == whole | dict.fromkeys(closed)


def test_a_tail_that_is_read_counts_rows_and_not_offsets(
    engine: Engine, site: SurveySite
) -> None:
    """Ten offsets with two rows, as after compaction, fit into a budget of three rows; unread, they may not."""
    for number in (0, 1):
        for _ in range(10):
            site.append(number)
    state = TailState(
        table=site.names[0],
        topic="topic_0",
        schema_id=0,
        is_followed=True,
        ranges=(OffsetRange(0, 0, 10),),
        lag=0,
        rest_s=0.0,
        rows=2,
        size=20,
        packed=0,
        on_disk=0,
        error=None,
        outcomes=Outcomes(),
    )
    tails, access = tails_of(state, max_rows=3), AccessPolicy(engine)
    lists = TableList(site.survey, site.pins, tails, access)
    rows = lists.makers()["tails"](ADA, Deadline(60)).to_pylist()
    states = {row["table_name"]: row["state"] for row in rows}
    assert states == {"table_0": "late", "table_1": "full", "table_2": "ok"}


def test_rows_are_kept_for_as_many_lists_as_there_is_room(
    monkeypatch: pytest.MonkeyPatch, site: SurveySite
) -> None:
    rows = SurveyRows(site.round(), tails_of())
    one = rows.table.slice(0, PARTITIONS)
    lists = [tuple(site.names[:1]), tuple(site.names[1:]), tuple(site.names)]
    monkeypatch.setattr("proxy.ops.table_list._MAX_OWN_BYTES", 2 * one.nbytes)
    for tables in lists:
        assert rows.keep(tables, one) is one
    assert [rows.own(tables) is one for tables in lists] == [False, False, True]
    monkeypatch.setattr("proxy.ops.table_list._MAX_OWN_BYTES", one.nbytes - 1)
    rows.keep(lists[0], one)
    assert [rows.own(tables) for tables in lists] == [None, None, None]
