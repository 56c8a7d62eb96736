"""Topics that Debezium wrote as keyed tables, by the commands: SQL answers what a SELECT gave in their source in the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.fixtures.commands import CliServer, CliSite, wait_until
from tests.fixtures.kafka import Kafka
from tests.harness.recorded import FINAL, FORMS, records

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

COLUMNS = (
    *("--column", "name:string", "--column", "balance:decimal(10, 2)", "--column", "born:date"),
    *("--column", "seen:timestamptz", "--column", "at:timestamp", "--epoch", "at=us"),
    *("--column", "active:boolean", "--column", "visits:long", "--column", "data:binary"),
    *("--column", "uid:uuid", "--column", "tags:list<string>"),
)
SELECT = (
    'SELECT id, name, balance, born, seen::VARCHAR, "at", active, visits, data, uid::VARCHAR, tags '
    "FROM lake.net.{} ORDER BY id"
)

_TEXTS: dict[str, Callable[[Any], Any]] = {
    "seen": lambda value: value.strftime("%Y-%m-%d %H:%M:%S+00"),
    "uid": str,
}


def expected() -> list[tuple[Any, ...]]:
    return [
        tuple(
            _TEXTS.get(name, lambda value: value)(value) if value is not None else None
            for name, value in row.items()
        )
        for row in FINAL
    ]


@pytest.mark.parametrize(
    "forms",
    [
        pytest.param(("events", "flat_by_default"), id="both envelopes"),
        pytest.param(tuple(FORMS), id="all forms", marks=pytest.mark.soak),
    ],
)
def test_tables_over_debeziums_topics_have_the_rows_of_their_source(
    kafka: Kafka, cli_site: CliSite, cli_server: CliServer, forms: tuple[str, ...]
) -> None:
    for form in forms:
        topic = kafka.topic(1)
        both = records(form)
        kafka.produce(topic, [value for _, value in both], keys=[key for key, _ in both])
        code, out, err = cli_site.run(
            *("create", f"lake.net.{form}", "--topic", topic, "--mode", "upsert"),
            *("--key", "id:int", "--envelope", FORMS[form], *COLUMNS),
        )
        assert (code, err) == (0, ""), out + err

    def check(suffix: str = "") -> None:
        for form in forms:
            assert cli_site.ask(SELECT.format(f'"{form}{suffix}"')) == expected(), form

    wait_until(lambda: cli_site.answers("SELECT 1 FROM lake.net.flat_by_default"), 30)
    check()
    code, out, err = cli_site.run("tier", "--once")
    assert code == 0, out + err
    assert out.count("published 5 rows") == len(forms), out
    check()
    wait_until(lambda: len(cli_site.ask(SELECT.format('"flat_by_default$cold"'))) == 5, 30)
    check("$cold")
