"""Histories of Iceberg tables that take hours, or a clock that is wrong, to come about: written into the metadata file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from pyiceberg.catalog import Catalog

from planner.names import TableName

Edit = Callable[[dict[str, Any]], None]


def rewrite(catalog: Catalog, table: TableName, edit: Edit) -> None:
    """Have the catalog name an edited copy of the table's metadata file; on a local disk."""
    identifier = (*table.namespace, table.name)
    location = catalog.load_table(identifier).metadata_location
    path = Path(urlparse(location).path)
    document = json.loads(path.read_text())
    edit(document)
    edited = path.with_name(f"9{path.name}")
    edited.write_text(json.dumps(document))
    catalog.drop_table(identifier)
    catalog.register_table(identifier, edited.as_uri())


def move(**offsets_ms: int) -> Edit:
    """Move times: of the snapshots at these indexes of the log (``at_0``, ``at_1``), or of all others (``rest``)."""

    def edit(document: dict[str, Any]) -> None:
        rest = offsets_ms.get("rest", 0)
        for index, entry in enumerate(document["snapshot-log"]):
            entry["timestamp-ms"] += offsets_ms.get(f"at_{index}", rest)
        times = {
            entry["snapshot-id"]: entry["timestamp-ms"] for entry in document["snapshot-log"]
        }
        for snapshot in document["snapshots"]:
            snapshot["timestamp-ms"] = times.get(
                snapshot["snapshot-id"], snapshot["timestamp-ms"] + rest
            )
        document["last-updated-ms"] = max(document["last-updated-ms"], *times.values())

    return edit
