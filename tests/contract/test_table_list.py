"""Rows of ``system.tails`` as grants leave them: each user has his own, and others once the grants are others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from planner.permissions import Grant, GrantList, TablePattern
from proxy.access.policy import AccessPolicy
from proxy.engine.engine import Engine
from proxy.ops.table_list import TableList
from proxy.session import Deadline, Session
from proxy.tail.budget import TailLimits
from proxy.tail.tails import Tails
from tests.harness.survey_site import PARTITIONS, SurveySite

ADA, BOB, EVE = (Session(name, user=name) for name in ("ada", "bob", "eve"))


def grant(user: str, table: str, **rest: Any) -> Grant:
    return Grant(user, (TablePattern.parse(table),), users=frozenset((user,)), **rest)


def test_a_round_is_filtered_for_each_user_and_anew_under_other_grants(engine: Engine) -> None:
    site = SurveySite(3)
    limits = TailLimits(1_000, 1 << 30, 5)
    tails = cast("Tails", SimpleNamespace(states=lambda: (), limits=limits))
    access = AccessPolicy(engine)
    makers = TableList(site.survey, site.pins, tails, access).makers()

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
    site.survey.stop()
    site.pins.stop()
