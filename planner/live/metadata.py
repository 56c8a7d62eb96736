"""The metadata of a live table: the pinned metadata file's own JSON with one snapshot more, which is in no catalog.

Only what must change is changed, so nothing that this program does not know is lost (Iceberg spec, "Table Metadata Fields").

1. The live snapshot stands in ``snapshots`` and is the head of ``main``, but is not in ``snapshot-log``, which ends with the
   pin: else ``TIMESTAMP AS OF`` any later moment would answer with today's tail, and not with what was committed.
2. It is one millisecond younger than its parent: readers leave out a snapshot from the future. DuckDB, which looks for the
   head in the log, gets an answer of its own (``planner.live.client_answers``).
3. ``gc.enabled`` is false: Iceberg's Java library then refuses to remove orphans, to expire snapshots and to purge. Orphan
   removal deletes files without a commit that could be refused.
4. The binding is not told: who meets ``thermocline.cut`` must neither tail nor tier the table (``planner.seam.binding``).
5. Nor is what a table's owner says of stores: pyiceberg joins it with the keys that came with the table, and would send these
   to an ``s3.endpoint`` of the owner's.
6. The default spec is the one without fields, that of live files. Daft 0.7.26 splits a condition by the default spec alone:
   rows in files of another spec are then neither pruned nor filtered by it, and it prunes by negated transforms (issue 41).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any, Literal

from planner.errors import UnsupportedFile
from planner.names import is_portable_partition_field
from planner.seam.binding import LIVE_CUT
from planner.seam.cut import Pin

#: The branch that readers read, and the tag that names what is committed of it.
MAIN = "main"
COLD = "cold"
_OWN = "thermocline."
_GC = "gc.enabled"
#: What pyiceberg's clients take as settings of a store or of its key server.
_OF_STORES = (
    *("adls.", "auth.", "client.", "gcs.", "hdfs.", "header.", "hf.", "oss.", "rest."),
    *("s3.", "ssl."),
    *("credential", "io-impl", "oauth2-server-uri", "py-io-impl", "token", "uri", "warehouse"),
)
#: An Iceberg writer encrypts where this table property is set.
_ENCRYPTED = "encryption.key-id"


@dataclass(frozen=True, slots=True)
class LiveSnapshot:
    """What the live snapshot adds to the pinned one. ``row_ids``: how many of these it gives out (format version 3)."""

    snapshot_id: int
    manifest_list: str
    files: int
    rows: int
    size: int
    row_ids: int = 0


def check_format(pin: Pin, document: Mapping[str, Any]) -> Literal[2, 3]:
    """Return the format version of a table that live files can be added to.

    Raises:
        UnsupportedFile: it is another one; or the table's files are encrypted, and live files would not be.
    """
    version = document["format-version"]
    if version not in (2, 3):
        raise UnsupportedFile(
            f"{pin.table}: its tail is served to Iceberg engines for tables of format versions 2 and 3, and this one is of "
            f"version {version}; read it over Flight SQL.",
            table=str(pin.table),
            version=version,
        )
    if _ENCRYPTED in (document.get("properties") or {}):
        raise UnsupportedFile(
            f"{pin.table}: its files are encrypted ({_ENCRYPTED}), and those of its tail would not be; read it over Flight "
            f"SQL.",
            table=str(pin.table),
        )
    return 3 if version == 3 else 2


def check_partition_fields(pin: Pin, document: Mapping[str, Any]) -> None:
    """Check that no reader of an answer meets a partition field's name that it may not survive.

    DuckDB's iceberg extension 1.5.5 ends its process at some names, also of a spec that is not the current one.

    Raises:
        UnsupportedFile: a name is not of ASCII letters, digits and underscores alone.
    """
    specs = [spec["fields"] for spec in document.get("partition-specs") or ()]
    # Version 1's, whose readers may know no other.
    for field in chain(*specs, document.get("partition-spec") or ()):
        if not is_portable_partition_field(field["name"]):
            number = field.get("field-id")
            raise UnsupportedFile(
                f"{pin.table}: its partition field {'' if number is None else f'{number} '}has a name that is not of ASCII "
                f"letters, digits and underscores alone, which ends some of the engines that read Iceberg; read the table "
                f"over Flight SQL.",
                table=str(pin.table),
            )


def first_row_id(document: Mapping[str, Any]) -> int | None:
    """Return the first row id that no row has (format version 3); None before."""
    return int(document.get("next-row-id") or 0) if document["format-version"] == 3 else None


def snapshot_id_of(lines: Sequence[str], in_use: Sequence[int]) -> int:
    """Return the id of a live snapshot, the same for the same ``lines``, and none of those ``in_use``."""
    texts = ("\n".join((*lines, str(number))) for number in count())
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    candidates = (int.from_bytes(digest[:8], "big") >> 1 for digest in digests)
    return next(each for each in candidates if each and each not in in_use)


def unpartitioned_spec(document: Mapping[str, Any]) -> int:
    """Return the id of the spec without fields: the table's own, or the one that the answer adds."""
    specs = _specs(document)
    own = next((spec["spec-id"] for spec in specs if not spec["fields"]), None)
    return int(own) if own is not None else max(int(spec["spec-id"]) for spec in specs) + 1


def _specs(document: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    # Version 1 may have its one spec by itself.
    return document.get("partition-specs") or [
        {"spec-id": 0, "fields": document["partition-spec"]}
    ]


def _read_unpartitioned(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata whose default spec has no fields. Files keep the specs that they were written under."""
    spec_id, specs = unpartitioned_spec(document), _specs(document)
    if all(spec["spec-id"] != spec_id for spec in specs):
        specs = [*specs, {"spec-id": spec_id, "fields": []}]
    edited = {**document, "partition-specs": specs, "default-spec-id": spec_id}
    if "partition-spec" in document:
        edited["partition-spec"] = []
    return edited


def live_metadata(
    document: Mapping[str, Any], pin: Pin, live: LiveSnapshot | None, cut: str
) -> dict[str, Any]:
    """Return the metadata of the answer. ``live`` is None where the table's tail is empty. The table is a bound one.

    ``document`` is the pinned file's, whose head may be newer than the pin.
    """
    edited = _read_unpartitioned(document)
    head = pin.snapshot_id
    edited["current-schema-id"] = pin.schema.schema_id
    edited["properties"] = live_properties(document.get("properties") or {}, cut)
    edited["metadata-log"] = [
        *(document.get("metadata-log") or ()),
        {"timestamp-ms": document["last-updated-ms"], "metadata-file": pin.metadata_location},
    ]
    tag = {COLD: {"snapshot-id": head, "type": "tag"}}
    if live is not None:
        snapshots = document.get("snapshots") or []
        parent = next(snapshot for snapshot in snapshots if snapshot["snapshot-id"] == head)
        sequence = int(document["last-sequence-number"]) + 1
        edited["last-sequence-number"] = sequence
        snapshot = _snapshot(live, parent, pin, sequence)
        row_id = first_row_id(document)
        if row_id is not None:
            # Iceberg spec, "Row Lineage": a commit gives out the ids from here on again, since this snapshot is never committed.
            snapshot |= {"first-row-id": row_id, "added-rows": live.row_ids}
            edited["next-row-id"] = row_id + live.row_ids
        edited["snapshots"] = [*snapshots, snapshot]
        head = live.snapshot_id
    return edited | _head(document, pin, {**tag, **(document.get("refs") or {})}, head)


def _head(
    document: Mapping[str, Any], pin: Pin, refs: Mapping[str, Any], head: int | None
) -> dict[str, Any]:
    """Return the fields that make ``head`` the table's, of a log that ends with the pin."""
    main = {**refs.get(MAIN, {"type": "branch"}), "snapshot-id": head}
    return {
        "current-snapshot-id": head,
        "snapshot-log": _log(document, pin),
        "refs": {**refs, MAIN: main},
    }


def is_head(document: Mapping[str, Any], pin: Pin) -> bool:
    """Whether a reader of the pinned metadata file reads what is pinned: it may have a newer head, or other columns."""
    current = document.get("current-snapshot-id")
    schema_id = document.get("current-schema-id", pin.schema.schema_id)
    head = None if current == -1 else current  # what version 1 wrote without snapshots
    return (head, schema_id) == (pin.snapshot_id, pin.schema.schema_id)


def plain_metadata(document: Mapping[str, Any], pin: Pin, cut: str) -> dict[str, Any]:
    """Return the metadata of the answer for a table without a topic, of any format version, with the pin as its head."""
    edited = _read_unpartitioned(document)
    edited["properties"] = live_properties(document.get("properties") or {}, cut)
    if is_head(document, pin):
        return edited
    schema_id = pin.schema.schema_id
    if "current-schema-id" in document:
        edited["current-schema-id"] = schema_id
    if "schema" in document:  # version 1, whose readers may know no other
        schemas = document.get("schemas") or [document["schema"]]
        edited["schema"] = next(
            schema for schema in schemas if schema.get("schema-id", schema_id) == schema_id
        )
    return edited | _head(document, pin, document.get("refs") or {}, pin.snapshot_id)


def _log(document: Mapping[str, Any], pin: Pin) -> list[Mapping[str, Any]]:
    """Return the log up to the pinned snapshot: what is younger is no part of this cut.

    An expiry may have cleared the log before the pin, which a tag retains: then by time.
    """
    log = list(document.get("snapshot-log") or ())
    ids = [entry["snapshot-id"] for entry in log]
    if pin.snapshot_id in ids:
        return log[: len(ids) - ids[::-1].index(pin.snapshot_id)]
    snapshots = document.get("snapshots") or ()
    # Without a snapshot the pin is older than all of the log.
    at_ms = next(
        (each["timestamp-ms"] for each in snapshots if each["snapshot-id"] == pin.snapshot_id),
        0,
    )
    return [entry for entry in log if entry["timestamp-ms"] < at_ms]


def in_folder_of(document: Mapping[str, Any], metadata_location: str) -> dict[str, Any]:
    """Return metadata of a table that lies where its metadata file does.

    So says the file of a live table, which ClickHouse 26.9 reads instead of the answer: it looks for paths below the
    ``location`` of a file in the folder of that file.
    """
    return {**document, "location": metadata_location.rpartition("/")[0]}


def live_properties(properties: Mapping[str, str], cut: str) -> dict[str, str]:
    """Return a table's properties as an engine sees them."""
    left_out = (_OWN, *_OF_STORES)
    own = {key: value for key, value in properties.items() if not key.startswith(left_out)}
    return {**own, _GC: "false", LIVE_CUT: cut}


def _snapshot(
    live: LiveSnapshot, parent: Mapping[str, Any], pin: Pin, sequence: int
) -> dict[str, Any]:
    before: Mapping[str, str] = parent.get("summary") or {}
    summary = {
        "operation": "append",
        "added-data-files": str(live.files),
        "added-records": str(live.rows),
        "added-files-size": str(live.size),
    }
    for total, added in (
        ("total-data-files", live.files),
        ("total-records", live.rows),
        ("total-files-size", live.size),
        ("total-delete-files", 0),
        ("total-position-deletes", 0),
        ("total-equality-deletes", 0),
    ):
        if before.get(total, "").isdigit():
            summary[total] = str(int(before[total]) + added)
    return {
        "snapshot-id": live.snapshot_id,
        "parent-snapshot-id": pin.snapshot_id,
        "sequence-number": sequence,
        "timestamp-ms": int(parent["timestamp-ms"]) + 1,
        "manifest-list": live.manifest_list,
        "summary": summary,
        "schema-id": pin.schema.schema_id,
    }


def with_referenced_snapshots(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata with the snapshots only that a branch or tag names (``snapshots=refs``)."""
    named = {ref["snapshot-id"] for ref in (document.get("refs") or {}).values()}
    named.add(document.get("current-snapshot-id"))
    snapshots = document.get("snapshots") or ()
    listed = [each for each in snapshots if each["snapshot-id"] in named]
    return {**document, "snapshots": listed}
