"""The commands over an Avro topic, as users run them: created, served, tiered, evolved, verified."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.commands import CliSite, cli_serving, wait_until
from tests.fixtures.kafka import Kafka
from tests.fixtures.schema_registry import ApicurioRegistry

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

FIRST = '{"type":"record","name":"Flow","fields":[{"name":"id","type":"int"},{"name":"src","type":"string"}]}'
SECOND = (
    '{"type":"record","name":"Flow","fields":[{"name":"id","type":"long"},'
    '{"name":"port","type":["null","int"],"default":null},{"name":"src","type":"string"}]}'
)


def test_a_table_follows_its_writers(
    kafka: Kafka, schema_registry: ApicurioRegistry, cli_site: CliSite
) -> None:
    with cli_site.config.open("a") as file:
        file.write(f'\n[schema_registry]\nurl = "{schema_registry.url}"\n')
    topic = kafka.topic()

    def write(schema: str, *records: dict[str, Any]) -> None:
        kafka.produce(topic, schema_registry.serialized(topic, schema, records))

    def run(*arguments: str) -> str:
        code, out, err = cli_site.run(*arguments)
        assert code == 0, err
        return out

    write(FIRST, {"id": 1, "src": "a"}, {"id": 2, "src": "b"})
    assert "from" in run("create", "lake.net.flows", "--topic", topic, "--format", "avro")
    with cli_serving(cli_site):
        rows = "SELECT id, src FROM lake.net.flows ORDER BY id"
        wait_until(lambda: cli_site.answers(rows), 10)
        before = cli_site.ask(rows)
        assert before == [(1, "a"), (2, "b")]
        run("tier", "--once", "lake.net.flows")
        assert cli_site.ask(rows) == before
        write(
            SECOND, {"id": 3, "port": 80, "src": "c"}, {"id": 1 << 40, "port": None, "src": "d"}
        )
        run("tier", "--once", "lake.net.flows")
        wider = "SELECT id, port, src FROM lake.net.flows ORDER BY id"
        wait_until(lambda: cli_site.answers(wider), 10)
        tiered = [(1, None, "a"), (2, None, "b"), (3, 80, "c"), (1 << 40, None, "d")]
        assert cli_site.ask(wider) == tiered
        write(FIRST, {"id": 4, "src": "e"})
        assert cli_site.ask(wider) == sorted([*tiered, (4, None, "e")])
    assert "has every version" in run("schemas", "plan", "lake.net.flows")
    assert run("schemas", "show", "lake.net.flows").count("same") == 2
    run("verify", "lake.net.flows")
