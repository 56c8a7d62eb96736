"""Whatever happens underneath, SQL over the server is SQL over all committed rows (``tests.harness.stories``)."""

from __future__ import annotations

from collections.abc import Iterator

import adbc_driver_flightsql.dbapi as adbc
import pytest

from tests.fixtures.kafka import Kafka
from tests.fixtures.server import TieredServer
from tests.harness.stories import ONCE, STEPS, tell

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.fixture
def cursor(tiered_server: TieredServer) -> Iterator[adbc.Cursor]:
    with tiered_server.cursor() as opened:
        yield opened


#: Of it each kind of step meets what it is about: a column goes that had come, a rollback has publishes behind it.
SEED = 696


def test_a_story_of_every_kind_of_step_changes_no_answer(
    kafka: Kafka, tiered_server: TieredServer, cursor: adbc.Cursor
) -> None:
    tell(SEED, len(ONCE) + 1, kafka, tiered_server, cursor, ONCE)


#: Its topic is compacted: the tail has records that are no longer in the log.
COMPACTED_SEED = 13


def test_a_story_of_a_compacted_topic_changes_no_answer(
    kafka: Kafka, tiered_server: TieredServer, cursor: adbc.Cursor
) -> None:
    kinds = ("abort", "holes", "tier", "rollback")
    tell(COMPACTED_SEED, 2 * len(kinds), kafka, tiered_server, cursor, kinds)


#: A table with row deletes.
MAINTAINED_SEED = 4


def test_a_story_of_a_maintained_table_changes_no_answer(
    kafka: Kafka, tiered_server: TieredServer, cursor: adbc.Cursor
) -> None:
    tell(MAINTAINED_SEED, 3, kafka, tiered_server, cursor, ("delete", "maintain"))


@pytest.mark.soak
def test_a_longer_story_of_a_maintained_table_changes_no_answer(
    kafka: Kafka, tiered_server: TieredServer, cursor: adbc.Cursor
) -> None:
    kinds = ("delete", "maintain", "compact", "rollback", "maintain")
    tell(MAINTAINED_SEED, len(kinds) + 1, kafka, tiered_server, cursor, kinds)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(21, 33))
def test_long_stories_of_maintained_tables_change_no_answer(
    seed: int, kafka: Kafka, tiered_server: TieredServer, cursor: adbc.Cursor
) -> None:
    kinds = (*STEPS, "maintain", "maintain", "maintain")
    tell(seed, 2 * (len(kinds) + 1), kafka, tiered_server, cursor, kinds)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(21))
def test_long_stories_change_no_answer(
    seed: int, kafka: Kafka, tiered_server: TieredServer, cursor: adbc.Cursor
) -> None:
    tell(seed, 2 * (len(STEPS) + 1), kafka, tiered_server, cursor)
