"""A schema registry in memory, for what asks one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from connectors.registry.client import SchemaRegistry
from connectors.registry.texts import Answer, Format, UnknownSchema, WriterText
from planner.errors import SchemaRegistryUnavailable


@dataclass
class MemoryRegistry:
    """``answers`` by schema id; ``subjects`` have the ids of their versions."""

    answers: dict[int, Answer] = field(default_factory=dict)
    subjects: dict[str, dict[int, int]] = field(default_factory=dict)
    is_up: bool = True

    def register(
        self, subject: str, schema_id: int, text: str, format: Format = "AVRO"
    ) -> None:
        """Add the next version of a subject."""
        self.answers[schema_id] = WriterText(schema_id, text, {}, format)
        versions = self.subjects.setdefault(subject, {})
        versions[len(versions) + 1] = schema_id

    @property
    def client(self) -> SchemaRegistry:
        """It, for those who want the product's own."""
        return cast("SchemaRegistry", self)

    def of(self, *_: str) -> SchemaRegistry:
        return self.client

    def by_ids(self, ids: Iterable[int], **_: Any) -> dict[int, Answer]:
        self._check_up()
        return {each: self._answer(each, f"schema id {each}") for each in ids}

    def by_subject(self, subject: str, version: int, **_: Any) -> Answer:
        self._check_up()
        schema_id = self.subjects.get(subject, {}).get(version, 0)
        return self._answer(schema_id, f"subject {subject}, version {version}")

    def versions(self, subject: str, **_: Any) -> Mapping[int, int] | UnknownSchema:
        self._check_up()
        return self.subjects.get(subject) or UnknownSchema(f"subject {subject}")

    def subject_versions_of(
        self, schema_id: int, **_: Any
    ) -> tuple[tuple[str, int], ...] | UnknownSchema:
        self._check_up()
        pairs = (
            (subject, version)
            for subject, versions in sorted(self.subjects.items())
            for version, number in versions.items()
            if number == schema_id
        )
        return tuple(pairs) or UnknownSchema(f"schema id {schema_id}")

    def _answer(self, schema_id: int, what: str) -> Answer:
        return self.answers.get(schema_id, UnknownSchema(what))

    def _check_up(self) -> None:
        if not self.is_up:
            raise SchemaRegistryUnavailable("the schema registry does not answer; retry.")
