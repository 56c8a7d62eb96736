"""Names of tables, and the names Thermocline reserves in them.

Topics of several Kafka clusters: ``cluster/topic``, or the topic alone of the cluster in ``[kafka]``.

Neither part can have a slash. Addresses name logs to programs and people; watermarks and Kafka know the topic alone,
and which cluster it is by the cluster's own id (T11).
"""

from __future__ import annotations

import difflib
import itertools
import re
import shlex
import string
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal

from planner.errors import BadConfig
from planner.sql_text import read_path, spelled

#: Of a cluster in the settings: ``[kafka_clusters.<name>]``.
CLUSTER_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def topic_address(cluster: str, topic: str) -> str:
    """``cluster`` is its name in the settings, empty for ``[kafka]``."""
    return f"{cluster}/{topic}" if cluster else topic


def topic_name(address: str) -> str:
    """Return the name that brokers know."""
    return address.rpartition("/")[2]


def cluster_of(address: str) -> str:
    return address.rpartition("/")[0]


def by_cluster(addresses: Iterable[str]) -> dict[str, list[str]]:
    """Group addresses, each group in the order given."""
    groups: dict[str, list[str]] = {}
    for address in addresses:
        groups.setdefault(cluster_of(address), []).append(address)
    return groups


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

#: What is around the row in a record's value, in a keyed table (docs/change-data.md).
Envelope = Literal["none", "debezium", "debezium-flat"]

#: Of a decoded change of a keyed table: ``u`` or ``d``. No column of any table.
KAFKA_OP = "kafka_op"

#: Of a change in a tail: the offset of the one before it of its key.
KAFKA_PREVIOUS = "kafka_previous"

RESERVED_IN_CHANGES = frozenset((KAFKA_OP, KAFKA_PREVIOUS))

#: Columns that say which record a row came from.
OFFSET_COLUMNS = frozenset((KAFKA_PARTITION, KAFKA_OFFSET))

LEADING_COLUMNS = (KAFKA_PARTITION, KAFKA_OFFSET, KAFKA_TIMESTAMP)

OPTIONAL_COLUMNS = (KAFKA_KEY, KAFKA_HEADERS, KAFKA_VALUE, KAFKA_ERROR)

METADATA_COLUMNS = LEADING_COLUMNS + OPTIONAL_COLUMNS


class Side(Enum):
    """What a name means of a federated table: all of its rows, those of one side of the seam, the seam itself, its schemas, or its snapshots.

    The value is the suffix of the name, as in ``"flows$cold"``: no table of ours is called so.
    """

    BOTH = ""
    COLD = "cold"
    TAIL = "tail"
    SEAM = "seam"
    SCHEMAS = "schemas"
    SNAPSHOTS = "snapshots"

    @property
    def is_facts(self) -> bool:
        """Whether it has facts of the whole table and none of its rows."""
        return self in (Side.SEAM, Side.SCHEMAS, Side.SNAPSHOTS)

    @property
    def has_cold(self) -> bool:
        """Whether its rows may be those of a snapshot."""
        return self in (Side.BOTH, Side.COLD)

    @property
    def has_tail(self) -> bool:
        """Whether its rows may be those of the log above the watermark."""
        return self in (Side.BOTH, Side.TAIL)


_SIDES = {side.value: side for side in Side}

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
        """Read ``catalog.namespace.table``, its parts bare or quoted as in SQL (``planner.sql_text``).

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
        return ".".join(self.parts)

    @property
    def parts(self) -> tuple[str, ...]:
        return self.catalog, *self.namespace, self.name

    def side(self, side: Side) -> TableName:
        """Return the name of a side of the table, such as ``flows$cold``; of both, its own."""
        return self if side is Side.BOTH else replace(self, name=f"{self.name}${side.value}")

    def __str__(self) -> str:
        """The name as ``parse`` and every option read it back."""
        return ".".join(spelled(part) for part in self.parts if part)


def name_parts(text: str) -> tuple[str, ...]:
    """Split a table's name, whole or without its catalog; quoted namespaces are split into their levels.

    Raises:
        BadConfig: a quote is not closed.
    """
    *front, name = read_path(text)
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


def side_name(name: str) -> tuple[str, Side] | None:
    """Return the table and the side that a name such as ``flows$cold`` means; None: it has no side's suffix."""
    base, _, suffix = name.rpartition("$")
    side = _SIDES.get(suffix.lower()) if base and suffix else None
    return None if side is None else (base, side)


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
