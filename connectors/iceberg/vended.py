"""Tables of a catalog that hands out keys by place: several stores, or folders, of one table."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table import Table

#: Properties, each with what the places begin with that they are good for.
KeysByPrefix = tuple[tuple[str, Mapping[str, str]], ...]


class VendedTable(Table):
    """A table and all keys that came with it."""

    by_prefix: KeysByPrefix = ()


def keys_by_prefix(table: Table) -> KeysByPrefix:
    return table.by_prefix if isinstance(table, VendedTable) else ()
