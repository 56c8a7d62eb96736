"""From a topic through ``thermocline tier`` to an answer over both sides of the seam, on whatever catalog and store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from planner.names import TableName
from planner.schema import Column
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import SqlServer, settings_of
from tests.harness.forked_commands import run
from thermocline.serve.assembly import running_server


def check_whole_loop(
    properties: Mapping[str, str],
    kafka: Kafka,
    folder: Path,
    *,
    name: TableName | None = None,
    **server: Any,
) -> None:
    """Bind a table, tier a hundred records, send one more: all are answered, and the tiered ones from Iceberg."""
    topic = kafka.topic(1)
    settings = settings_of({"lake": properties}, kafka.settings, **server)
    with running_server(settings) as running:
        sql = SqlServer(running, settings)
        table = sql.bind(topic, [Column(0, "id", pa.int64())], name=name)
        kafka.produce(topic, [b'{"id": %d}' % number for number in range(100)])
        code, out, err = _tiered(properties, kafka, folder, table)
        assert code == 0, out + err[-6_000:]
        kafka.produce(topic, [b'{"id": 1000}'])
        sql.refresh(table)
        answer = sql.ask(f"SELECT count(*) AS n, sum(id) AS s FROM {table}")
        assert answer.to_pylist() == [{"n": 101, "s": 4_950 + 1_000}]
        cold = sql.ask(
            f'SELECT count(*) AS n, sum(id) AS s FROM {table.namespace[0]}."{table.name}$cold"'
        )
        assert cold.to_pylist() == [{"n": 100, "s": 4_950}]


def _tiered(
    properties: Mapping[str, str], kafka: Kafka, folder: Path, table: TableName
) -> tuple[int, str, str]:
    """``thermocline tier --once`` as a process: exit code, standard output and error."""
    config = folder / "thermocline.toml"
    lake = "".join(f'"{key}" = {json.dumps(value)}\n' for key, value in properties.items())
    config.write_text(
        f'[catalogs.lake]\n{lake}[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n'
        '[tier]\nmaster = "local[2]"\ndriver_memory = "512m"\n'
    )
    return run(("--config", str(config), "tier", "--once", str(table)), folder, timeout_s=240)
