"""``thermocline tier`` as a process: several tables, one of them poisoned, metrics, and a stop within its bound."""

from __future__ import annotations

import json
import os
import re
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from pyiceberg.catalog import load_catalog

from connectors.iceberg.create import NewTable, create_table
from connectors.iceberg.store import IcebergStore
from connectors.kafka.log import KafkaLog
from planner.names import TableName
from planner.seam.binding import Binding
from planner.seam.snapshots import STAGE_BRANCH_PREFIX
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import sqlite_catalog
from tests.fixtures.spark import PAYLOAD
from tests.harness.forked_commands import Started, run, start
from thermocline.commands.create import first_watermark

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 200.0
STOP_S = 4.0
#: Of the list of tables; with the default a new one is tiered within a minute.
REFRESH_S = 5.0
#: How much longer it takes to end in order, on a busy machine.
END_S = 16.0
SECRET = "hunter2-of-the-tierer"


@dataclass
class Tierer:
    """The running command; ``said`` is all it printed so far."""

    process: Started
    log: Path

    @property
    def said(self) -> str:
        return self.log.read_text()

    def wait_for(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not holds():
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.5)  # what is asked for loads SQLite, which the tierer writes

    def metrics(self) -> str:
        port = re.search(r"metrics on port (\d+)", self.said)
        assert port is not None, self.said
        with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/metrics", timeout=5) as value:
            text: str = value.read().decode()
            return text

    def stop(self) -> float:
        """Ask it to stop; seconds until it was gone."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        return time.monotonic() - began


@dataclass
class TierSite:
    folder: Path
    kafka: Kafka
    started: list[Tierer] = field(default_factory=list)

    @property
    def catalogs(self) -> dict[str, dict[str, str]]:
        return {"lake": sqlite_catalog(self.folder)}

    def create(self, topic: str) -> TableName:
        name = TableName("lake", ("net",), topic.replace("-", "_"))
        binding = Binding(topic)
        with KafkaLog(self.kafka.settings) as log:
            first = first_watermark(log.measure([topic])[topic], binding)
        create_table(self.catalogs, NewTable(name, PAYLOAD, binding), first)
        return name

    def watermark(self, name: TableName) -> int:
        store = IcebergStore(self.catalogs)
        try:
            mark = store.pin(name).watermark
            assert mark is not None
            return sum(offset for _, offset in mark.next)
        finally:
            store.close()

    def configure(self) -> Path:
        config = self.folder / "thermocline.toml"
        lake = "".join(f"{k} = {json.dumps(v)}\n" for k, v in self.catalogs["lake"].items())
        config.write_text(
            f'[catalogs.lake]\n{lake}"header.Authorization" = "{SECRET}"\n'
            f'[kafka]\n"bootstrap.servers" = "{self.kafka.bootstrap}"\n"sasl.password" = "{SECRET}"\n'
            f'[tier]\nmaster = "local[2]"\nat_once = 2\npoll_s = 0.2\nrefresh_s = {REFRESH_S}\nstop_s = {STOP_S}\n'
            f'[tier.conf]\n"spark.driver.memory" = "512m"\n'
        )
        return config

    def start(self, *arguments: str, **environment: str) -> Tierer:
        log = self.folder / f"tierer-{len(self.started)}.log"
        arguments = ("--config", str(self.configure()), "tier", *arguments)
        process = start(arguments, ROOT, log, os.environ | environment)
        self.started.append(Tierer(process, log))
        return self.started[-1]

    def run(self, *arguments: str) -> tuple[int, str]:
        """Exit code, and all that a tierer said that ends by itself."""
        arguments = ("--config", str(self.configure()), "tier", *arguments)
        code, out, err = run(arguments, ROOT, TIMEOUT_S)
        return code, out + err


@pytest.fixture
def site(kafka: Kafka, tmp_path: Path) -> Iterator[TierSite]:
    site = TierSite(tmp_path, kafka)
    yield site
    for tierer in site.started:
        if tierer.process.poll() is None:
            family = psutil.Process(tierer.process.pid).children(recursive=True)
            tierer.process.kill()
            tierer.process.wait()
            for member in family:
                if member.is_running():
                    member.kill()


def _no_secret_in_any_command_line() -> None:
    for process in psutil.process_iter(["cmdline"]):
        assert not any(SECRET in part for part in process.info["cmdline"] or ())


def values(count: int) -> list[bytes | None]:
    return [json.dumps({"host": "a", "bytes": number}).encode() for number in range(count)]


def test_many_tables_in_one_application(site: TierSite, kafka: Kafka) -> None:
    well, poisoned, late = kafka.topic(2), kafka.topic(), kafka.topic()
    first, bad = site.create(well), site.create(poisoned)
    kafka.produce(well, values(300))
    kafka.produce(poisoned, [*values(3), b"not json", *values(3)])
    began = time.monotonic()
    tierer = site.start("loop", "--interval", "0.5", "--metrics-port", "0")
    tierer.wait_for(lambda: site.watermark(first) == 300 and "UndecodableRecord" in tierer.said)
    kafka.produce(late, values(7))
    new = site.create(late)
    # A new table is found within the time the list of tables may be old.
    tierer.wait_for(lambda: site.watermark(new) == 7)
    _no_secret_in_any_command_line()
    kafka.produce(well, values(50), partition=1)
    tierer.wait_for(lambda: site.watermark(first) == 350)
    # Nor does what ends in an aborted transaction stay behind: two records that nobody reads, and its marker.
    producer = kafka.transactional()
    producer.begin_transaction()
    kafka.produce(well, values(2), producer=producer)
    kafka.end_transaction(producer, well, commit=False)
    tierer.wait_for(lambda: site.watermark(first) == 353)
    assert site.watermark(bad) == 0
    # A failure that stays the same is told once a minute.
    assert 1 <= tierer.said.count("UndecodableRecord") <= 1 + (time.monotonic() - began) / 60
    # A publish is counted a moment after it is visible.
    counted = f'thermocline_tier_records_total{{outcome="rows",table="{first}"}} 350.0'
    tierer.wait_for(lambda: counted in tierer.metrics())
    value = tierer.metrics()
    assert f'thermocline_tier_failing{{table="{bad}"}} 1.0' in value
    assert f'thermocline_tier_lag_rows{{table="{bad}"}} 7.0' in value
    assert tierer.stop() < STOP_S + END_S
    assert tierer.process.returncode == 0, tierer.said
    assert "Traceback" not in tierer.said
    assert SECRET not in tierer.said


def test_a_stop_breaks_off_a_stage_that_does_not_end_and_leaves_nothing_behind(
    site: TierSite, kafka: Kafka, tmp_path: Path
) -> None:
    topic = kafka.topic()
    name = site.create(topic)
    kafka.produce(topic, values(100))
    marker = tmp_path / "hit"
    tierer = site.start(
        *("loop", "--interval", "0.2", str(name)),
        THERMOCLINE_FAILPOINT="after_fetch:barrier",
        THERMOCLINE_FAILPOINT_FILE=str(marker),
    )
    tierer.wait_for(marker.exists)
    took_s = tierer.stop()
    assert STOP_S <= took_s < STOP_S + END_S, tierer.said
    assert tierer.process.returncode == 0, tierer.said
    assert site.watermark(name) == 0
    assert "Traceback" not in tierer.said
    loaded = load_catalog("lake", **site.catalogs["lake"]).load_table(("net", name.name))
    assert not [ref for ref in loaded.metadata.refs if ref.startswith(STAGE_BRANCH_PREFIX)]


def test_once_names_each_failure_and_tiers_the_rest(site: TierSite, kafka: Kafka) -> None:
    topics = [kafka.topic() for _ in range(3)]
    bad, good, other = map(site.create, topics)
    kafka.produce(topics[0], [b"not json"])
    kafka.produce(topics[1], values(10))
    kafka.produce(topics[2], [b"nor this"])
    code, said = site.run("--once")
    assert code == 6, said
    assert [site.watermark(name) for name in (bad, good, other)] == [0, 10, 0]
    for name in (bad, other):
        assert said.count(f"{name}: the record at partition 0, offset 0 does not decode") == 1
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "failpoint",
    [
        pytest.param("", marks=pytest.mark.soak),
        pytest.param("after_fetch", marks=pytest.mark.soak),
        "before_commit",
    ],
)
def test_a_tierer_whose_jvm_is_killed_ends_with_its_one_sentence(
    site: TierSite, kafka: Kafka, tmp_path: Path, failpoint: str
) -> None:
    topic = kafka.topic()
    name = site.create(topic)
    kafka.produce(topic, values(100))
    marker = tmp_path / "hit"
    tierer = site.start(
        *("loop", "--interval", "0.2", str(name)),
        THERMOCLINE_FAILPOINT=f"{failpoint}:barrier" if failpoint else "",
        THERMOCLINE_FAILPOINT_FILE=str(marker),
    )
    tierer.wait_for(marker.exists if failpoint else lambda: site.watermark(name) == 100)
    family = psutil.Process(tierer.process.pid).children(recursive=True)
    (java,) = (member for member in family if member.name() == "java")
    java.kill()
    # Whoever stands at the barrier goes on, and finds nobody.
    Path(f"{marker}.release").touch()
    assert tierer.process.wait(60) == 3, tierer.said
    psutil.wait_procs(family, timeout=20)
    assert tierer.said.count("Spark has ended under the tierer; start it again.") == 1
    for word in ("Traceback", "InternalError", "report it", "Py4J", "RuntimeWarning"):
        assert word not in tierer.said, tierer.said
    # Committed as a whole or not at all; whoever is started next goes on from there.
    assert site.watermark(name) in ((100,) if not failpoint else (0,))


@pytest.mark.parametrize(
    "after_s",
    [
        pytest.param(0.0, marks=pytest.mark.soak),
        0.7,
        pytest.param(1.5, marks=pytest.mark.soak),
        pytest.param(3.0, marks=pytest.mark.soak),
    ],
)
def test_a_tierer_whose_jvm_dies_while_spark_starts_ends_with_a_sentence(
    site: TierSite, kafka: Kafka, after_s: float
) -> None:
    name = site.create(kafka.topic())
    tierer = site.start("loop", str(name))

    def java() -> list[psutil.Process]:
        members = psutil.Process(tierer.process.pid).children(recursive=True)
        return [member for member in members if is_spark(member)]

    tierer.wait_for(lambda: bool(java()))
    time.sleep(after_s)
    for member in java():
        member.kill()
    assert tierer.process.wait(60) == 3, tierer.said
    assert ("Spark did not start" in tierer.said) != ("Spark has ended" in tierer.said)
    assert "Traceback" not in tierer.said, tierer.said


def is_spark(process: psutil.Process) -> bool:
    """Return whether it is the JVM of a driver, and not one that is asked for its version."""
    try:
        return any("SparkSubmit" in argument for argument in process.cmdline())
    except psutil.Error:
        return False
