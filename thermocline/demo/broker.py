"""A real single-node Kafka as a child process, for the demo and the tests.

Broker and controller in one JVM (KRaft), started from the resolved jars, on this machine only. It ends with
the process that started it (``connectors.child_guard``). Durability is that of one node: not for production.
"""

from __future__ import annotations

import base64
import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from connectors import child_guard, jars
from planner.errors import LogUnavailable

HEAP_MB = 512
# Five seconds on two idle cores; minutes are for a machine that also runs Spark and a recovery after SIGKILL.
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 15.0
# Below the ephemeral range of Linux (32768) and macOS (49152): an outgoing connection cannot take
# the port between choosing it and the broker's bind, or while the broker is down for a restart.
PORTS = range(20_000, 32_000)
_NODE_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    # One node: internal topics cannot have the default three replicas.
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # The default of 50 partitions each costs a second at the first transaction.
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    # After a crash the controller refuses the node's new registration until the old one's session ends: 9 s by
    # default.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


StartGuard = Callable[[Path, Sequence[str]], "subprocess.Popen[bytes]"]


class Broker(contextlib.AbstractContextManager["Broker"]):
    """One node whose data, settings and log live in ``folder``; the same folder keeps its ports and topics.

    Not thread-safe. A context manager: starts on entry, stops on exit.
    """

    def __init__(
        self,
        folder: Path,
        *,
        properties: Mapping[str, str] | None = None,
        jvm_flags: Sequence[str] = (),
        start_guard: StartGuard = child_guard.start,
        controlled_by: Broker | None = None,
    ) -> None:
        """``properties`` are Kafka's own broker settings and win over ours, as ``jvm_flags`` do; listeners are added to ours.

        ``controlled_by`` is a node that was started: this one is a further broker of its cluster, with a ``node.id`` of
        its own.
        """
        self.log_file = folder / "broker.log"
        self._folder = folder
        self._extra = dict(properties or {})
        self._jvm_flags = jvm_flags
        self.start_timeout_s = START_TIMEOUT_S
        self._start_guard = start_guard
        self._controlled_by = controlled_by
        self._guard: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        own_listeners = self._extra.get("listeners", "")
        free = free_ports(
            port for port in random.sample(PORTS, 100) if f":{port}" not in own_listeners
        )
        self._port, self._controller_port = self._previous_ports() or (next(free), next(free))

    @property
    def bootstrap(self) -> str:
        """The address for clients, ``host:port``. Constant over restarts."""
        return f"127.0.0.1:{self._port}"

    @property
    def cluster_id(self) -> str:
        """The cluster's own id, once the node was started."""
        written = (self._folder / "data" / "meta.properties").read_text()
        return dict(line.partition("=")[::2] for line in written.splitlines())["cluster.id"]

    @property
    def pid(self) -> int | None:
        """Process id of the JVM, None while it does not run."""
        return self._pid if self.running else None

    @property
    def running(self) -> bool:
        return self._guard is not None and self._guard.poll() is None

    def start(self) -> None:
        """Start and wait until the node answers clients. Nothing happens when it runs already.

        Raises:
            LogUnavailable: it ended at once or did not answer in time; the sentence says why.
            BadConfig, Unavailable: no Java, no jars.
        """
        if self.running:
            return
        classpath = os.pathsep.join(str(jar) for jar in jars.resolve("kafka"))
        temporary = self._folder / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        java = (
            *(jars.java(), f"-Xmx{HEAP_MB}m", *self._jvm_flags, "-cp", classpath),
            # Native compression libraries are unpacked there; a killed JVM leaves them.
            f"-Djava.io.tmpdir={temporary}",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        )
        settings = self._write_settings()
        if not (self._folder / "data" / "meta.properties").exists():
            self._format(java, settings)
        command = [*java, "kafka.Kafka", str(settings)]
        self._guard = self._start_guard(self.log_file, command)
        self._pid = child_guard.command_id(self._guard)
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Stop in order (about two seconds), by force after ``STOP_TIMEOUT_S``. Data stays."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the JVM at once, as a crash would."""
        self._end(signal.SIGKILL)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _signal(self, number: signal.Signals) -> None:
        # The guard ends after the JVM, so while it runs the process id cannot belong to another process.
        # That one may have ended just now.
        if self.running and self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def _end(self, number: signal.Signals) -> None:
        if self._guard is None:
            return
        with self._guard:
            self._signal(number)
            self._signal(signal.SIGCONT)
            try:
                self._guard.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
                self._guard.wait()
        self._guard = None

    def _previous_ports(self) -> tuple[int, int] | None:
        settings = self._folder / "server.properties"
        match = re.search(
            r"^listeners=PLAINTEXT://127\.0\.0\.1:(\d+)(?:,CONTROLLER://127\.0\.0\.1:(\d+))?",
            settings.read_text() if settings.exists() else "",
            re.MULTILINE,
        )
        return (int(match[1]), int(match[2] or 0)) if match else None

    def _write_settings(self) -> Path:
        plain = f"PLAINTEXT://{self.bootstrap}"
        listeners = {"listeners": plain, "advertised.listeners": plain}
        controller = f"127.0.0.1:{(self._controlled_by or self)._controller_port}"
        properties = _NODE_PROPERTIES | {
            "controller.quorum.bootstrap.servers": controller,
            "log.dirs": str(self._folder / "data"),
        }
        if self._controlled_by is None:
            listeners["listeners"] += f",CONTROLLER://{controller}"
        else:
            properties["process.roles"] = "broker"
        properties |= self._extra
        for key, ours in listeners.items():
            properties[key] = f"{ours},{self._extra[key]}" if key in self._extra else ours
        path = self._folder / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return path

    def _format(self, java: tuple[str, ...], settings: Path) -> None:
        command = [*java, "kafka.tools.StorageTool", "format", "-c", str(settings), "-t"]
        if self._controlled_by is None:
            command += [cluster_id(), "--standalone"]
        else:
            command.append(self._controlled_by.cluster_id)
        ran = subprocess.run(command, capture_output=True, text=True)
        if ran.returncode:
            raise self._failed("its folder could not be formatted", ran.stdout + ran.stderr)

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + self.start_timeout_s
        while time.monotonic() < deadline:
            if not self.running:
                raise self._failed("it ended while starting")
            if is_listening(self._port) and _answers(self.bootstrap):
                return
            time.sleep(0.05)
        raise self._failed(f"it did not answer within {self.start_timeout_s:g} s")

    def _failed(self, what: str, output: str | None = None) -> LogUnavailable:
        """Quote the newest line that looks like a cause; folders of this machine are left out."""
        if output is None:
            output = self.log_file.read_text(errors="replace")[-20_000:]
        causes = re.findall(r"^.*(?:Exception|Error|ERROR)\b.*$", output, re.MULTILINE)
        cause = (causes or output.splitlines() or ["it said nothing"])[-1].strip()
        return LogUnavailable(
            f"the local Kafka broker did not start: {what} ({cause.replace(str(self._folder), '…')}).",
            port=self._port,
        )


def cluster_id() -> str:
    """16 random bytes as Kafka writes them. The zero keeps ids from beginning with ``-``, like an option."""
    return base64.urlsafe_b64encode(bytes(1) + os.urandom(15)).decode().rstrip("=")


def free_ports(ports: Iterable[int]) -> Iterator[int]:
    """Yield those without a listener on this machine."""
    for port in ports:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            probe.close()
            yield port


def is_listening(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def _answers(bootstrap: str) -> bool:
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        client.describe_cluster(request_timeout=5).result()
    except KafkaException:
        return False
    return True
