"""The same answer across engines: Spark at a cut is DuckDB over Flight at that cut, and both are what the ledger says.

Random stories (``tests.harness.stories``) over tables of both format versions, with partitions, deletes, changes of the schema and
rollbacks; cuts of now and of the past; forty statements that mean the same in both engines' SQL. Spark reads in four ways: ``cut.table``, the
registered source, the server, and the cut's table in the live catalog.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import adbc_driver_flightsql.dbapi as adbc
import duckdb
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import thermocline.spark as tc
from connectors.spark.lake.lake import Lake
from planner.errors import CutExpired
from tests.fixtures.kafka import Kafka
from tests.fixtures.live import LiveServer
from tests.harness.portable_sql import PORTABLE, bag
from tests.harness.spark_rows import read_here, settings_of
from tests.harness.stories import Kind, Story

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.usefixtures("compiled"),
]

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
#: How many of a portion are asked through the live catalog, too.
THROUGH_CATALOG = 4
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

    def __init__(
        self, story: Story, live: LiveServer, lake: Lake, served: tc.ServerLake
    ) -> None:
        self.story = story
        self.live = live
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
        whole = bag(cut.table(name).toArrow())
        assert bag(through.toArrow()) == whole
        at_cut = self._in_live_catalog(cut.token)
        assert bag(self.live.lake.session.table(at_cut).toArrow()) == whole
        # Iceberg's reader leaves out files whose NaN Spark would find (docs/engines.md).
        there = [sql for sql in statements if "ratio" not in sql][:THROUGH_CATALOG]
        with plain(table) as ledger:
            for sql in statements:
                self._answers(sql, cut, ledger, at_cut if sql in there else None)
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
        self._same_in_live_catalog(sql, token, answer)
        with plain(table) as ledger:
            # Rows that were deleted meanwhile are not in what a newer snapshot has of the cut.
            assert not bag(answer) - bag(ledger.sql(sql.format(t="ledger")).to_arrow_table())

    def _in_live_catalog(self, token: str) -> str:
        table = self.story.name
        return f"{self.live.spark_catalog(f'lake@{token}')}.{table.schema}.{table.name}"

    def _same_in_live_catalog(self, sql: str, token: str, answer: pa.Table) -> None:
        """The same rows, or a refusal that says where they are: engines read files, and those of an expired snapshot are gone."""
        at_cut = self._in_live_catalog(token)
        try:
            rows = self.live.lake.session.sql(sql.format(t=at_cut)).toArrow()
        except (PySparkException, Py4JJavaError) as refusal:
            assert "read the cut over Flight SQL" in str(refusal)  # noqa: PT017 - one of two ends
            return
        assert bag(rows) == bag(answer)

    def _answers(
        self,
        sql: str,
        cut: tc.LakeCut,
        ledger: duckdb.DuckDBPyConnection,
        in_live_catalog: str | None,
    ) -> None:
        columns = {column.name for column in self.story.ledger.schema.columns}
        text = "title" if "title" in columns else "label"
        name = str(self.story.name)
        spark = bag(cut.sql(sql.format(t=name, s=text)).toArrow())
        flight = bag(self._flight(sql.format(t=name, s=text), cut.token))
        truth = bag(ledger.sql(sql.format(t="ledger", s=text)).to_arrow_table())
        assert spark == flight == truth, sql
        if in_live_catalog is not None:
            rows = self.live.lake.session.sql(sql.format(t=in_live_catalog, s=text)).toArrow()
            assert bag(rows) == truth, sql

    def _flight(self, sql: str, token: str) -> pa.Table:
        with self.story.server.cursor() as cursor:
            cursor.adbc_statement.set_options(**{CUT_HEADER: token})
            cursor.execute(sql)
            return cursor.fetch_arrow_table()


def tell(
    seed: int, steps: int, portion: int, kafka: Kafka, server: LiveServer, cursor: adbc.Cursor
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
        engines = Engines(story, server, lake, tc.connect(session, server=server.uri))
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
def cursor(live: LiveServer) -> Iterator[adbc.Cursor]:
    with live.cursor() as opened:
        yield opened


def test_spark_answers_what_duckdb_and_the_ledger_answer(
    kafka: Kafka, live: LiveServer, cursor: adbc.Cursor
) -> None:
    """Half of the statements; a soak asks all of them."""
    tell(0, 3, 10, kafka, live, cursor)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 21))
def test_long_stories_have_the_same_answers_in_both(
    seed: int, kafka: Kafka, live: LiveServer, cursor: adbc.Cursor
) -> None:
    tell(seed, 18, 20, kafka, live, cursor)
