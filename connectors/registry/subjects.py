"""The subjects whose versions a table follows, and those that its ledger lacks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from connectors.registry.decoders import TIMEOUT_S
from connectors.registry.texts import UnknownSchema
from planner.errors import BadConfig
from planner.evolution.ledger import UNKNOWN
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


def lacking(
    registry: SchemaRegistry, binding: Binding, form: AvroFormat
) -> tuple[SubjectVersion, ...]:
    """Return the versions, oldest first, that the ledger lacks or had as unknown.

    Subject ``<topic>-value`` is followed; where the registry has none, those subjects of the ledger's ids that are named
    after the topic, or the only one. A table of one fixed schema follows none.

    Raises:
        SchemaRegistryUnavailable, BadConfig: as ``SchemaRegistry``.
        BadConfig: it cannot be told which subject is the topic's.
    """
    if form.fixed is not None:
        return ()
    entries = form.ledger.fingerprints
    missing = []
    for subject, ids in _versions(registry, binding, form).items():
        missing += [
            SubjectVersion(subject, version, number)
            for version, number in sorted(ids.items())
            if entries.get(number, UNKNOWN) == UNKNOWN
        ]
    return tuple(missing)


def _versions(
    registry: SchemaRegistry, binding: Binding, form: AvroFormat
) -> dict[str, dict[int, int]]:
    subject = f"{binding.topic}-value"
    versions = registry.versions(subject, timeout_s=TIMEOUT_S)
    if not isinstance(versions, UnknownSchema):
        return {subject: versions}
    others = {
        name for number in form.ledger.fingerprints for name, _ in subjects_of(registry, number)
    }
    named = of_topic(others, binding.topic)
    if len(named) > 1 and not named[0].startswith(f"{binding.topic}-"):
        raise BadConfig(
            f"the registry has no subject {subject}, and the ledger's schema ids under several others "
            f"({', '.join(first_of(named))}), none named after the topic; register the versions as {subject}.",
            subject=subject,
        )
    all_ids = {}
    for name in named:
        answer = registry.versions(name, timeout_s=TIMEOUT_S)
        all_ids[name] = {} if isinstance(answer, UnknownSchema) else answer
    return all_ids


def of_topic(subjects: Iterable[str], topic: str) -> tuple[str, ...]:
    """Return the subjects that are named after a topic, sorted; where there is none, all.

    One text has one id in all subjects, those of other topics among them.
    """
    names = sorted(set(subjects))
    return tuple(name for name in names if name.startswith(f"{topic}-")) or tuple(names)


def subjects_of(registry: SchemaRegistry, schema_id: int) -> tuple[tuple[str, int], ...]:
    """Return the subjects and versions of an id, as far as the registry can say."""
    pairs = registry.subject_versions_of(schema_id, timeout_s=TIMEOUT_S)
    return () if pairs is None or isinstance(pairs, UnknownSchema) else pairs
