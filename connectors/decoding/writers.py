"""Writer schemas by their ids, as the caller of a decoder has them from a schema registry. Does no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock

from planner.evolution.avro import BadSchema, parse_schema
from planner.evolution.ledger import UNKNOWN, UNREADABLE
from planner.evolution.writer_types import WriterSchema

#: Stands for the schema of records without an id in front, the one version that ``thermocline.schema.fixed`` names: ids in
#: records are never negative. Each such table has ``Writers`` of its own.
FIXED_ID = -1


@dataclass(frozen=True, slots=True)
class Unknown:
    """An id whose records are bad; ``reason`` is what they have as ``kafka_error``, ``mark`` what a ledger has of it."""

    reason: str
    mark: str = UNREADABLE


class Writers:
    """The schemas of one registry. Thread-safe.

    An id that was unknown may be added later: registries bring deleted schemas back under their old ids. ``others``: why
    records of any id that was not added are bad; without it, the registry is to be asked for it.
    """

    def __init__(self, others: str | None = None) -> None:
        self._others = others
        self._lock = Lock()
        self._schemas: dict[int, WriterSchema | Unknown] = {}
        self._fingerprints: dict[int, str] = {}

    def get(self, schema_id: int) -> WriterSchema | Unknown | None:
        """Return the schema, or why there is none; None where the registry is to be asked first."""
        schema = self._schemas.get(schema_id)
        if schema is None and self._others is not None:
            return Unknown(f"{_named(schema_id)} {self._others}")
        return schema

    @property
    def fingerprints(self) -> dict[int, str]:
        """What ``planner.evolution.ledger`` keeps of each id."""
        with self._lock:
            return dict(self._fingerprints)

    def add(
        self, schema_id: int, text: str, references: Mapping[str, str] | None = None
    ) -> None:
        """Add the text of an Avro schema and of the types it refers to (``parse_schema``)."""
        schema: WriterSchema | Unknown
        try:
            schema = parse_schema(text, references)
        except BadSchema as bad:
            schema = Unknown(f"{_named(schema_id)} cannot be read: {bad}")
        self.put(schema_id, schema)

    def put(self, schema_id: int, schema: WriterSchema | Unknown) -> None:
        """Add what an id has."""
        # Every statement compares it; to hash a schema takes milliseconds.
        fingerprint = schema.mark if isinstance(schema, Unknown) else schema.fingerprint
        with self._lock:
            self._schemas[schema_id] = schema
            self._fingerprints[schema_id] = fingerprint

    def add_unreadable(self, schema_id: int, why: str) -> None:
        """Note that the schema of this id is refused; what was added before stays."""
        self._note(schema_id, Unknown(f"{_named(schema_id)} {why}"))

    def add_unknown(self, schema_id: int) -> None:
        """Note that the registry has no such id; what was added before stays."""
        self._note(schema_id, Unknown(not_there(schema_id), UNKNOWN))

    def forget(self, schema_id: int) -> None:
        """Be as if this id had not been added."""
        with self._lock:
            self._schemas.pop(schema_id, None)
            self._fingerprints.pop(schema_id, None)

    def _note(self, schema_id: int, unknown: Unknown) -> None:
        with self._lock:
            self._schemas.setdefault(schema_id, unknown)
            self._fingerprints.setdefault(schema_id, unknown.mark)


def not_there(schema_id: int) -> str:
    """Return the reason of records whose id the registry lacks."""
    return f"{_named(schema_id)} is not in the registry"


def _named(schema_id: int) -> str:
    return "the table's fixed schema" if schema_id == FIXED_ID else f"schema id {schema_id}"
