"""Reads the live entries of a manifest with the file that a deletion vector belongs to, which pyiceberg's own reader leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.avro.file import AvroFile
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)

#: pyiceberg reads manifests as version 2, without ``referenced_data_file`` (field 143).
_VERSION = 3
_REFERENCED = [field.field_id for field in DATA_FILE_TYPE[_VERSION].fields].index(143)


@dataclass(frozen=True, slots=True)
class LiveEntry:
    """One file. ``referenced`` is the data file that a delete file says it is of; None: it says none."""

    file: DataFile
    referenced: str | None
    sequence_number: int


def live_entries(io: FileIO, manifest: ManifestFile) -> Iterator[LiveEntry]:
    with AvroFile[ManifestEntry](
        io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[_VERSION],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as entries:
        for entry in entries:
            if entry.status != ManifestEntryStatus.DELETED:
                number = entry.sequence_number
                yield LiveEntry(
                    entry.data_file,
                    entry.data_file._data[_REFERENCED],
                    (manifest.sequence_number or 0) if number is None else number,
                )
