"""Writes a live snapshot: its manifest, the list of it and of the pinned manifests, and the metadata file.

Manifests and lists are Avro of format versions 2 and 3; pyiceberg 0.12 writes none of version 3. Entries of live files are
encoded once and written into each manifest that names their file: pyiceberg's encoder takes each number by itself, and a
load has tens of files with hundreds of numbers each. Its schemas and value encoders are used. Nothing reaches a catalog.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import Any, Literal

from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import AvroFile
from pyiceberg.avro.resolver import construct_writer
from pyiceberg.avro.writer import Writer
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    ManifestContent,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.schema import Schema
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from planner.live.metadata import in_folder_of

FormatVersion = Literal[2, 3]

#: Position of ``first_row_id`` in an entry of a list (Iceberg spec, "Manifest Lists").
_FIRST_ROW_ID = 15
_LATEST: Literal[3] = 3
_NULL = b"\x00"
_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_CODEC, _RAW_DEFLATE = "deflate", -15


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """One live file as manifests name it; ``encoded`` is the same in all of them, as of version 2."""

    encoded: bytes
    rows: int
    size: int


def encode_file(file: DataFile) -> EncodedFile:
    """Encode what a manifest says of a file, an unpartitioned one."""
    encoded = BytesIO()
    _data_file_writer().write(BinaryEncoder(encoded), file)
    return EncodedFile(encoded.getvalue(), file.record_count, file.file_size_in_bytes)


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """What manifests and their list say of the snapshot that is written.

    ``spec_id`` is the spec of its files. ``first_row_id`` is the table's next one in format version 3, None before.
    """

    version: FormatVersion
    schema: Schema
    spec_id: int
    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    first_row_id: int | None


def _write_manifest(
    output: OutputFile, files: Sequence[EncodedFile], snapshot: NewSnapshot
) -> ManifestFile:
    """Write a manifest of files that the snapshot adds; return its entry for a list."""
    head = BytesIO()
    encoder = BinaryEncoder(head)
    # An optional value follows its branch, 1. The file's two sequence numbers are null: they are the manifest's.
    for number in (ManifestEntryStatus.ADDED, 1, snapshot.snapshot_id, 0, 0):
        encoder.write_int(number)
    # Version 3 adds optional fields at the end: the first row's id, which is the manifest's, and those of delete files.
    end = _NULL * (len(DATA_FILE_TYPE[snapshot.version]) - len(DATA_FILE_TYPE[2]))
    raw = _container(
        {
            "schema": snapshot.schema.model_dump_json(),
            "partition-spec": "[]",
            "partition-spec-id": str(snapshot.spec_id),
            "format-version": str(snapshot.version),
            "content": "data",
        },
        _entry_schema(snapshot.version),
        [head.getvalue() + file.encoded + end for file in files],
    )
    _write(output, raw)
    return ManifestFile.from_args(
        _LATEST,
        manifest_path=output.location,
        manifest_length=len(raw),
        partition_spec_id=snapshot.spec_id,
        content=ManifestContent.DATA,
        sequence_number=snapshot.sequence_number,
        min_sequence_number=snapshot.sequence_number,
        added_snapshot_id=snapshot.snapshot_id,
        added_files_count=len(files),
        existing_files_count=0,
        deleted_files_count=0,
        added_rows_count=sum(file.rows for file in files),
        existing_rows_count=0,
        deleted_rows_count=0,
        partitions=[],
    )


def pinned_manifests(io: FileIO, manifest_list: str) -> tuple[ManifestFile, ...]:
    """Read the entries of a pinned snapshot's list with all that version 3 knows of them."""
    with AvroFile[ManifestFile](
        io.new_input(manifest_list),
        MANIFEST_LIST_FILE_SCHEMAS[_LATEST],
        read_types={-1: ManifestFile, 508: PartitionFieldSummary},
        read_enums={517: ManifestContent},
    ) as reader:
        return tuple(reader)


def _write_list(
    output: OutputFile, manifests: Sequence[ManifestFile], snapshot: NewSnapshot
) -> tuple[int, int]:
    """Write a list; return its bytes, and how many row ids it gives out (format version 3; 0 before).

    A manifest of data files that has no ids yet gets as many as it has rows (Iceberg spec, "First Row ID Assignment"): the
    live one, and those from before the table was of version 3.
    """
    writer, encoded, next_id = _list_writer(snapshot.version), [], snapshot.first_row_id
    for manifest in manifests:
        entry = BytesIO()
        is_data = manifest.content == ManifestContent.DATA
        if next_id is not None and is_data and manifest[_FIRST_ROW_ID] is None:
            # A copy: the pinned ones are used again.
            manifest = ManifestFile(*(manifest[at] for at in range(_FIRST_ROW_ID)), next_id)
            next_id += (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
        writer.write(BinaryEncoder(entry), manifest)
        encoded.append(entry.getvalue())
    meta = {
        "snapshot-id": str(snapshot.snapshot_id),
        "parent-snapshot-id": "null" if snapshot.parent_id is None else str(snapshot.parent_id),
        "sequence-number": str(snapshot.sequence_number),
        "format-version": str(snapshot.version),
    }
    if snapshot.first_row_id is not None:
        meta["first-row-id"] = str(snapshot.first_row_id)
    raw = _container(meta, _list_schema(snapshot.version), encoded)
    _write(output, raw)
    return len(raw), (next_id or 0) - (snapshot.first_row_id or 0)


def _container(meta: Mapping[str, str], schema: str, records: Sequence[bytes]) -> bytes:
    """Return an object container file with one block (Avro spec, "Object Container Files")."""
    out = BytesIO()
    encoder = BinaryEncoder(out)
    encoder.write(_MAGIC)
    described = {**meta, "avro.schema": schema, "avro.codec": _CODEC}
    encoder.write_int(len(described))
    for key, value in described.items():
        encoder.write_utf8(key)
        encoder.write_utf8(value)
    encoder.write_int(0)
    sync = os.urandom(_SYNC_BYTES)
    encoder.write(sync)
    deflate = zlib.compressobj(wbits=_RAW_DEFLATE)
    block = deflate.compress(b"".join(records)) + deflate.flush()
    encoder.write_int(len(records))
    encoder.write_bytes(block)
    encoder.write(sync)
    return out.getvalue()


def _write(output: OutputFile, raw: bytes) -> None:
    with output.create(overwrite=False) as stream:
        stream.write(raw)


@cache
def _data_file_writer() -> Writer:
    return construct_writer(Schema(*DATA_FILE_TYPE[2].fields))


@cache
def _list_writer(version: FormatVersion) -> Writer:
    return construct_writer(MANIFEST_LIST_FILE_SCHEMAS[version])


@cache
def _entry_schema(version: FormatVersion) -> str:
    return _avro(MANIFEST_ENTRY_SCHEMAS[version], "manifest_entry")


@cache
def _list_schema(version: FormatVersion) -> str:
    return _avro(MANIFEST_LIST_FILE_SCHEMAS[version], "manifest_file")


def _avro(schema: Schema, name: str) -> str:
    return json.dumps(AvroSchemaConversion().iceberg_to_avro(schema, schema_name=name))


@dataclass(frozen=True, slots=True)
class WrittenSnapshot:
    """Where the list of a live snapshot is, and how many row ids it gives out (format version 3).

    ``size``: bytes of the list and of the manifest.
    """

    manifest_list: str
    row_ids: int
    size: int


def write_snapshot(
    manifest_output: OutputFile,
    list_output: OutputFile,
    snapshot: NewSnapshot,
    *,
    files: Sequence[EncodedFile],
    pinned: Sequence[ManifestFile],
) -> WrittenSnapshot:
    """Write a manifest of ``files`` and a list that begins with it and goes on with ``pinned``."""
    manifest = _write_manifest(manifest_output, files, snapshot)
    list_size, row_ids = _write_list(list_output, (manifest, *pinned), snapshot)
    return WrittenSnapshot(list_output.location, row_ids, manifest.manifest_length + list_size)


def write_metadata(output: OutputFile, document: Mapping[str, Any]) -> bytes:
    """Write the metadata file, whose table lies in its folder; return the answer's bytes, whose table lies where it does."""
    _write(output, encoded(in_folder_of(document, output.location)))
    return encoded(document)


def read_metadata(raw: bytes, table_location: str) -> bytes:
    """Return the answer's bytes from those of the file that ``write_metadata`` wrote."""
    return encoded({**json.loads(raw), "location": table_location})


def encoded(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
