"""What a schema registry says of a schema, and the texts it refers to.

Asks nothing by itself, and loads no client: the process that reads topics and Spark's tasks are handed these values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

#: A schema with all that it refers to, bytes of UTF-8: refused before it is parsed.
MAX_TEXT_BYTES = 1 << 20
#: Schemas that one may refer to, over all levels. Each is a request.
MAX_REFERENCES = 200

Format = Literal["AVRO", "PROTOBUF", "JSON"]


@dataclass(frozen=True, slots=True)
class WriterText:
    """A schema as the registry has it.

    ``references``: the texts it refers to by the names it uses, each behind those that it refers to itself.
    """

    id: int
    text: str
    references: Mapping[str, str]
    format: Format


@dataclass(frozen=True, slots=True)
class UnknownSchema:
    """The registry answered, and has no such schema, now. ``what``: "schema id 7", "subject flows-value"."""

    what: str


@dataclass(frozen=True, slots=True)
class UnusableSchema:
    """The registry has the schema, and it is refused by a bound. ``why`` is said of "it"."""

    id: int
    why: str


#: What is answered about a schema. ``UnusableSchema`` is for good, ``UnknownSchema`` for now.
Answer = WriterText | UnusableSchema | UnknownSchema


@dataclass(frozen=True, slots=True)
class Reference:
    """The name by which a schema uses another one, and where that is registered."""

    name: str
    subject: str
    version: int

    @property
    def target(self) -> str:
        return f"subject {self.subject}, version {self.version}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One answer of the registry about a schema. ``id`` is None where the answer has none.

    Raises ValueError when it is made of something else.
    """

    text: str
    format: str
    references: tuple[Reference, ...]
    id: int | None = None
    version: int | None = None

    @classmethod
    def of(cls, answer: object) -> Entry:
        if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
            raise ValueError("not a schema")  # noqa: TRY004  the caller tells one mistake only
        # Registries leave out the type of what is Avro.
        kind, uses = answer.get("schemaType") or "AVRO", answer.get("references") or []
        numbers = (answer.get("id"), answer.get("version"))
        is_well = isinstance(kind, str) and isinstance(uses, list)
        if not is_well or not all(n is None or _is_int(n) for n in numbers):
            raise ValueError("not a schema")
        references = tuple(map(_reference, uses))
        return cls(answer["schema"], kind, references, *numbers)


def _reference(answer: object) -> Reference:
    match answer:
        case {"name": str(name), "subject": str(subject), "version": version}:
            if _is_int(version):
                return Reference(name, subject, version)
    raise ValueError("not a reference")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def resolved(
    schema_id: int, entry: Entry, lookup: Callable[[Reference], Entry | None]
) -> Answer:
    """Put a schema and what it refers to together; ``lookup`` returns None for what the registry lacks."""
    if entry.format not in get_args(Format):
        return UnusableSchema(schema_id, f"it is of the type {entry.format[:40]!r}")
    collector = _Collector(lookup)
    try:
        collector.add(entry.text)
        collector.follow(entry, ())
    except _Refusal as refusal:
        return UnusableSchema(schema_id, str(refusal))
    except _Missing as missing:
        return UnknownSchema(f"{missing}, to which schema id {schema_id} refers")
    return WriterText(schema_id, entry.text, collector.texts, entry.format)  # type: ignore[arg-type]


class _Refusal(Exception):
    """A bound is exceeded."""


class _Missing(Exception):
    """The registry lacks a reference."""


@dataclass(slots=True)
class _Collector:
    lookup: Callable[[Reference], Entry | None]
    texts: dict[str, str] = field(default_factory=dict)
    _targets: dict[str, Reference] = field(default_factory=dict)
    _entries: dict[tuple[str, int], Entry] = field(default_factory=dict)
    _bytes: int = 0

    def add(self, text: str) -> None:
        self._bytes += len(text.encode(errors="replace"))
        if self._bytes > MAX_TEXT_BYTES:
            raise _Refusal(f"it has more than {MAX_TEXT_BYTES:,} bytes with what it refers to")

    def follow(self, entry: Entry, above: tuple[Reference, ...]) -> None:
        """Add what ``entry`` refers to; ``above`` is the way to it."""
        for reference in entry.references:
            target = (reference.subject, reference.version)
            if any((each.subject, each.version) == target for each in above):
                raise _Refusal(f"it refers in a circle, through {reference.target}")
            other = self._targets.get(reference.name)
            if other is not None:
                if (other.subject, other.version) != target and (
                    self._entry(reference).text != self.texts[reference.name]
                ):
                    raise _Refusal(
                        f"it refers to two schemas as {reference.name}: {other.target}, and {reference.target}"
                    )
                continue
            below = self._entry(reference)
            self.follow(below, (*above, reference))
            # A name may come twice: met below itself under another version.
            if reference.name in self._targets:
                raise _Refusal(f"it refers to two schemas as {reference.name}")
            self._targets[reference.name] = reference
            self.texts[reference.name] = below.text
            self.add(below.text)

    def _entry(self, reference: Reference) -> Entry:
        target = (reference.subject, reference.version)
        if target not in self._entries:
            if len(self._entries) == MAX_REFERENCES:
                raise _Refusal(f"it refers to more than {MAX_REFERENCES} schemas")
            entry = self.lookup(reference)
            if entry is None:
                raise _Missing(reference.target)
            self._entries[target] = entry
        return self._entries[target]
