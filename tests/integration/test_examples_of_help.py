"""The examples of the commands' help, run as they stand: a table ``lake.net.flows``, and a server beside it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from _pytest.mark import ParameterSet

from planner.names import TableName
from planner.schema import Column
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import SqlServer
from tests.harness.forked_python import Programs, forked_programs
from thermocline.commands import completion, explain, sql, status, tail
from thermocline.connect import URI_VARIABLE

pytestmark = pytest.mark.kafka

COLUMNS = [
    Column(1, "host", pa.string()),
    Column(2, "dst_port", pa.int32()),
    Column(3, "bytes", pa.int64()),
]
MODULES = (sql, explain, tail, status, completion)
#: These go on until Ctrl-C, or ask at a prompt.
ENDLESS = re.compile(r"tail (?!.*--once)|--watch|thermocline sql$")
#: Programs a user has beside ours; what comes to them is what counts here.
STAND_INS = {"jq": "cat >/dev/null", "consumer": "cat >/dev/null"}


#: Starts a Spark of its own; test_spark_engine.py runs the command in the one there is.
SLOW = "--engine spark"


def examples() -> list[ParameterSet]:
    lines = [
        line.strip()
        for module in MODULES
        for line in module.EXAMPLES.splitlines()
        if line.startswith("  thermocline ")
    ]
    bare = [re.sub(r"\s{3,}.*", "", line) for line in lines]
    return [
        pytest.param(line, marks=[pytest.mark.soak] if SLOW in line else [])
        for line in bare
        if not ENDLESS.search(line.split("|")[0].strip())
    ]


@pytest.fixture(scope="module")
def flows(kafka: Kafka, server: SqlServer) -> TableName:
    topic = kafka.topic(2)
    name = server.bind(topic, COLUMNS, name=TableName("lake", ("net",), "flows"))
    kafka.produce(
        topic,
        [
            json.dumps({"host": f"h{n}", "dst_port": [22, 443][n % 2], "bytes": n}).encode()
            for n in range(40)
        ],
    )
    return name


@pytest.fixture(scope="module")
def programs() -> Iterator[Programs]:
    """``thermocline`` for ``PATH``."""
    # A socket lies in it, whose path may not be long.
    with TemporaryDirectory(prefix="help-") as folder, forked_programs(Path(folder)) as made:
        yield made


@pytest.mark.parametrize("line", examples())
def test_an_example_runs(
    line: str, flows: TableName, server: SqlServer, programs: Programs, tmp_path: Path
) -> None:
    catalog = "\n".join(
        f"{key} = {json.dumps(value)}"
        for key, value in server.settings.catalogs["lake"].items()
    )
    bootstrap = server.settings.kafka["bootstrap.servers"]
    (tmp_path / "thermocline.toml").write_text(
        f'[catalogs.lake]\n{catalog}\n[kafka]\n"bootstrap.servers" = "{bootstrap}"\n'
        f"[server]\nport = {server.port}\n"
    )
    (tmp_path / "report.sql").write_text(f"SELECT count(*) FROM {flows};")
    home = tmp_path / "home"
    for folder in (
        ".local/share/bash-completion/completions",
        ".config/fish/completions",
        "zsh",
    ):
        (home / folder).mkdir(parents=True)
    functions = [f"{name}() {{ {body}; }}" for name, body in STAND_INS.items()]
    shell = "\n".join(
        (
            "set -eo pipefail",
            f'fpath=(unused "{home}/zsh")',  # zsh counts from one
            *functions,
            line,
        )
    )
    environment = {"HOME": str(home), "PATH": f"{programs.path}:/usr/bin:/bin"}
    environment["PYTHONPATH"] = str(Path.cwd())
    if f"${URI_VARIABLE}" in line:
        environment[URI_VARIABLE] = f"grpc://127.0.0.1:{server.port}"
    done = subprocess.run(
        ["bash", "-c", shell],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    # The server has tables of other tests, and status tells of those in trouble.
    assert done.returncode in ((0, 6) if "status" in line else (0,)), done.stderr
    assert done.stderr == ""
