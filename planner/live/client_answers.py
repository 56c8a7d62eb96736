"""Clients of the REST catalog whose answers differ from those of all others, and how.

A client is known by its ``User-Agent`` (docs/engines.md has the same table). One more is a line of ``CLIENTS`` and a function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from planner.live.metadata import MAIN, in_folder_of

#: By how much DuckDB's clock may be behind the server's, and how long before a load its transaction may have begun.
DUCKDB_SKEW_MS = 600_000
#: Of what a person has to look at: no client of the others takes it for a write's fate or asks again.
REFUSAL = 422


@dataclass(frozen=True, slots=True)
class RestClient:
    """``agent`` begins its ``User-Agent``; ``name`` stands in the ETags of its answers.

    ``edit`` takes a table's metadata and the time in milliseconds since 1970 UTC, rounded down to ``step_ms``; 0: the edit
    does not depend on the time. ``relocate`` takes the metadata and its file's address. ``refusal``: the status of what a
    person has to look at.
    """

    name: str
    agent: str
    edit: Callable[[Mapping[str, Any], int], dict[str, Any]] | None = None
    step_ms: int = 0
    relocate: Callable[[Mapping[str, Any], str], dict[str, Any]] | None = None
    refusal: int = REFUSAL

    def answer(
        self, document: Mapping[str, Any], metadata_location: str, now_ms: int
    ) -> Mapping[str, Any]:
        """Return a table's metadata as the client gets it."""
        if self.relocate is not None:
            document = self.relocate(document, metadata_location)
        return document if self.edit is None else self.edit(document, now_ms)


def for_duckdb(document: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """Return metadata whose head is the snapshot that DuckDB reads.

    The iceberg extension reads a table as of its transaction's start, by its own clock: the last entry of the log that is
    not later (1.5.5), or the newest such snapshot of all listed (1.5.0, or without a log). It looks up neither
    ``current-snapshot-id``, as 1.4 did, nor refs. Metadata newer than the transaction makes it read an older file of
    ``metadata-log``.

    So the history of ``main`` alone is listed, and no snapshot is as young as the head. The log has the true entries from
    before ``DUCKDB_SKEW_MS`` ago, and then the head. A live snapshot, which is in no log, comes last: at earlier times
    the table was what was committed.
    """
    latest_ms = now_ms - DUCKDB_SKEW_MS
    edited = {
        **document,
        "last-updated-ms": min(document["last-updated-ms"], latest_ms),
        "metadata-log": [],
    }
    listed: dict[Any, Any] = {
        entry["snapshot-id"]: entry for entry in document.get("snapshots") or ()
    }
    head = listed.get(document.get("current-snapshot-id"))
    if head is None:
        return {**edited, "snapshots": [], "snapshot-log": [], "refs": {}}
    log = document.get("snapshot-log") or [_entry(head["snapshot-id"], head["timestamp-ms"])]
    head_ms = latest_ms
    if log[-1]["snapshot-id"] == head["snapshot-id"]:
        head_ms = min(log[-1]["timestamp-ms"], latest_ms)
    history = {entry["snapshot-id"] for entry in log} | _ancestors(head, listed)
    older = [
        {**entry, "timestamp-ms": min(entry["timestamp-ms"], head_ms - 1)}
        for snapshot_id, entry in listed.items()
        if snapshot_id in history and entry is not head
    ]
    refs = document.get("refs") or {}
    return {
        **edited,
        "snapshots": [*older, {**head, "timestamp-ms": head_ms}],
        "snapshot-log": _in_order([*log, _entry(head["snapshot-id"], head_ms)]),
        "refs": {name: ref for name, ref in refs.items() if name == MAIN},
    }


def for_clickhouse(document: Mapping[str, Any], metadata_location: str) -> dict[str, Any]:
    """Return metadata of a table whose ``location`` is the folder of its metadata file.

    ClickHouse 26.9 opens a metadata file below ``location`` only, and reads all of the table from that file. A location
    above the live folder and the warehouse would hold the warehouse's other files, which are orphans to this table.
    """
    location = document["location"].rstrip("/")
    if metadata_location.startswith(f"{location}/"):
        return dict(document)
    return in_folder_of(document, metadata_location)


#: The first whose ``agent`` fits.
CLIENTS = (
    RestClient("duckdb", "duckdb/", for_duckdb, step_ms=60_000),
    # It asks ten times in 33 seconds after a 422, and once after a 400.
    RestClient("clickhouse", "ClickHouse/", relocate=for_clickhouse, refusal=400),
)


def client_of(user_agent: str) -> RestClient | None:
    """Return the client whose answer differs; None for all others."""
    return next((client for client in CLIENTS if user_agent.startswith(client.agent)), None)


def _entry(snapshot_id: int, timestamp_ms: int) -> dict[str, int]:
    return {"timestamp-ms": timestamp_ms, "snapshot-id": snapshot_id}


def _ancestors(head: Mapping[str, Any], listed: Mapping[Any, Any]) -> set[int]:
    ids: set[int] = set()
    parent = listed.get(head.get("parent-snapshot-id"))
    while parent is not None and parent["snapshot-id"] not in ids:
        ids.add(parent["snapshot-id"])
        parent = listed.get(parent.get("parent-snapshot-id"))
    return ids


def _in_order(log: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Leave out entries that are not older than a later one: DuckDB sorts by time, and not stably."""
    ordered: list[Mapping[str, Any]] = []
    for entry in reversed(log):
        if not ordered or entry["timestamp-ms"] < ordered[-1]["timestamp-ms"]:
            ordered.append(entry)
    return ordered[::-1]
