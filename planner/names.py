"""Names of tables, and the names Thermocline reserves in them."""

from __future__ import annotations

import difflib
import itertools
import string
from collections.abc import Collection, Iterable
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

#: Views of one federated table, ``"flows$cold"`` and so on: no table of ours is called so.
VIRTUAL_SUFFIXES = ("cold", "tail", "seam")

#: Characters of a partition field's name that DuckDB's iceberg extension 1.5.5 reads in every case.
_PORTABLE = frozenset(string.ascii_letters + string.digits + "_")


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


def side_name(name: str) -> tuple[str, str] | None:
    """Return the table and the side (``VIRTUAL_SUFFIXES``) that a name such as ``flows$cold`` means; None: it is no side's."""
    base, dollar, suffix = name.rpartition("$")
    side = suffix.lower()
    return (base, side) if dollar and base and side in VIRTUAL_SUFFIXES else None


def is_portable_partition_field(name: str) -> bool:
    """Whether a partition field's name is of ASCII letters, digits and underscores alone.

    Iceberg allows any name. DuckDB's iceberg extension 1.5.5 does not survive every other one: it ends its process.
    """
    return name != "" and _PORTABLE.issuperset(name)


def partition_field_name(name: str, used: Collection[str]) -> str:
    """Return ``name`` in ASCII letters, digits and underscores, numbered where it is one of ``used`` (in lower case)."""
    portable = "".join(character if character in _PORTABLE else "_" for character in name)
    numbered = itertools.chain(
        (portable,), (f"{portable}_{number}" for number in itertools.count(2))
    )
    return next(candidate for candidate in numbered if candidate.lower() not in used)
