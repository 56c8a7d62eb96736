"""Tiering on a real cluster: the job brings its code, loses an executor, and shows no secret anywhere."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tarfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from connectors.iceberg.create import NewTable, create_table
from connectors.iceberg.store import IcebergStore
from connectors.spark.catalogs import catalog_conf
from planner.names import TableName
from tests.fixtures.rest_catalog import RestCatalog
from tests.fixtures.spark import BINDING, PAYLOAD, BoundTable, SparkLake, first_watermark
from tests.harness.forked_python import plain_python
from tests.harness.generated_log import expected_rows
from tests.harness.spark_cluster import running_cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 600.0
SECRET = "hunter2-of-the-catalog"


@dataclass(frozen=True)
class Cluster:
    url: str
    folder: Path

    def executors(self) -> list[psutil.Process]:
        return self._running("CoarseGrainedExecutorBackend")

    def workers(self) -> list[psutil.Process]:
        return self._running("deploy.worker.Worker")

    def _running(self, word: str) -> list[psutil.Process]:
        """This cluster's: another one may run on the machine."""
        return [
            value
            for value in psutil.process_iter(["cmdline", "cwd"])
            if word in " ".join(value.info["cmdline"] or ())
            and (value.info["cwd"] or "").startswith(str(self.folder))
        ]


@dataclass
class Session:
    """A process that tiers on the cluster, one round per line it is told: ``tests.integration.cluster_tierer``."""

    process: subprocess.Popen[str]

    def order(self, *ends: int, gate: Path | None = None) -> None:
        assert self.process.stdin is not None
        request = {"ends": ends, "gate": None if gate is None else str(gate)}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the tierer ended"
        fields: dict[str, Any] = json.loads(line)
        return fields


@pytest.fixture
def cluster(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Cluster]:
    """Of one worker, which starts another executor for one that is lost; ``param`` says how many else."""
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, getattr(request, "param", 1)) as url:
        yield Cluster(url, folder)


@pytest.fixture
def session(cluster: Cluster, flows: BoundTable, tmp_path: Path) -> Iterator[Session]:
    with tiering(cluster, flows, tmp_path, {}) as started:
        yield started


@contextlib.contextmanager
def tiering(
    cluster: Cluster, table: BoundTable, tmp_path: Path, conf: dict[str, str]
) -> Iterator[Session]:
    request = {"master": cluster.url, "catalogs": table.catalogs, "table": str(table.name)}
    request |= {"conf": conf, "environment": str(packed(tmp_path))}
    with (tmp_path / "tierer.log").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.cluster_tierer", json.dumps(request)],
            cwd=ROOT,
            # A Python of the executors' own: what they run must have been sent.
            env=plain_python() | {"CLUSTER_SECRET": SECRET},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    with process:
        yield Session(process)
        try:
            # The end of its input is the end of its work.
            process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()


def packed(folder: Path) -> Path:
    """What venv-pack makes, of links alone: the interpreter that it was made with is on the machine there, too."""
    archive, python = folder / "environment.tar.gz", Path(sys.executable)
    venv = folder / "packed"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(python.resolve())
    (venv / "lib").symlink_to(Path(sys.prefix) / "lib")
    shutil.copy(Path(sys.prefix) / "pyvenv.cfg", venv)
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(venv, arcname=".")
    return archive


def test_the_job_ships_itself_hides_its_secrets_and_survives_an_executor(
    cluster: Cluster, session: Session, flows: BoundTable, tmp_path: Path
) -> None:
    session.order(3_000, 2_000)
    first = session.answer()
    assert first["published"]
    assert flows.rows() == expected_rows(3_000, 2_000)
    assert all("thermocline-executors.zip" in path for path in first["imported_from"])
    unpacked = {Path(path).relative_to(cluster.folder).name for path in first["interpreters"]}
    assert unpacked == {"environment"}
    _no_secret_in_any_command_line()
    _no_secret_in_the_ui(first["ui"])
    gate = tmp_path / "gate"
    session.order(6_000, 4_000, gate=gate)
    _until(gate.exists)
    cluster.executors()[0].kill()
    with _open_gate(gate):
        assert session.answer()["published"]
    assert flows.rows() == expected_rows(6_000, 4_000)
    assert flows.watermark() == {0: 6_000, 1: 4_000}


@pytest.mark.soak
@pytest.mark.parametrize("cluster", [2], indirect=True)
def test_a_worker_is_lost_in_a_stage_over_s3_and_rest_with_speculation_on(
    cluster: Cluster,
    lake: SparkLake,
    rest_catalog: RestCatalog,
    tmp_path: Path,
) -> None:
    catalogs = {"elsewhere": rest_catalog.catalog()}
    for key, value in catalog_conf("elsewhere", catalogs["elsewhere"]).items():
        lake.session.conf.set(key, value)
    name = TableName("elsewhere", (rest_catalog.namespace(),), "flows")
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.multiplier": "1.1",
    }
    with contextlib.closing(IcebergStore(catalogs)) as store:
        create_table(
            catalogs, NewTable(name, PAYLOAD, BINDING), first_watermark(0, 0, binding=BINDING)
        )
        table = BoundTable(lake.session, store, catalogs, name)
        with tiering(cluster, table, tmp_path, speculation) as session:
            session.order(8_000, 6_000)
            assert session.answer()["published"]
            assert table.rows() == expected_rows(8_000, 6_000)
            gate = tmp_path / "gate"
            session.order(16_000, 12_000, gate=gate)
            _until(gate.exists)
            [worker, *_] = cluster.workers()
            for process in (*worker.children(recursive=True), worker):
                process.kill()
            with _open_gate(gate):
                assert session.answer()["published"]
            assert table.rows() == expected_rows(16_000, 12_000)
            assert table.watermark() == {0: 16_000, 1: 12_000}


@contextlib.contextmanager
def _open_gate(gate: Path) -> Iterator[None]:
    """Let every attempt at the gate pass: those of the task that was killed too."""
    closed = threading.Event()

    def opener() -> None:
        while not closed.wait(0.05):
            gate.unlink(missing_ok=True)

    thread = threading.Thread(target=opener)
    thread.start()
    try:
        yield
    finally:
        closed.set()
        thread.join()


def _no_secret_in_any_command_line() -> None:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                value = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            assert SECRET.encode() not in value, value[:200]


def _no_secret_in_the_ui(ui: str) -> None:
    def page(path: str) -> str:
        text: str = urllib.request.urlopen(f"{ui}{path}", timeout=20).read().decode()
        return text

    [application] = json.loads(page("/api/v1/applications"))
    base = f"/api/v1/applications/{application['id']}"
    environment = page(f"{base}/environment")
    assert "spark.sql.catalog.lake.header.Authorization" in environment
    for path in (
        "/environment/",
        f"{base}/environment",
        f"{base}/sql?details=true",
        f"{base}/jobs",
    ):
        assert SECRET not in page(path), path


def _until(holds: Any) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
