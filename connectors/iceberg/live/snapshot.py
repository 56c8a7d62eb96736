"""Writes the live snapshot: a manifest of live files, a list of it and of the pinned manifests, the metadata file.

Nothing reaches a catalog. Entries of the pinned list are copied as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pyiceberg.io import FileIO, OutputFile
from pyiceberg.manifest import (
    DataFile,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    read_manifest_list,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

_FORMAT_VERSION: Literal[2] = 2


@dataclass(frozen=True, slots=True)
class WrittenSnapshot:
    """Where the parts of a live snapshot are."""

    manifest: str
    manifest_list: str


def pinned_manifests(io: FileIO, manifest_list: str) -> tuple[ManifestFile, ...]:
    """Read the pinned snapshot's list."""
    return tuple(read_manifest_list(io.new_input(manifest_list)))


def write_snapshot(
    manifest_output: OutputFile,
    list_output: OutputFile,
    *,
    schema: Schema,
    spec_id: int,
    snapshot_id: int,
    parent_id: int | None,
    sequence_number: int,
    files: Sequence[DataFile],
    pinned: Sequence[ManifestFile],
) -> WrittenSnapshot:
    """Write a manifest of ``files`` and a list that begins with it and goes on with ``pinned``."""
    spec = PartitionSpec(spec_id=spec_id)
    with write_manifest(
        _FORMAT_VERSION, spec, schema, manifest_output, snapshot_id, "deflate"
    ) as writer:
        for file in files:
            writer.add_entry(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=snapshot_id,
                    sequence_number=None,
                    file_sequence_number=None,
                    data_file=file,
                )
            )
    manifest = writer.to_manifest_file()
    with write_manifest_list(
        _FORMAT_VERSION, list_output, snapshot_id, parent_id, sequence_number, "deflate"
    ) as lists:
        lists.add_manifests([manifest, *pinned])
    return WrittenSnapshot(manifest_output.location, list_output.location)


def write_metadata(output: OutputFile, document: Mapping[str, Any]) -> bytes:
    """Write the metadata file; return its bytes."""
    raw = json.dumps(document, separators=(",", ":")).encode()
    with output.create(overwrite=False) as stream:
        stream.write(raw)
    return raw
