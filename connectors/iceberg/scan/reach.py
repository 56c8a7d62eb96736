"""Where the files of a table may lie: below its catalog's roots, its own location, or the folder of its metadata file.

A writer of metadata may list any path, and the server reads with its own rights. What is below another catalog's root is
never the table's, which may say that it is (``connectors.catalog_roots``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from connectors.catalog_roots import CatalogRoots
from connectors.iceberg.scan.metrics import CONTENT, Block
from connectors.places import is_below, place, plain, real_place
from planner.errors import ForeignFile
from planner.names import TableName


@dataclass(frozen=True, slots=True)
class Reach:
    """Where one table may read: below ``places``, where these are of no other catalog."""

    table: TableName
    places: tuple[str, ...]
    roots: CatalogRoots = field(compare=False, repr=False)

    @classmethod
    def of(
        cls, table: TableName, metadata_location: str, location: str, roots: CatalogRoots
    ) -> Reach:
        """Look where a table says that it lies.

        Raises:
            ForeignFile: its metadata file or its location lies in a place of another catalog.
        """
        for what, where in (("metadata file", metadata_location), ("location", location)):
            for form in (where, real_place(where)):
                owners = roots.owners(form)
                if (owners and table.catalog not in owners) or _is_indirect(where):
                    raise ForeignFile(
                        f"{table}: its {what} lies in a place of another catalog; move the table, or add the place to "
                        f"server.catalog_roots of its own.",
                        table=str(table),
                    )
        own = roots.own.get(table.catalog, ())
        folder = metadata_location.rpartition("/")[0]
        return cls(table, tuple(map(place, (*own, location, folder))), roots)

    def check(self, location: str) -> None:
        """Check one file of the table, of any kind.

        Raises:
            ForeignFile: it lies elsewhere.
        """
        path = place(location)
        owners = self.roots.owners(path)
        if (
            (owners and self.table.catalog not in owners)
            or not is_below(path, self.places)
            or _is_indirect(location)
        ):
            raise ForeignFile(
                f"{self.table}: a file of the table lies outside its location and its catalog's roots; move it there, or "
                f"add its place to server.catalog_roots.",
                table=str(self.table),
            )

    def check_block(self, block: Block, *, is_data: bool) -> None:
        """Check what one manifest lists.

        Raises:
            ForeignFile: a file lies elsewhere, or deletes where rows are expected, or the other way round.
        """
        for path in block.paths.to_pylist():
            self.check(path)
        contents = set(block.table.column(CONTENT).to_pylist())
        if (contents - {0}) if is_data else (0 in contents):
            raise ForeignFile(
                f"{self.table}: a manifest lists delete files as data files, or the other way round; roll the table back.",
                table=str(self.table),
            )


def _is_indirect(location: str) -> bool:
    """Whether a reader may take it for another place than ``place`` does: stores have folders called ``..``."""
    return ".." in plain(location).split("/")
