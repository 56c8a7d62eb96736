"""``docs/change-data.md`` from an empty PostgreSQL, as its reader follows it: Kafka Connect, Debezium, the commands, SQL.

Then the table goes on following that database: random changes, and kills of the worker.
"""

from __future__ import annotations

import random
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import PRINTS, ROOT, Block, blocks
from tests.fixtures.commands import CliServer, CliSite, wait_until
from tests.fixtures.kafka import Kafka
from tests.fixtures.kafka_connect import ConnectWorker
from tests.fixtures.postgresql import PostgreSQL

pytestmark = [pytest.mark.soak, pytest.mark.kafka, pytest.mark.spark]

PAGE = ROOT / "docs" / "change-data.md"
LANGUAGES = ("sql", "properties", "bash", "text")
TOPIC = "shop.public.customers"
ROWS = 'SELECT id, name, balance, "at", data FROM {} ORDER BY id'
ARRIVES_S = 180.0


class Reader:
    """Does what blocks say. Of the connector's settings the server's address is replaced; the worker takes its own file's place."""

    def __init__(
        self, kafka: Kafka, server: PostgreSQL, site: CliSite, worker: ConnectWorker
    ) -> None:
        self.kafka, self.server, self.site, self.worker = kafka, server, site, worker
        self.connector = ""
        self.printed = ""
        server.administrate("CREATE DATABASE shop")

    def follow(self, block: Block) -> None:
        if block.directive == PRINTS:
            parts = map(re.escape, block.text.split("…"))
            assert re.fullmatch(".*".join(parts), self.printed, re.DOTALL), self.printed
        elif block.language == "sql":
            self.server.administrate(block.text, "shop")
        elif block.language == "properties":
            host = "database.hostname=localhost\ndatabase.port=5432\n"
            assert host in block.text
            ours = f"database.hostname=127.0.0.1\ndatabase.port={self.server.port}\n"
            self.connector = block.text.replace(host, ours)
        else:
            self.printed = "".join(map(self._run, block.text.replace("\\\n", " ").splitlines()))

    def _run(self, line: str) -> str:
        name, *words = shlex.split(line)
        if name == "connect-standalone.sh":
            assert words == ["connect-standalone.properties", "customers.properties"]
            self.worker.start(self.connector)
            self.until(lambda: TOPIC in self.kafka.topics())
            return ""
        assert name == "thermocline"
        if words[0] == "sql":
            self.until(self.is_even)
        code, out, err = self.site.run(*words)
        assert code == 0, out + err
        return out

    def until(self, holds: Any) -> None:
        def checked() -> bool:
            self.worker.check()
            return bool(holds())

        wait_until(checked, ARRIVES_S)

    def expected(self) -> list[tuple[Any, ...]]:
        return [
            (*row[:4], None if row[4] is None else bytes(row[4]))
            for row in self.server.select(ROWS.format("customers"), "shop")
        ]

    def is_even(self) -> bool:
        """Whether the table has the rows of PostgreSQL; ``create`` may be a moment ago."""
        name = "lake.shop.customers"
        return self.site.answers(f"SELECT 1 FROM {name}") and (
            self.site.ask(ROWS.format(name)) == self.expected()
        )


@pytest.fixture
def reader(
    kafka: Kafka,
    replicated: PostgreSQL,
    cli_site: CliSite,
    cli_server: CliServer,
    tmp_path: Path,
) -> Iterator[Reader]:
    worker = ConnectWorker(tmp_path, kafka.bootstrap)
    try:
        yield Reader(kafka, replicated, cli_site, worker)
    finally:
        worker.kill()


@pytest.mark.timeout(900)
def test_the_page_works_as_written_and_the_table_goes_on(reader: Reader) -> None:
    followed = [each for each in blocks(PAGE) if each.language in LANGUAGES]
    assert [each.language for each in followed] == [
        *("sql", "properties", "bash", "bash", "text"),
        *("sql", "bash", "text"),
    ]
    for block in followed:
        reader.follow(block)
    at = random.Random(47)
    for turn in range(4):
        for _ in range(30):
            reader.server.administrate(statement(at), "shop")
        if turn % 2:
            # What it sent in the last seconds comes once more, older states after newer ones.
            reader.worker.kill()
            for _ in range(5):
                reader.server.administrate(statement(at), "shop")
            reader.worker.start(reader.connector)
        reader.until(reader.is_even)
        code, out, err = reader.site.run("tier", "lake.shop.customers", "--once")
        assert code == 0, out + err
        assert reader.is_even()
    cold = ROWS.format('lake.shop."customers$cold"')
    reader.until(lambda: reader.site.ask(cold) == reader.expected())


def statement(at: random.Random) -> str:
    key, other = at.randrange(12), at.randrange(12)
    return at.choice(
        [
            f"INSERT INTO customers VALUES ({key}, 'new', {key}, now(), repeat('{other}', 9000)::bytea) "
            f"ON CONFLICT (id) DO UPDATE SET name = 'again'",
            f"UPDATE customers SET balance = NULL, at = NULL WHERE id = {key}",
            f"UPDATE customers SET balance = {other} + 0.25 WHERE id < {key}",
            f"DELETE FROM customers WHERE id = {key}",
            f"UPDATE customers SET id = {other} WHERE id = {key} AND NOT EXISTS (SELECT FROM customers WHERE id = {other})",
            f"BEGIN; DELETE FROM customers WHERE id = {key}; INSERT INTO customers VALUES ({key}, 'back'); COMMIT",
            "BEGIN; UPDATE customers SET name = 'gone'; ROLLBACK",
        ]
    )
