"""Servers promise no more than maintenance leaves in place: the grace of the table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connectors.iceberg.pin_cache import PinCache
from planner.names import TableName
from proxy.engine.engine import Engine
from proxy.query.executor import Statements
from proxy.session import Deadline, Session
from tests.doubles.log import MemoryLog
from tests.fixtures.cold import MemoryCold
from tests.harness.builders import FLOWS
from tests.harness.serving import NOW_US, SESSION, forget, serve

HOUR_US = 3_600_000_000


@pytest.fixture
def cold() -> MemoryCold:
    harness = MemoryCold()
    harness.create()
    harness.tier([(0, 0, "a", 0)], 1, 0)
    return harness


@pytest.fixture
def served(engine: Engine, cold: MemoryCold) -> Iterator[tuple[PinCache, Statements]]:
    """Tickets of an hour."""
    board, tails, statements = serve(cold.store, MemoryLog(), runs_in=engine)
    yield board, statements
    forget(board, tails)


def good_us(board: PinCache, statements: Statements) -> tuple[int, int]:
    """For how long a ticket is good, and when it is renewed half an hour later, the table unused since."""
    session: Session = statements.browser.configure(SESSION)
    sql = f'SELECT * FROM {FLOWS.catalog}.{FLOWS.schema}."{FLOWS.name}$cold"'
    planned = statements.plan(session, sql, None, Deadline(60))
    statements._now_us = lambda: NOW_US + HOUR_US // 2
    board._idle_s = -1
    board.refresh_due(FLOWS.catalog)
    assert board.pinned([FLOWS]) is None
    renewed = statements.renew(session, planned.ticket)
    assert planned.expires_at_us is not None
    return planned.expires_at_us - NOW_US, renewed.expires_at_us - NOW_US


@pytest.mark.parametrize(
    ("properties", "good", "renewed"),
    [
        ({}, HOUR_US, HOUR_US * 3 // 2),
        # However often it is renewed.
        ({"maintain.pin_grace_s": "4000"}, HOUR_US, 4_000_000_000),
        ({"maintain.pin_grace_s": "2000"}, 2_000_000_000, 2_000_000_000),
        ({"maintain.pin_grace_s": "2000", "maintain.mode": "off"}, HOUR_US, HOUR_US * 3 // 2),
        # Maintenance refuses it, and removes nothing.
        ({"maintain.pin_grace_s": "soon"}, HOUR_US, HOUR_US * 3 // 2),
        ({"maintain.pin_grace_s": "9" * 5_000}, HOUR_US, HOUR_US * 3 // 2),
    ],
)
def test_a_ticket_is_good_no_longer_than_the_grace(
    served: tuple[PinCache, Statements],
    cold: MemoryCold,
    properties: dict[str, str],
    good: int,
    renewed: int,
) -> None:
    cold.set_properties(**properties)
    assert good_us(*served) == (good, renewed)


def test_a_table_without_a_topic_is_not_maintained(cold: MemoryCold) -> None:
    plain = TableName("lake", ("net",), "plain")
    cold.create_plain(plain, None)
    assert cold.store.pin(plain).grace_s is None
    assert cold.store.pin(FLOWS).grace_s == 7_200
