"""What the demo's endpoints and sensors report: two feeds of invented security telemetry.

Values are seeded and look like the real thing: late events, fields that a newer agent adds, and skewed choices
(most processes are started by few programs, most bytes go to few subnets).
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from planner.names import TableName

Event = dict[str, object]

_ENDPOINTS = 400
_DAY_MS = 86_400_000
#: One event in so many is late by up to a minute, one in so many by up to two days: another partition.
_LATE = 50
_VERY_LATE = 400

_PROGRAMS = (
    ("C:/Windows/System32/svchost.exe", "svchost.exe -k netsvcs -p", "Microsoft Windows"),
    ("C:/Windows/explorer.exe", "explorer.exe", "Microsoft Windows"),
    ("C:/Program Files/Google/Chrome/chrome.exe", "chrome.exe --type=renderer", "Google LLC"),
    ("C:/Windows/System32/cmd.exe", "cmd.exe /c whoami /all", "Microsoft Windows"),
    (
        "C:/Windows/System32/WindowsPowerShell/v1.0/powershell.exe",
        "powershell.exe -nop -w hidden -enc SQBFAFgA",
        "Microsoft Windows",
    ),
    ("/usr/sbin/sshd", "sshd: [accepted]", "Debian"),
    ("/usr/bin/python3", "python3 -m http.server 8000", "Debian"),
    ("C:/Users/Public/update.exe", "update.exe --silent", "(unsigned)"),
)
_SIGNERS = {image: signer for image, _, signer in _PROGRAMS}
_EVENT_TYPES = (
    ("process_start",) * 5 + ("process_stop",) * 4 + ("module_load",) * 2 + ("script_run",)
)
_SERVICES = {443: "tls", 53: "dns", 22: "ssh", 3389: "rdp", 445: "smb", 8443: "tls"}


@dataclass(frozen=True, slots=True)
class DemoFeed:
    """One topic and its table. ``columns`` are in Iceberg's spelling; ``ts`` is sent in milliseconds.

    A partition should be worth a file to every publish, late events included: here that is a day. What divides
    rows further is their order inside the file, where Parquet's row groups are skipped by it
    (docs/decisions/0016-partitions-are-worth-a-file.md).

    ``later`` is the field newer agents add, ``later_of`` its value: it follows from the other fields, so an
    answer can be checked whichever agent sent the event.
    """

    table: TableName
    topic: str
    partitions: int
    columns: Mapping[str, str]
    partition_by: tuple[str, ...]
    sort_by: tuple[str, ...]
    comment: str
    later: str
    later_of: Callable[[Mapping[str, object]], str]
    make: Callable[[random.Random, int], Event]

    def partition_of(self, event: Event) -> int:
        """Like a keyed producer: everything of one endpoint or address in one partition."""
        key = str(event.get("endpoint_id") or event["src"])
        return zlib.crc32(key.encode()) % self.partitions


def _process(rng: random.Random, now_ms: int) -> Event:
    image, command, _ = _PROGRAMS[min(int(rng.expovariate(0.5)), len(_PROGRAMS) - 1)]
    return {
        "ts": _event_time(rng, now_ms),
        "event_type": rng.choice(_EVENT_TYPES),
        "endpoint_id": f"ep-{int(rng.betavariate(1, 3) * _ENDPOINTS):04}",
        "user_name": f"user{rng.randrange(120)}",
        "image": image,
        "command_line": command,
        "pid": rng.randrange(4, 65_536),
        "parent_pid": rng.randrange(4, 65_536),
        "sha256": f"{zlib.crc32(image.encode()):08x}" * 8,
        "elevated": rng.random() < 0.08,
    }


def _flow(rng: random.Random, now_ms: int) -> Event:
    subnet = min(int(rng.expovariate(0.4)), 15)
    port = rng.choice((443, 443, 443, 53, 53, 22, 3389, 445, 8443))
    return {
        "ts": _event_time(rng, now_ms),
        "src_subnet": f"10.{subnet}.0.0/16",
        "src": f"10.{subnet}.{rng.randrange(256)}.{rng.randrange(1, 255)}",
        "dst": f"172.16.{rng.randrange(64)}.{rng.randrange(1, 255)}",
        "src_port": rng.randrange(1024, 65_536),
        "dst_port": port,
        "protocol": "udp" if port == 53 else "tcp",
        "bytes": int(rng.paretovariate(0.7) * 120) % 50_000_000,
        "packets": rng.randrange(1, 4_000),
        "duration_s": round(rng.expovariate(0.5), 3),
        "blocked": rng.random() < 0.04,
    }


def _event_time(rng: random.Random, now_ms: int) -> int:
    if rng.randrange(_VERY_LATE) == 0:
        return now_ms - rng.randrange(2 * _DAY_MS)
    return now_ms - (rng.randrange(60_000) if rng.randrange(_LATE) == 0 else 0)


PROCESSES = DemoFeed(
    table=TableName("lake", ("edr",), "processes"),
    topic="edr-processes",
    partitions=3,
    columns={
        "ts": "timestamptz",
        "event_type": "string",
        "endpoint_id": "string",
        "user_name": "string",
        "image": "string",
        "command_line": "string",
        "pid": "int",
        "parent_pid": "int",
        "sha256": "string",
        "elevated": "boolean",
    },
    partition_by=("day(ts)",),
    sort_by=("event_type", "endpoint_id"),
    comment="Process events of endpoints",
    later="signer",
    later_of=lambda event: _SIGNERS[str(event["image"])],
    make=_process,
)
FLOWS = DemoFeed(
    table=TableName("lake", ("edr",), "flows"),
    topic="edr-flows",
    partitions=4,
    columns={
        "ts": "timestamptz",
        "src_subnet": "string",
        "src": "string",
        "dst": "string",
        "src_port": "int",
        "dst_port": "int",
        "protocol": "string",
        "bytes": "long",
        "packets": "int",
        "duration_s": "double",
        "blocked": "boolean",
    },
    partition_by=("day(ts)",),
    sort_by=("src_subnet", "src"),
    comment="Network flows seen by sensors",
    later="service",
    later_of=lambda event: _SERVICES[int(str(event["dst_port"]))],
    make=_flow,
)
FEEDS = (PROCESSES, FLOWS)
