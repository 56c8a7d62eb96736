"""The demo as a process of its own: its verdict, every snippet it prints, and that nothing is left of it."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from connectors import child_guard
from planner.errors import LogUnavailable, Unavailable
from tests.fixtures.jdbc import Jdbc, query, values
from tests.fixtures.server import sqlite_catalog
from thermocline.config.settings import Settings
from thermocline.demo.broker import Broker
from thermocline.demo.snippets import jdbc_url, snippets
from thermocline.demo.world import DemoProcess, World, add_column

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
#: Five seconds on two idle cores; this machine may be busy.
START_S = 240.0
#: A guard gives its command 15 s, and who removes the folder waits for all of them.
GONE_S = 60.0


@dataclass
class Demo:
    """A running ``thermocline demo``; everything temporary is below ``folder``."""

    process: subprocess.Popen[str]
    folder: Path
    port: int
    output: Path

    def text(self) -> str:
        return self.output.read_text()

    def wait_for(self, words: str) -> None:
        self.until(lambda: words in self.text(), f"{words!r} in {self.text()}")

    def until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_S
        while not holds():
            assert self.process.poll() is None, f"the demo ended: {self.text()}"
            assert time.monotonic() < deadline, f"never came: {what}"
            time.sleep(0.05)

    def end(self) -> int:
        return self.process.wait(GONE_S)

    def left(self) -> list[str]:
        """What of the demo is still there."""
        items = [str(path) for path in self.folder.iterdir()]
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid != self.process.pid and (
                    process.environ().get("TMPDIR", "").startswith(str(self.folder))
                    or any(str(self.folder) in part for part in process.cmdline())
                ):
                    items.append(" ".join(process.cmdline())[:200])
        with contextlib.closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                items.append(f"port {self.port}")
        return items

    def assert_gone(self) -> None:
        deadline = time.monotonic() + GONE_S
        while self.left():
            assert time.monotonic() < deadline, self.left()
            time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def demo(base: Path, *arguments: str) -> Iterator[Demo]:
    folder, output, port = base / "tmp", base / "output", free_port()
    folder.mkdir()
    with output.open("w") as sink:
        process = subprocess.Popen(
            [
                sys.executable,
                "-u",
                "-m",
                "thermocline",
                "demo",
                "--port",
                str(port),
                *arguments,
            ],
            cwd=ROOT,
            env=os.environ | {"TMPDIR": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            text=True,
        )
    running = Demo(process, folder, port, output)
    try:
        yield running
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(GONE_S)
        running.assert_gone()
        assert "Traceback" not in running.text()


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("Spark …", id="Spark"),
        pytest.param("Kafka broker …", id="broker", marks=pytest.mark.soak),
        pytest.param("Iceberg tables …", id="tables", marks=pytest.mark.soak),
    ],
)
def test_ctrl_c_during_set_up_leaves_nothing(tmp_path: Path, moment: str) -> None:
    with demo(tmp_path) as run:
        run.wait_for(moment)
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 130
        run.assert_gone()
    assert run.text().endswith("thermocline: the demo was stopped; nothing is left behind.\n")


@pytest.mark.soak
def test_ctrl_c_twice_ends_it_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    with demo(tmp_path, "--rate", "100") as run:
        run.wait_for(" hot;")
        run.process.send_signal(signal.SIGINT)
        run.wait_for("stopping Spark")
        began = time.monotonic()
        run.process.send_signal(signal.SIGINT)
        run.end()
        assert time.monotonic() - began < 5


@pytest.mark.soak  # test_broker.py and test_end_to_end_commands.py kill what starts each part
def test_a_killed_demo_leaves_nothing(tmp_path: Path) -> None:
    with demo(tmp_path, "--rate", "100") as run:
        run.wait_for(" hot;")
        run.process.kill()
        assert run.end() == -signal.SIGKILL


def test_a_part_that_died_is_told_with_the_last_thing_it_said(tmp_path: Path) -> None:
    """What the demo asks between two lines; in a soak a whole one loses its broker."""
    log = tmp_path / "part.log"
    command = ["sh", "-c", "echo thermocline: no room.; exit 3"]
    with child_guard.start(log, command) as guard:
        guard.wait(30)
        part = DemoProcess("tierer", guard, log)
        world = World(tmp_path, Settings(), Broker(tmp_path / "kafka"), free_port(), part, part)
        with pytest.raises(LogUnavailable, match=r"^the demo's Kafka broker ended\.$"):
            world.check()
        with pytest.raises(Unavailable, match=r"^the demo's tierer ended: no room\.$"):
            part.check()


@pytest.mark.soak
def test_a_part_that_dies_ends_the_demo_with_a_sentence(tmp_path: Path) -> None:
    with demo(tmp_path, "--rate", "100") as run:
        run.wait_for(" hot;")
        [broker] = [
            value
            for value in psutil.process_iter(["cmdline"])
            if "kafka.Kafka" in (value.info["cmdline"] or ())
            and any(str(tmp_path) in part for part in value.info["cmdline"])
            and "java" in value.info["cmdline"][0]
        ]
        broker.kill()
        assert run.process.wait(GONE_S) == 3
    assert "thermocline: the demo's Kafka broker ended.\n" in run.text()


PYTHON_SNIPPETS = [snippet.title for snippet in snippets(0) if snippet.language == "python"]
STATEMENTS = [snippet.title for snippet in snippets(0) if snippet.text.startswith("SELECT")]


@dataclass(frozen=True)
class Visit:
    """What came of a demo in which each snippet was pasted, and which Ctrl-C ended."""

    port: int
    text: str
    code: int
    pasted: dict[str, subprocess.CompletedProcess[str]]
    statements: list[dict[str, Any]]
    sides: str


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory: pytest.TempPathFactory, jdbc: Jdbc) -> Visit:
    folder = tmp_path_factory.mktemp("demo")
    options = ("--seconds", "900", "--check", "--rate", "400", "--tier-every", "5")
    with demo(folder, *options) as run:
        run.wait_for(" hot;")
        value = snippets(run.port)
        pasted = {
            snippet.title: subprocess.run(
                [sys.executable, "-W", "error", "-c", snippet.text],
                cwd=run.folder,
                capture_output=True,
                text=True,
                timeout=120,
            )
            for snippet in value
            if snippet.title in PYTHON_SNIPPETS
        }
        example = [sys.executable, str(ROOT / "examples" / "both_sides.py")]
        # A publish of another table says nothing of this one.
        run.until(
            lambda: re.search(r"\.flows: \S+ rows = [1-9]\S* cold", run.text()) is not None,
            "rows of flows in Iceberg",
        )
        sides = subprocess.run(
            [*example, f"grpc://127.0.0.1:{run.port}"],
            capture_output=True,
            text=True,
            timeout=120,
        )
        steps = [query(snippet.text) for snippet in value if snippet.title in STATEMENTS]
        outcomes = jdbc.run(steps, port=run.port, url=jdbc_url(run.port))
        # Until then no event has a field that no column asks for.
        run.wait_for(": ignored")
        run.process.send_signal(signal.SIGINT)
        code = run.end()
    return Visit(run.port, run.text(), code, pasted, outcomes, sides.stdout)


def test_answers_are_the_ledger_and_nothing_is_left(demo_run: Visit) -> None:
    # Here a signal is the ordinary end.
    assert demo_run.code == 0, demo_run.text
    for table in ("lake.edr.processes", "lake.edr.flows"):
        assert f"EQUAL: {table}: the answer is the ledger" in demo_run.text
    assert "EQUAL: lake.edr.devices: " in demo_run.text
    assert "off by" not in demo_run.text


@pytest.mark.parametrize("title", PYTHON_SNIPPETS)
def test_a_python_snippet_runs_as_pasted(demo_run: Visit, title: str) -> None:
    [snippet] = [value for value in snippets(demo_run.port) if value.title == title]
    assert snippet.text in demo_run.text
    done = demo_run.pasted[title]
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout) > 40, done.stdout


def test_the_readmes_example_counts_both_sides(demo_run: Visit) -> None:
    [row] = ast.literal_eval(demo_run.sides)
    assert row["iceberg"] + row["kafka"] == row["all_rows"] > row["iceberg"] > 0


@pytest.mark.soak
def test_the_example_starts_and_ends_a_demo_of_its_own() -> None:
    example = [sys.executable, str(ROOT / "examples" / "both_sides.py")]
    done = subprocess.run(example, capture_output=True, text=True, timeout=START_S, check=True)
    [row] = ast.literal_eval(done.stdout)
    assert row["iceberg"] + row["kafka"] == row["all_rows"]


def test_the_jdbc_url_and_the_statements_run_as_pasted(demo_run: Visit) -> None:
    assert jdbc_url(demo_run.port) in demo_run.text
    assert len(STATEMENTS) == 2
    connected, *outcomes, _closed = demo_run.statements
    assert "ok" in connected, connected
    assert len(outcomes) == 2
    assert all(values(outcome) for outcome in outcomes)


def test_snippets_are_printed_without_a_demo() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "thermocline", "demo", "--snippets", "--port", "4242"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    for snippet in snippets(4242):
        assert f"# {snippet.title}\n{snippet.text}" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_the_schemas_of_avro_change_twice_while_answers_are_the_ledger(tmp_path: Path) -> None:
    """A number gets wider, then a field comes; confluent's serializer registers both."""
    options = ("--format", "avro", "--seconds", "900", "--check", "--rate", "200")
    with demo(tmp_path, *options, "--tier-every", "5") as run:
        for words in ("pid: a long now", "packets: a long now", "signer: a column now"):
            run.wait_for(words)
        run.wait_for("service: a column now")
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 0, run.text()
    for table in ("lake.edr.processes", "lake.edr.flows"):
        assert f"EQUAL: {table}: the answer is the ledger" in run.text()
    assert "EQUAL: lake.edr.devices: " in run.text()
    assert "off by" not in run.text()


def test_a_demo_of_avro_without_its_extra_is_told_what_to_install(tmp_path: Path) -> None:
    hidden = (
        "import sys; sys.modules['fastavro'] = None; from thermocline.entry import main; main()"
    )
    command = [sys.executable, "-c", hidden, "demo", "--format", "avro"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "thermocline: --format avro needs a registry's Java 21 and confluent's serializer, which an extra brings: "
        "pip install 'thermocline[spark,demo-avro]'.\n"
    )
    assert list(tmp_path.iterdir()) == []


def refusal(tmp_path: Path, *arguments: str, limit_bytes: int = 0, **variables: str) -> str:
    """Run a demo that must refuse at once; what it says."""

    def limited() -> None:
        if limit_bytes:
            resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))

    saved = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    done = subprocess.run(
        [sys.executable, "-m", "thermocline", "demo", *arguments],
        cwd=ROOT,
        env=saved | {"TMPDIR": str(tmp_path)} | variables,
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=limited,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert list(tmp_path.iterdir()) == []
    return done.stderr


def test_a_machine_without_java_is_told_what_to_install(tmp_path: Path) -> None:
    said = refusal(tmp_path, PATH="")
    assert said == "thermocline: Thermocline needs Java 17: install it, or set JAVA_HOME.\n"


def test_an_old_java_is_told_its_version(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    java = tmp_path_factory.mktemp("java") / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.22\"' >&2\n")
    java.chmod(0o755)
    assert refusal(tmp_path, PATH=f"{java.parent}:{os.environ['PATH']}") == (
        "thermocline: the Java of the search path is 11; Thermocline needs Java 17 or newer.\n"
    )


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as batch:
        port = batch.getsockname()[1]
        assert refusal(tmp_path, "--port", str(port)) == (
            f"thermocline: port {port} is taken by another program on this machine; end it, or name a free "
            f"one with --port.\n"
        )


def test_too_little_memory_is_told_before_anything_starts(tmp_path: Path) -> None:
    assert refusal(tmp_path, limit_bytes=2_300_000_000) == (
        "thermocline: the demo needs 2.5 GB of free memory and 2.3 GB is free; end other programs, or raise "
        "the limit of the container or shell it runs in.\n"
    )


def test_a_column_is_added_also_where_another_commit_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ("edr", "flows")
    with contextlib.closing(load_catalog("lake", **sqlite_catalog(tmp_path))) as catalog:
        catalog.create_namespace("edr")
        catalog.create_table(table, pa.schema([("id", pa.int64())]))
        load_table, commits, is_first = catalog.load_table, iter(range(3)), [True]

        def load_and_be_overtaken(name: tuple[str, ...]) -> Table:
            loaded = load_table(name)
            if is_first[0] and next(commits, None) is not None:
                is_first[0] = False  # the other commit loads the table, too
                load_table(name).append(pa.table({"id": [1]}))
                is_first[0] = True
            return loaded

        monkeypatch.setattr(catalog, "load_table", load_and_be_overtaken)
        add_column(catalog, table, "service")
        assert load_table(table).schema().column_names == ["id", "service"]
        assert load_table(table).scan().count() == 3
