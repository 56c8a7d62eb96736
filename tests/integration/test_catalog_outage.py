"""A catalog that stops answering: statements go on from the last pin, and the state is there to see."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from proxy.ops.states import degraded
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import settings_of, sqlite_catalog
from tests.harness.followed_parts import COLUMNS, Writer, ask, bind, count
from thermocline.serve.assembly import running_components

REFRESH_S = 0.2
WAIT_S = 60.0


@contextmanager
def locked(catalog: Path) -> Iterator[None]:
    """Hold the catalog's database so that nobody else can even read it."""
    with closing(sqlite3.connect(catalog, isolation_level=None)) as holder:
        holder.execute("PRAGMA busy_timeout = 30000")
        holder.execute("BEGIN EXCLUSIVE")
        yield
        holder.execute("ROLLBACK")


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)


def test_statements_go_on_from_the_last_pin_and_say_so(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    writer = Writer(kafka, topic)
    table = bind(kafka, tmp_path, topic, COLUMNS)
    catalog = sqlite_catalog(tmp_path)
    # The database's own patience with a lock, five seconds, would be most of the test.
    catalog["uri"] += "?timeout=0.2"
    configured = settings_of({"lake": catalog}, kafka.settings, pin_refresh_s=REFRESH_S)
    seam = (
        f'SELECT catalog_failing_s, catalog_error, pin_age_s FROM lake.net."{table.name}$seam"'
    )
    with running_components(configured) as parts:

        def failing() -> bool:
            return ask(parts, seam)["catalog_failing_s"][0].as_py() is not None

        writer.write(10)
        assert count(parts, table) == 10
        assert not failing()
        assert degraded(parts.pins.status, parts.tails.states) == []
        with locked(tmp_path / "catalog.db"):
            until(failing)
            for _ in range(3):
                writer.write(10)
                assert count(parts, table) == writer.acknowledged
            (fields,) = ask(parts, seam).to_pylist()
            assert fields["catalog_error"] == "CatalogUnavailable"
            assert fields["pin_age_s"] >= fields["catalog_failing_s"] > 0
            (state,) = degraded(parts.pins.status, parts.tails.states)
            assert (state["table"], state["what"]) == (str(table), "pin")
            assert (state["error"], state["answers"]) == ("CatalogUnavailable", True)
        until(lambda: not failing())
        writer.write(10)
        assert count(parts, table) == writer.acknowledged
        assert degraded(parts.pins.status, parts.tails.states) == []
