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
#: Makes one field of an event; gets the fields made before it.
Value = Callable[[random.Random, Event], object]

_DAY_MS = 86_400_000
#: One event in ``_LATE`` is late by up to a minute, one in ``_VERY_LATE`` by up to two days: another partition.
_LATE = 50
_VERY_LATE = 400
_POWERSHELL = "C:/Windows/System32/WindowsPowerShell/v1.0/powershell.exe"
#: Command line and signer of each program, the busiest first.
_PROGRAMS = {
    "C:/Windows/System32/svchost.exe": ("svchost.exe -k netsvcs -p", "Microsoft Windows"),
    "C:/Windows/explorer.exe": ("explorer.exe", "Microsoft Windows"),
    "C:/Program Files/Google/Chrome/chrome.exe": ("chrome.exe --type=renderer", "Google LLC"),
    "C:/Windows/System32/cmd.exe": ("cmd.exe /c whoami /all", "Microsoft Windows"),
    _POWERSHELL: ("powershell.exe -nop -w hidden -enc SQBFAFgA", "Microsoft Windows"),
    "/usr/sbin/sshd": ("sshd: [accepted]", "Debian"),
    "/usr/bin/python3": ("python3 -m http.server 8000", "Debian"),
    "C:/Users/Public/update.exe": ("update.exe --silent", "(unsigned)"),
}
_IMAGES = tuple(_PROGRAMS)
_EVENT_TYPES = (
    ("process_start",) * 5 + ("process_stop",) * 4 + ("module_load",) * 2 + ("script_run",)
)
_SERVICES = {443: "tls", 53: "dns", 22: "ssh", 3389: "rdp", 445: "smb", 8443: "tls"}
_PORTS = (443, 443, 443, 53, 53, 22, 3389, 445, 8443)


@dataclass(frozen=True, slots=True)
class DemoFeed:
    """One topic and its table. ``values`` are type, in Iceberg's spelling, and value of each column after ``ts``.

    A partition should be worth a file to every publish, late events included: here that is a day. What divides
    rows further is their order inside the file, where Parquet's row groups are skipped by it
    (docs/decisions/0016-partitions-are-worth-a-file.md).

    ``later`` is the field newer agents add, ``later_of`` its value: it follows from the other fields, so an
    answer can be checked for events of any agent. ``wider`` is the int that newer schemas of Avro have as a long.
    """

    table: TableName
    topic: str
    comment: str
    partitions: int
    key: str
    sort_by: tuple[str, ...]
    values: Mapping[str, tuple[str, Value]]
    later: str
    later_of: Callable[[Event], str]
    wider: str
    partition_by: tuple[str, ...] = ("day(ts)",)

    @property
    def columns(self) -> dict[str, str]:
        """Type of each column; ``ts`` is sent in milliseconds."""
        return {"ts": "timestamptz"} | {name: kind for name, (kind, _) in self.values.items()}

    def make(self, rng: random.Random, now_ms: int) -> Event:
        late_ms = rng.randrange(60_000) if rng.randrange(_LATE) == 0 else 0
        if rng.randrange(_VERY_LATE) == 0:
            late_ms = rng.randrange(2 * _DAY_MS)
        event: Event = {"ts": now_ms - late_ms}
        for name, (_, value) in self.values.items():
            event[name] = value(rng, event)
        return event

    def partition_of(self, event: Event) -> int:
        """Like a keyed producer: everything of one endpoint or address in one partition."""
        return zlib.crc32(str(event[self.key]).encode()) % self.partitions

    def side_table(self, name: str) -> str:
        """Return the SQL name of what the server shows beside the table: ``cold``, ``seam``."""
        return f'{self.table.catalog}.{self.table.schema}."{self.table.name}${name}"'


def _skewed(rng: random.Random, steepness: float, count: int) -> int:
    """A number below ``count``, mostly a small one."""
    return min(int(rng.expovariate(steepness)), count - 1)


def _sha256(_: random.Random, event: Event) -> str:
    return f"{zlib.crc32(str(event['image']).encode()):08x}" * 8


def _source(rng: random.Random, event: Event) -> str:
    prefix = str(event["src_subnet"]).removesuffix("0.0/16")
    return f"{prefix}{rng.randrange(256)}.{rng.randrange(1, 255)}"


PROCESSES = DemoFeed(
    table=TableName("lake", ("edr",), "processes"),
    topic="edr-processes",
    comment="Process events of endpoints",
    partitions=3,
    key="endpoint_id",
    sort_by=("event_type", "endpoint_id"),
    values={
        "event_type": ("string", lambda rng, _: rng.choice(_EVENT_TYPES)),
        "endpoint_id": ("string", lambda rng, _: f"ep-{int(rng.betavariate(1, 3) * 400):04}"),
        "user_name": ("string", lambda rng, _: f"user{rng.randrange(120)}"),
        "image": ("string", lambda rng, _: _IMAGES[_skewed(rng, 0.5, len(_IMAGES))]),
        "command_line": ("string", lambda _, event: _PROGRAMS[str(event["image"])][0]),
        "pid": ("int", lambda rng, _: rng.randrange(4, 65_536)),
        "parent_pid": ("int", lambda rng, _: rng.randrange(4, 65_536)),
        "sha256": ("string", _sha256),
        "elevated": ("boolean", lambda rng, _: rng.random() < 0.08),
    },
    later="signer",
    later_of=lambda event: _PROGRAMS[str(event["image"])][1],
    wider="pid",
)
FLOWS = DemoFeed(
    table=TableName("lake", ("edr",), "flows"),
    topic="edr-flows",
    comment="Network flows seen by sensors",
    partitions=4,
    key="src",
    sort_by=("src_subnet", "src"),
    values={
        "src_subnet": ("string", lambda rng, _: f"10.{_skewed(rng, 0.4, 16)}.0.0/16"),
        "src": ("string", _source),
        "dst": ("string", lambda rng, _: f"172.16.{rng.randrange(64)}.{rng.randrange(1, 255)}"),
        "src_port": ("int", lambda rng, _: rng.randrange(1024, 65_536)),
        "dst_port": ("int", lambda rng, _: rng.choice(_PORTS)),
        "protocol": ("string", lambda _, event: "udp" if event["dst_port"] == 53 else "tcp"),
        "bytes": ("long", lambda rng, _: int(rng.paretovariate(0.7) * 120) % 50_000_000),
        "packets": ("int", lambda rng, _: rng.randrange(1, 4_000)),
        "duration_s": ("double", lambda rng, _: round(rng.expovariate(0.5), 3)),
        "blocked": ("boolean", lambda rng, _: rng.random() < 0.04),
    },
    later="service",
    later_of=lambda event: _SERVICES[int(str(event["dst_port"]))],
    wider="packets",
)
FEEDS = (PROCESSES, FLOWS)
