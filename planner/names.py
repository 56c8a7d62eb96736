"""Names of tables, and the names Thermocline reserves in them."""

from __future__ import annotations

import difflib
import itertools
import shlex
import string
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from planner.errors import BadConfig
from planner.spelling import read_dotted, spelled

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

#: Names of fields that one message lists; a record may have thousands.
MAX_LISTED = 50

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
        """Read ``catalog.namespace.table``, its parts bare or quoted as in SQL (``planner.spelling``).

        A dot in a quoted namespace separates levels, as in the one name that SQL has for them.

        Raises:
            BadConfig: fewer than three parts, or an empty one.
        """
        parts = name_parts(text)
        if len(parts) < 3 or not all(parts):
            raise BadConfig(
                f"{text!r} is not a table name; write catalog.namespace.table, with double quotes around names that have "
                f"dots.",
                table=text,
            )
        return cls(parts[0], parts[1:-1], parts[-1])

    @property
    def schema(self) -> str:
        """The namespace as SQL sees it: levels joined by dots, one identifier."""
        return ".".join(self.namespace)

    @property
    def dotted(self) -> str:
        """The parts joined by dots, unquoted."""
        return ".".join((self.catalog, *self.namespace, self.name))

    def side(self, side: str) -> TableName:
        """Return the name of one side or view of the table: ``cold`` is ``flows$cold``."""
        return replace(self, name=f"{self.name}${side}")

    def __str__(self) -> str:
        """The name as ``parse`` and every option read it back."""
        parts = (self.catalog, *self.namespace, self.name)
        return ".".join(spelled(part) for part in parts if part)


def name_parts(text: str) -> tuple[str, ...]:
    """Split a table's name, whole or without its catalog; quoted namespaces are split into their levels.

    Raises:
        BadConfig: a quote is not closed.
    """
    *front, name = read_dotted(text)
    return *(level for part in front for level in part.split(".")), name


def first_of(items: Sequence[str]) -> list[str]:
    """Return the items, of a long list the first ones and how many more there are."""
    rest = len(items) - MAX_LISTED
    return [*items[:MAX_LISTED], f"and {rest} more"] if rest > 0 else [*items]


def shell_word(table: object) -> str:
    """Return a table's name as a shell takes it for one word: ``$`` and quotes are part of a name."""
    return shlex.quote(str(table))


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
