"""Where the files of a table may lie: below its own location, or below its own catalog's roots.

A writer of metadata may list any path, and the server reads with its own rights. A table's own catalog is the one whose
root its metadata file lies below; its location, which that file says, counts only outside the roots of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from connectors.iceberg.scan.metrics import CONTENT, Block
from connectors.places import is_below, place
from planner.errors import ForeignFile


@dataclass(frozen=True, slots=True)
class Reach:
    """Where one table may read: below ``own``, or below ``location`` and none of ``others``."""

    own: tuple[str, ...]
    others: tuple[str, ...]
    location: str

    @classmethod
    def of(cls, metadata_location: str, location: str, roots: Sequence[Sequence[str]]) -> Reach:
        """``roots`` are those of each catalog, in any form."""
        file = place(metadata_location)
        own: list[str] = []
        others: list[str] = []
        for catalog in roots:
            places = [place(root) for root in catalog]
            (own if is_below(file, places) else others).extend(places)
        return cls(tuple(own), tuple(others), place(location))

    def check(self, block: Block, *, is_data: bool) -> None:
        """Check what one manifest lists.

        Raises:
            ForeignFile: a file lies elsewhere, or deletes where rows are expected, or the other way round.
        """
        for path in block.paths.to_pylist():
            location = place(path)
            if not is_below(location, self.own) and (
                is_below(location, self.others) or not is_below(location, (self.location,))
            ):
                raise ForeignFile(
                    "a file of the table lies outside its location and its catalog's roots; move it there, or add its "
                    "place to server.catalog_roots."
                )
        contents = set(block.table.column(CONTENT).to_pylist())
        if (contents - {0}) if is_data else (0 in contents):
            raise ForeignFile(
                "a manifest of the table lists delete files as data files, or the other way round; roll the table back."
            )
