"""The subjects whose versions a table follows, and those that its ledger lacks: one rule, for the tierer and for commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from connectors.decoding.writers import FIXED_ID
from connectors.registry.decoders import TIMEOUT_S
from connectors.registry.texts import UnknownSchema
from planner.errors import BadConfig
from planner.evolution.ledger import NO_SCHEMA, UNKNOWN
from planner.names import first_of
from planner.seam.binding import Binding
from planner.seam.formats import AvroFormat

if TYPE_CHECKING:
    from connectors.registry.client import SchemaRegistry


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    subject: str
    version: int
    id: int

    def __str__(self) -> str:
        return f"{self.subject}:{self.version} (schema id {self.id})"


#: How often a registry is asked again under which subjects an id is, where it is asked again and again: a new subject is rare.
SUBJECTS_MAX_AGE_S = 600.0

#: By subject, the ids of its versions.
Versions = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class Look:
    """How long one request may take, and how old answers may be that are taken without one."""

    timeout_s: float = TIMEOUT_S
    max_age_s: float = 0.0


def followed(
    registry: SchemaRegistry, binding: Binding, form: AvroFormat, look: Look = Look()
) -> Versions:
    """Return the versions of the subjects that a table may follow.

    That is ``<topic>-value``; where the registry has none, the subjects of the ledger's ids that are named after the topic,
    or else all of these. A table of one fixed schema follows none.

    Raises:
        SchemaRegistryUnavailable, BadConfig: as ``SchemaRegistry``.
    """
    if form.fixed is not None:
        return {}
    subject = f"{binding.topic}-value"
    versions = registry.versions(subject, timeout_s=look.timeout_s, max_age_s=look.max_age_s)
    if not isinstance(versions, UnknownSchema):
        return {subject: versions}
    rarely = Look(look.timeout_s, SUBJECTS_MAX_AGE_S if look.max_age_s else 0.0)
    others = {
        name
        for number in form.ledger.fingerprints
        for name, _ in subjects_of(registry, number, rarely)
    }
    all_ids = {}
    for name in of_topic(others, binding.topic):
        answer = registry.versions(name, timeout_s=look.timeout_s, max_age_s=look.max_age_s)
        all_ids[name] = {} if isinstance(answer, UnknownSchema) else answer
    return all_ids


def lacking(
    versions: Versions, binding: Binding, form: AvroFormat
) -> tuple[SubjectVersion, ...]:
    """Return those of ``followed``, oldest first, that the ledger lacks or has no schema of.

    Raises:
        BadConfig: it cannot be told which subject is the topic's.
    """
    names, subject = sorted(versions), f"{binding.topic}-value"
    if len(names) > 1 and not names[0].startswith(f"{binding.topic}-"):
        raise BadConfig(
            f"the registry has no subject {subject}, and the ledger's schema ids under several others "
            f"({', '.join(first_of(names))}), none named after the topic; register the versions as {subject}.",
            subject=subject,
        )
    entries = form.ledger.fingerprints
    return tuple(
        SubjectVersion(name, version, number)
        for name in names
        for version, number in sorted(versions[name].items())
        if entries.get(number, UNKNOWN) in NO_SCHEMA
    )


def of_topic(subjects: Iterable[str], topic: str) -> tuple[str, ...]:
    """Return the subjects that are named after a topic, sorted; where there is none, all.

    One text has one id in all subjects, those of other topics among them.
    """
    names = sorted(set(subjects))
    return tuple(name for name in names if name.startswith(f"{topic}-")) or tuple(names)


def subjects_of(
    registry: SchemaRegistry, schema_id: int, look: Look = Look()
) -> tuple[tuple[str, int], ...]:
    """Return the subjects and versions of an id, as far as the registry can say."""
    pairs = registry.subject_versions_of(
        schema_id, timeout_s=look.timeout_s, max_age_s=look.max_age_s
    )
    return () if pairs is None or isinstance(pairs, UnknownSchema) else pairs


def table_subjects(
    registry: SchemaRegistry,
    binding: Binding,
    form: AvroFormat,
    schema_id: int,
    look: Look = Look(),
) -> tuple[tuple[str, int], ...]:
    """Return those of ``subjects_of`` that are the table's, by ``of_topic``; of a fixed schema, its subject and version."""
    if schema_id == FIXED_ID:
        return () if form.fixed is None else (form.fixed,)
    pairs = subjects_of(registry, schema_id, look)
    names = of_topic((name for name, _ in pairs), binding.topic)
    return tuple(pair for pair in pairs if pair[0] in names)
