"""The same answer across engines: Spark at a cut is DuckDB over Flight at that cut, and both are what the ledger says.

Random stories (``tests.harness.stories``) over tables of both format versions, with partitions, deletes, changes of the schema and
rollbacks; cuts of now and of the past; forty statements that mean the same in both engines' SQL.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import adbc_driver_flightsql.dbapi as adbc
import duckdb
import pyarrow as pa
import pytest

import thermocline.spark as tc
from connectors.spark.lake import Lake
from planner.errors import CutExpired
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import TieredServer
from tests.harness.portable_sql import PORTABLE, bag
from tests.harness.spark_rows import read_here, settings_of
from tests.harness.stories import Kind, Story

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

KINDS = (
    Kind("null", False, "merge-on-read", ("kafka_key",), 3, ("bucket(3, kafka_offset)",)),
    Kind("skip", True, "merge-on-read", (), 2, ("kafka_partition", "day(kafka_timestamp)")),
    Kind("null", False, "copy-on-write", ("kafka_headers",), 3),
    Kind("fail", False, "merge-on-read"),
)
STEPS = (
    *("produce", "transaction", "abort", "tier", "delete", "compact", "add_column"),
    *("rename_column", "widen_column", "add_partition", "holes", "tier", "rollback"),
)
CUT_HEADER = "adbc.flight.sql.rpc.call_header.thermocline-cut"


@contextmanager
def plain(rows: pa.Table) -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(duckdb.connect()) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", rows)
        connection.execute("CREATE TABLE ledger AS FROM rows")
        yield connection


class Engines:
    """A story's table as both engines show it."""

    def __init__(self, story: Story, lake: Lake, served: tc.ServerLake) -> None:
        self.story = story
        self.lake = lake
        self.served = served
        #: Cuts of before, with the rows they had, and what the column of texts was called when they were taken.
        self.past: list[tuple[str, pa.Table]] = []

    def compare(self, statements: Sequence[str]) -> None:
        """Take a cut in Spark, and ask both engines about it."""
        self.story.end()
        rows, table = self.story.ledger.rows(), self.story.ledger.table()
        cut = self.lake.at(str(self.story.name))
        name = str(self.story.name)
        self.story.same_rows(rows, cut.table(name).toArrow())
        source = read_here(settings_of(self.story.server), table=name, cut=cut.token)
        self.story.same_rows(rows, pa.Table.from_pylist(source, table.schema))
        through = self.served.at(cut=cut.token).table(name)
        assert bag(through.toArrow()) == bag(cut.table(name).toArrow())
        with plain(table) as ledger:
            for sql in statements:
                self._answers(sql, cut, ledger)
        self.past.append((cut.token, table))

    def compare_past(self) -> None:
        """Ask both engines about a cut of before: the same rows, or the same refusal."""
        token, table = random.Random(len(self.past)).choice(self.past)
        name = str(self.story.name)
        sql = "SELECT kafka_partition, kafka_offset, n, amount, seen_at FROM {t}"
        try:
            cut = self.lake.at(cut=token)
        except CutExpired:
            with pytest.raises(adbc.Error, match=r"cut|Cut"):
                self._flight(sql.format(t=name), token)
            return
        answer = cut.sql(sql.format(t=name)).toArrow()
        assert bag(answer) == bag(self._flight(sql.format(t=name), token))
        with plain(table) as ledger:
            # Rows that were deleted meanwhile are not in what a newer snapshot has of the cut.
            assert not bag(answer) - bag(ledger.sql(sql.format(t="ledger")).to_arrow_table())

    def _answers(self, sql: str, cut: tc.LakeCut, ledger: duckdb.DuckDBPyConnection) -> None:
        columns = {column.name for column in self.story.ledger.schema.columns}
        text = "title" if "title" in columns else "label"
        name = str(self.story.name)
        spark = bag(cut.sql(sql.format(t=name, s=text)).toArrow())
        flight = bag(self._flight(sql.format(t=name, s=text), cut.token))
        truth = bag(ledger.sql(sql.format(t="ledger", s=text)).to_arrow_table())
        assert spark == flight == truth, sql

    def _flight(self, sql: str, token: str) -> pa.Table:
        with self.story.server.cursor() as cursor:
            cursor.adbc_statement.set_options(**{CUT_HEADER: token})
            cursor.execute(sql)
            return cursor.fetch_arrow_table()


def tell(
    seed: int, steps: int, portion: int, kafka: Kafka, server: TieredServer, cursor: adbc.Cursor
) -> None:
    """Take ``steps``, and ask a further portion of the statements after every third."""
    rng = random.Random(seed)
    statements = list(PORTABLE)
    rng.shuffle(statements)
    plan = [rng.choice(STEPS) for _ in range(steps)]
    done: list[str] = []
    session = server.lake.session
    with (
        closing(Story(kafka, server, rng, KINDS[seed % len(KINDS)], cursor)) as story,
        Lake(session, settings_of(server), tail_local_bytes=rng.choice((0, 1 << 26))) as lake,
    ):
        engines = Engines(story, lake, tc.connect(session, server=server.uri))
        try:
            for number, step in enumerate(["produce", "tier", "produce", *plan]):
                if step in ("rename_column", "widen_column") and step in done:
                    continue
                done.append(step)
                getattr(story, step)()
                if number % 3 == 2:
                    chosen, statements = statements[:portion], statements[portion:]
                    engines.compare(chosen)
                    statements += chosen
            engines.compare_past()
        except BaseException as error:
            error.add_note(f"seed {seed}, {story.kind}: {' '.join(done)}")
            raise


@pytest.fixture
def cursor(tiered_server: TieredServer) -> Iterator[adbc.Cursor]:
    with tiered_server.cursor() as opened:
        yield opened


def test_spark_answers_what_duckdb_and_the_ledger_answer(
    kafka: Kafka, tiered_server: TieredServer, cursor: adbc.Cursor
) -> None:
    tell(0, 6, 14, kafka, tiered_server, cursor)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 21))
def test_long_stories_have_the_same_answers_in_both(
    seed: int, kafka: Kafka, tiered_server: TieredServer, cursor: adbc.Cursor
) -> None:
    tell(seed, 18, 20, kafka, tiered_server, cursor)
