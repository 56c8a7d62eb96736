"""Where the files of a table may lie: below its catalog's roots, its own location, or the folder of its metadata file.

A writer of metadata may list any path, and the server reads with its own rights. What is below another catalog's root is
never the table's, which may say that it is (``connectors.store.catalog_roots``).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass, field

from connectors.iceberg.scan.metrics import CONTENT, Block
from connectors.store.catalog_roots import CatalogRoots
from connectors.store.locations import canonical, has_host, is_below, plain, real_location
from planner.errors import ForeignFile
from planner.names import TableName


@dataclass(frozen=True, slots=True)
class Reach:
    """Where one table may read: below its catalog's ``own`` roots and its ``places``, where these are of no other catalog."""

    table: TableName
    own: tuple[str, ...]
    #: Its location and the folder of its metadata file.
    roots_and_own: tuple[str, ...]
    #: Own roots that lead over links, with where they lead.
    links: tuple[tuple[str, str], ...]
    roots: CatalogRoots = field(compare=False, repr=False)

    @classmethod
    def of(
        cls, table: TableName, metadata_location: str, location: str, roots: CatalogRoots
    ) -> Reach:
        """Look where a table says that it lies.

        Raises:
            ForeignFile: its metadata file or its location lies in a place of another catalog, or its path is ambiguous.
        """
        own = roots.own.get(table.catalog, ())
        folder = metadata_location.rpartition("/")[0]
        led = [(canonical(root), real_location(root)) for root in own]
        reach = cls(
            table,
            tuple(root for root, _ in led),
            (canonical(location), canonical(folder)),
            tuple((root, real) for root, real in led if root != real),
            roots,
        )
        for what, where in (("metadata file", metadata_location), ("location", location)):
            if reach._is_of_another((canonical(where), real_location(where))):
                raise ForeignFile(
                    f"{table}: its {what} lies in a place of another catalog; move the table, or add the place to "
                    f"server.catalog_roots of its own.",
                    table=str(table),
                )
            reach._check_text(f"its {what}", where)
        return reach

    def check(self, location: str) -> None:
        """Check one file of the table, of any kind. Raises ForeignFile: it lies elsewhere, or its path is ambiguous."""
        path = canonical(location)
        forms = [path]
        if is_below(path, self.own):
            forms += [
                posixpath.join(real, path[len(root) :].lstrip("/"))
                for root, real in self.links
                if is_below(path, (root,))
            ]
        elif is_below(path, self.roots_and_own):
            # The operator said nothing of this place: a link there may lead anywhere.
            forms.append(real_location(location))
        else:
            forms = []
        if not forms or self._is_of_another(forms):
            raise ForeignFile(
                f"{self.table}: a file of the table lies outside its location and its catalog's roots; move it there, or "
                f"add its place to server.catalog_roots.",
                table=str(self.table),
            )
        self._check_text("a file of the table", location)

    def _is_of_another(self, forms: Iterable[str]) -> bool:
        every = map(self.roots.owners, forms)
        return any(owners and self.table.catalog not in owners for owners in every)

    def _check_text(self, what: str, location: str) -> None:
        """Raises ForeignFile: readers may take it for another place than ``place`` does."""
        if ".." in plain(location).split("/"):
            why = "has a folder `..` in its path"
        elif has_host(location):
            why = "has a host in its path"
        else:
            return
        raise ForeignFile(
            f"{self.table}: {what} {why}, which readers take for different places; write the table anew with plain paths.",
            table=str(self.table),
        )

    def check_block(self, block: Block, *, is_data: bool) -> None:
        """Check what one manifest lists.

        Raises ForeignFile: a file lies elsewhere, or deletes where rows are expected, or the other way round.
        """
        for path in block.paths.to_pylist():
            self.check(path)
        contents = set(block.table.column(CONTENT).to_pylist())
        if (contents - {0}) if is_data else (0 in contents):
            raise ForeignFile(
                f"{self.table}: a manifest lists delete files as data files, or the other way round; roll the table back.",
                table=str(self.table),
            )
