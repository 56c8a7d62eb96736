"""pyiceberg's reading and writing of files: those of a table below its reach alone, and with certificates of one's own.

pyiceberg 0.12 does not hand Arrow the file of certificates that Arrow takes (``tls_ca_file_path``).
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from pyarrow.fs import FileSystem
from pyiceberg.io import PY_IO_IMPL, FileIO, InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from connectors.iceberg.scan.allowed_locations import Reach
from connectors.store.object_store import CA_BUNDLE, DEFAULT_REGION

_SCHEME = "s3"
_OURS = f"{__name__}.TrustingFileIO"


class TrustingFileIO(PyArrowFileIO):
    """Trusts the authorities of ``s3.cabundle``, and no others, wherever its S3 is."""

    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        built = super()._initialize_s3_fs(netloc)
        # How a file system is pickled: the one public way to all its options.
        build, (options,) = built.__reduce__()
        return build({**options, "tls_ca_file_path": self.properties[CA_BUNDLE]})


def with_file_io(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with which pyiceberg opens files as they say. A FileIO that the user named stays."""
    options = dict(properties)
    if "s3.endpoint" in options and "client.region" not in options:
        # Else pyiceberg asks Amazon where the bucket lies.
        options.setdefault("s3.region", DEFAULT_REGION)
    return {PY_IO_IMPL: _OURS, **options} if CA_BUNDLE in options else options


def arrow_store(io: FileIO, location: str) -> FileSystem | None:
    """Return Arrow's file system of the bucket of ``location`` (``s3://…``) with a FileIO's keys; None if it is not Arrow's."""
    io = io.io if isinstance(io, OwnFiles) else io
    if not isinstance(io, PyArrowFileIO):
        return None
    files: FileSystem = io.fs_by_scheme(_SCHEME, urlsplit(location).netloc)
    return files


def table_metadata(io: FileIO, location: str) -> TableMetadata:
    return FromInputFile.table_metadata(io.new_input(location))


class OwnFiles(FileIO):
    """What a catalog opens files by, ``io``, for one of its tables."""

    def __init__(self, io: FileIO, reach: Reach) -> None:
        super().__init__(dict(io.properties))
        self.io = io
        self.reach = reach

    @property
    def catalog(self) -> str:
        """What is remembered of a path is remembered by catalog: a path names a file in each one's store."""
        return self.reach.table.catalog

    def new_input(self, location: str) -> InputFile:
        """Raises ForeignFile: as ``Reach.check``."""
        self.reach.check(location)
        return self.io.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        return self.io.new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self.io.delete(location)


def own_io(table: Table) -> OwnFiles:
    """Return what opens the files of a table that ``connectors.iceberg.catalogs`` loaded."""
    if not isinstance(table.io, OwnFiles):
        raise TypeError(f"not loaded by our catalogs: {table.name()}")
    return table.io
