"""Drops a bound table that has no row yet, so that it can be created with other columns."""

from __future__ import annotations

from pyiceberg.catalog import Catalog

from planner.binding import KAFKA, TOPIC, Binding
from planner.errors import BadConfig
from planner.names import TableName


def drop_without_rows(catalog: Catalog, table: TableName, binding: Binding) -> None:
    """Drop ``table`` where it is bound to the topic of ``binding`` and no snapshot has a file.

    Raises:
        BadConfig: the table has rows, or had some, or is bound to another topic.
    """
    identifier = (*table.namespace, table.name)
    metadata = catalog.load_table(identifier).metadata
    address = metadata.properties.get(TOPIC), metadata.properties.get(KAFKA, "")
    files = [
        snapshot.summary["total-data-files"] if snapshot.summary else None
        for snapshot in metadata.snapshots
    ]
    if address != (binding.topic, binding.kafka) or any(count != "0" for count in files):
        raise BadConfig(
            f"{table}: --replace is for a table over topic {binding.address} that has no rows yet, and this one has "
            f"rows, or another topic; choose another name, or drop it first.",
            table=str(table),
        )
    catalog.drop_table(identifier)
