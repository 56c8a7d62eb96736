"""The client for people over both sides of a table: the quiet line, the seam, and the notebook that shows them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import pyarrow as pa
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import thermocline_client
from planner.names import TableName
from planner.schema import Column
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import SqlServer, TieredServer
from tests.harness.environments import python_with
from thermocline_client.seam import seam_of

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "zero_lag.ipynb"
COLUMNS = [
    Column(0, "protocol", pa.string()),
    Column(0, "dst_port", pa.int32()),
    Column(0, "bytes", pa.int64()),
]
#: What executes notebooks as JupyterLab does, and what this one imports.
NOTEBOOK_PACKAGES = (
    "nbclient==0.10.2",
    "ipykernel==6.30.1",
    "adbc-driver-flightsql==1.13.0",
    "adbc-driver-manager==1.13.0",
    "pyarrow==26.0.1",
    "pandas>=2",
    "matplotlib>=3.10",
)


def produce(kafka: Kafka, topic: str, ports: list[int]) -> None:
    kafka.produce(
        topic,
        [
            json.dumps({"protocol": "tcp", "dst_port": port, "bytes": 2**53 + 1}).encode()
            for port in ports
        ],
    )


def drawn(answer: thermocline_client.StatementAnswer) -> str:
    return re.sub(r"<[^>]+>", " ", answer._repr_html_())


@pytest.mark.spark
def test_the_quiet_line_counts_both_sides_and_tells_the_newest_records_age(
    tiered_server: TieredServer, kafka: Kafka
) -> None:
    topic = kafka.topic(2)
    produce(kafka, topic, [443] * 40)
    table = tiered_server.bind(topic, COLUMNS)
    tiered_server.tier(table)
    tiered_server.refresh(table)
    produce(kafka, topic, [53] * 7)
    with thermocline_client.connect(tiered_server.uri) as lake:
        answer = lake.ask(f"SELECT dst_port FROM {table} WHERE bytes < 0")
        assert (len(answer), answer.facts.cold_rows, answer.facts.hot_rows) == (0, 40, 7)
        assert re.search(
            r"47 rows = 40 cold \+ 7 hot, [\d.]+ m?s, newest [\d.]+ m?s old, cut c:\S{12}…",
            drawn(answer),
        )
        # Asked late, it is still what stood there then.
        produce(kafka, topic, [22] * 5)
        late = lake.ask(f"SELECT * FROM {table}", cut=answer.cut)
        assert (len(late), late.facts.hot_rows) == (47, 7)
        assert lake.ask(f"SELECT * FROM {table}").facts.hot_rows == 12
        cold = lake.ask(f"SELECT * FROM {table}", freshness="cold")
        assert (len(cold), cold.facts.cold_rows, cold.facts.hot_rows) == (40, 40, 0)
        assert "newest" not in drawn(cold)
        joined = lake.ask(f"SELECT count(*) FROM {table} a JOIN {table} b USING (dst_port)")
        assert (joined.facts.cold_rows, joined.facts.hot_rows) == (40, 12)


@pytest.mark.spark
def test_the_seam_is_drawn_where_the_server_says_it_is(
    tiered_server: TieredServer, kafka: Kafka
) -> None:
    topic = kafka.topic(3)
    produce(kafka, topic, [443] * 30)
    table = tiered_server.bind(topic, COLUMNS)
    with thermocline_client.connect(tiered_server.uri) as lake:
        before = seam_of(lake, str(table))
        assert sum(each.tail for each in before.partitions) == 30
        tiered_server.tier(table)
        tiered_server.refresh(table)
        produce(kafka, topic, [53] * 4)
        after = seam_of(lake, str(table))
        stated = lake.ask(
            f'SELECT kafka_partition, watermark, log_end FROM {table.catalog}.{table.schema}."{table.name}$seam"'
        ).arrow()
    assert sum(each.tail for each in after.partitions) == 4
    assert {(each.partition, each.watermark, each.log_end) for each in after.partitions} == {
        tuple(row.values()) for row in stated.to_pylist()
    }
    text = re.sub(r"<[^>]+>", " ", after._repr_html_())
    assert f"{table}: 3 partitions, 4 offsets in Kafka alone" in text


@pytest.fixture(scope="module")
def edr_flows(server: SqlServer, kafka: Kafka) -> TableName:
    """A table by the name and with the columns that the notebook asks of the demo's."""
    topic = kafka.topic(2)
    produce(kafka, topic, [443] * 60 + [53] * 30 + [22] * 10)
    return server.bind(topic, COLUMNS, name=TableName("lake", ("edr",), "flows"))


def cells() -> list[str]:
    return [
        "".join(cell["source"])
        for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "code"
    ]


@pytest.fixture
def shell(server: SqlServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    matplotlib.use("agg")
    monkeypatch.setenv("THERMOCLINE_URI", server.uri)
    shell = InteractiveShell.instance()
    yield shell
    for connection in shell.magics_manager.registry["ThermoclineMagics"]._connections.values():
        connection.close()
    InteractiveShell.clear_instance()


@pytest.mark.usefixtures("edr_flows")
def test_each_cell_of_the_notebook_runs(shell: Any) -> None:
    answers = []
    with capture_output() as captured:
        for cell in cells():
            done = shell.run_cell(cell.replace("--live 3s", "--live 0.1s"))
            assert done.success, (cell, captured.stdout)
            answers.append(done.result)
    grouped, both = answers[1], answers[-1]
    assert grouped.arrow().to_pylist() == [
        {"protocol": "tcp", "flows": 100, "bytes": 100 * (2**53 + 1)}
    ]
    assert answers[-2] is True
    assert both.arrow().to_pylist() == [{"iceberg": 0, "kafka": 100, "all_rows": 100}]


def test_the_notebook_is_kept_without_what_it_printed() -> None:
    """An answer in it would be of one machine, and a password might be."""
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


EXECUTE = """
import sys, nbformat, nbclient
notebook = nbformat.read(sys.argv[1], 4)
nbclient.NotebookClient(notebook, timeout=120).execute()
for cell in notebook.cells:
    for output in cell.get("outputs", ()):
        data = output.get("data", {})
        print(data.get("text/html") or data.get("text/plain") or output.get("text"), "image/png" in data)
"""


@pytest.mark.tools
@pytest.mark.timeout(1_500)
@pytest.mark.usefixtures("edr_flows")
def test_the_notebook_is_executed_by_jupyters_own_client(server: SqlServer) -> None:
    python = python_with("notebook", NOTEBOOK_PACKAGES)
    done = subprocess.run(
        [python, "-c", EXECUTE, NOTEBOOK],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "clients" / "python"),
            "THERMOCLINE_URI": server.uri,
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "100 rows = 0 cold + 100 hot, " in done.stdout
    assert "lake.edr.flows: 2 partitions, 100 offsets in Kafka alone" in done.stdout
    assert " True\n" in done.stdout, "no plot"
