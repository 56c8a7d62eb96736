"""The local broker: restarts on its folder, says why it fails, ends with its parent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from connectors import child_guard
from connectors.kafka.log import KafkaLog
from planner.errors import LogUnavailable
from tests.fixtures.kafka import Kafka
from tests.harness.quick_jvm import quick_jvm
from thermocline.demo.broker import Broker, cluster_id

pytestmark = pytest.mark.kafka

QUICK = quick_jvm("kafka")


def test_topics_and_address_survive_a_stop_and_it_ends_with_the_process_that_started_it(
    tmp_path: Path,
) -> None:
    """On one folder: here, and in a process that is killed."""
    with Broker(tmp_path / "broker", jvm_flags=QUICK) as broker:
        pid = broker.pid
        assert pid is not None
        kafka = Kafka(broker)
        topic = kafka.topic(2)
        kafka.produce(topic, [b"v"] * 3)
        before = KafkaLog(kafka.settings).measure([topic])[topic]
    assert not broker.running
    assert broker.pid is None
    assert not psutil.pid_exists(pid)
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from thermocline.demo.broker import Broker\n"
        f"broker = Broker(Path({str(tmp_path / 'broker')!r}), jvm_flags={QUICK!r})\n"
        "broker.start()\n"
        "print(broker.pid, broker.bootstrap, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        again, bootstrap = parent.stdout.readline().decode().split()
        try:
            assert psutil.pid_exists(int(again))
            assert bootstrap == broker.bootstrap
            after = KafkaLog(kafka.settings).measure([topic])[topic]
        finally:
            os.kill(parent.pid, signal.SIGKILL)
    assert (after.cluster_id, after.topic_id) == (before.cluster_id, before.topic_id)
    assert after.partitions[0].log_end == 3
    deadline = time.monotonic() + 30
    while psutil.pid_exists(int(again)):
        assert time.monotonic() < deadline, "the broker outlived its parent"
        time.sleep(0.05)


def test_a_taken_port_is_the_reason_given(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "broker", jvm_flags=QUICK)
    host, port = broker.bootstrap.split(":")
    with socket.create_server((host, int(port))):
        began = time.monotonic()
        with pytest.raises(
            LogUnavailable, match=r"did not start: .*Address already in use"
        ) as caught:
            broker.start()
    assert time.monotonic() - began < 60
    assert str(tmp_path) not in caught.value.message
    assert not broker.running


@pytest.mark.parametrize("ends", ["by itself", "with its parent"])
def test_what_a_guarded_command_left_behind_ends_too(tmp_path: Path, ends: str) -> None:
    # A grandchild that waits for nobody, as Spark's JVM does when its Python is killed while it starts.
    wait = "wait" if ends == "with its parent" else "exit 7"
    script = f"sleep 600 & echo $! > {tmp_path}/pid; {wait}"
    with child_guard.start(tmp_path / "log", ["sh", "-c", script]) as running:
        assert running.stdin is not None
        if ends == "with its parent":
            while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
                time.sleep(0.02)
            running.stdin.close()
        code = running.wait(30)
    # With its parent gone, nobody asks: its own end and the command's are told by whichever is seen first.
    assert code in ((7,) if ends == "by itself" else (0, 128 + signal.SIGTERM))
    left_behind = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 30
    while psutil.pid_exists(left_behind):
        assert time.monotonic() < deadline, "the grandchild outlived the command"
        time.sleep(0.02)


@pytest.mark.parametrize("gone", ["before it read", "with its folder"])
def test_who_asked_and_is_gone_is_told_nothing(tmp_path: Path, gone: str) -> None:
    """As when a demo is stopped in the moment it starts a part."""
    folder = tmp_path / "asked"
    folder.mkdir()
    if gone == "with its folder":
        folder.rmdir()
    command = [
        sys.executable,
        "-I",
        "-S",
        child_guard.__file__,
        str(folder / "log"),
        "sleep",
        "601",
    ]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        running.stdin.close()
        assert running.stderr.read() == b""
        running.wait(60)
    assert not [
        process
        for process in psutil.process_iter(["cmdline"])
        if process.info["cmdline"] == ["sleep", "601"] and process.pid > running.pid
    ]


def test_a_log_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    output = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            child_guard.__file__,
            str(tmp_path / "no" / "log"),
            "true",
        ],
        stdin=(items := os.pipe())[0],
        capture_output=True,
        check=False,
        text=True,
    )
    for end in items:
        os.close(end)
    assert output.returncode == 1
    assert output.stderr == f"{tmp_path / 'no' / 'log'}: No such file or directory\n"


def test_no_cluster_id_reads_like_an_option() -> None:
    # One random id in 64 would.
    assert not [made for made in (cluster_id() for _ in range(2_000)) if made.startswith("-")]
