"""Writes the live snapshot: a manifest of live files, a list of it and of the pinned manifests, the metadata file.

Nothing reaches a catalog.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.io import FileIO, OutputFile
from pyiceberg.manifest import ManifestFile

from connectors.iceberg.live.manifests import (
    EncodedFile,
    NewSnapshot,
    read_list,
    write_list,
    write_manifest,
)
from planner.live.metadata import in_folder_of


@dataclass(frozen=True, slots=True)
class WrittenSnapshot:
    """Where the list of a live snapshot is, and how many row ids it gives out (format version 3).

    ``size``: bytes of the list and of the manifest.
    """

    manifest_list: str
    row_ids: int
    size: int


def pinned_manifests(io: FileIO, manifest_list: str) -> tuple[ManifestFile, ...]:
    """Read the pinned snapshot's list."""
    return read_list(io.new_input(manifest_list))


def write_snapshot(
    manifest_output: OutputFile,
    list_output: OutputFile,
    snapshot: NewSnapshot,
    *,
    files: Sequence[EncodedFile],
    pinned: Sequence[ManifestFile],
) -> WrittenSnapshot:
    """Write a manifest of ``files`` and a list that begins with it and goes on with ``pinned``."""
    manifest = write_manifest(manifest_output, files, snapshot)
    list_size, row_ids = write_list(list_output, (manifest, *pinned), snapshot)
    size = manifest.manifest_length + list_size
    return WrittenSnapshot(list_output.location, row_ids, size)


def write_metadata(output: OutputFile, document: Mapping[str, Any]) -> bytes:
    """Write the metadata file, whose table lies in its folder; return the answer's bytes, whose table lies where it does."""
    with output.create(overwrite=False) as stream:
        stream.write(encoded(in_folder_of(document, output.location)))
    return encoded(document)


def read_metadata(raw: bytes, table_location: str) -> bytes:
    """Return the answer's bytes from those of the file that ``write_metadata`` wrote."""
    return encoded({**json.loads(raw), "location": table_location})


def encoded(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
