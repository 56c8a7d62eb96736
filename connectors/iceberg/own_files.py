"""The files of one table, opened below its reach alone."""

from __future__ import annotations

from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.table import Table

from connectors.iceberg.scan.reach import Reach


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
