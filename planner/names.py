"""Names of tables, and the names Thermocline reserves in them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from planner.errors import BadConfig

# First three columns of every bound table. Written first because engines keep column
# statistics for the first 100 columns only, and the resolver needs those of partition and offset.
KAFKA_PARTITION = "kafka_partition"
KAFKA_OFFSET = "kafka_offset"
KAFKA_TIMESTAMP = "kafka_timestamp"
# Optional metadata columns, present when the table declares them.
KAFKA_KEY = "kafka_key"
KAFKA_HEADERS = "kafka_headers"
# Present under error policy ``null``.
KAFKA_VALUE = "kafka_value"
KAFKA_ERROR = "kafka_error"

LEADING_COLUMNS = (KAFKA_PARTITION, KAFKA_OFFSET, KAFKA_TIMESTAMP)
OPTIONAL_COLUMNS = (KAFKA_KEY, KAFKA_HEADERS, KAFKA_VALUE, KAFKA_ERROR)
METADATA_COLUMNS = LEADING_COLUMNS + OPTIONAL_COLUMNS

#: Views of one federated table: ``"flows$cold"`` and so on.
VIRTUAL_SUFFIXES = ("cold", "tail", "seam")


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """``catalog.namespace.table``; the namespace may have several levels."""

    catalog: str
    namespace: tuple[str, ...]
    name: str

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Read ``catalog.namespace.table``; levels hold no dots.

        Raises:
            BadConfig: fewer than three parts, or an empty one.
        """
        catalog, *namespace, name = text.split(".") if "." in text else (text, "")
        if not (catalog and namespace and all(namespace) and name):
            raise BadConfig(
                f"{text!r} is not a table name; write catalog.namespace.table.", table=text
            )
        return cls(catalog, tuple(namespace), name)

    @property
    def schema(self) -> str:
        """The namespace as SQL sees it: levels joined by dots, one identifier."""
        return ".".join(self.namespace)

    def __str__(self) -> str:
        return f"{self.catalog}.{self.schema}.{self.name}"


def did_you_mean(
    name: str, names: Iterable[str], otherwise: str = "no name is like it.", *, most: int = 3
) -> str:
    """Ask for those of ``names`` that are most like ``name``; ``otherwise`` where none is."""
    close = difflib.get_close_matches(name, names, n=most)
    return f"did you mean {' or '.join(close)}?" if close else otherwise
