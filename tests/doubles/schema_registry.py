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
    """``answers`` by schema id, a text alone is of Avro; ``subjects`` have the ids of their versions."""

    answers: dict[int, str | Answer] = field(default_factory=dict)
    subjects: dict[str, dict[int, int]] = field(default_factory=dict)
    is_up: bool = True
    #: After so many requests it is away.
    up_to: int | None = None
    #: What each was for: ids, sorted, or a subject.
    requests: list[Any] = field(default_factory=list)
    #: The most time that one got.
    longest_s: float = 0.0

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

    def by_ids(self, ids: Iterable[int], *, timeout_s: float, **_: Any) -> dict[int, Answer]:
        in_order = sorted(ids)
        self._note(in_order, timeout_s)
        return {each: self._answer(each, f"schema id {each}") for each in in_order}

    def by_subject(self, subject: str, version: int, **_: Any) -> Answer:
        self._note(subject)
        schema_id = self.subjects.get(subject, {}).get(version, 0)
        return self._answer(schema_id, f"subject {subject}, version {version}")

    def versions(
        self, subject: str, *, timeout_s: float, **_: Any
    ) -> Mapping[int, int] | UnknownSchema:
        self._note(subject, timeout_s)
        return self.subjects.get(subject) or UnknownSchema(f"subject {subject}")

    def subject_versions_of(
        self, schema_id: int, **_: Any
    ) -> tuple[tuple[str, int], ...] | UnknownSchema:
        self._note([schema_id])
        pairs = (
            (subject, version)
            for subject, versions in sorted(self.subjects.items())
            for version, number in versions.items()
            if number == schema_id
        )
        return tuple(pairs) or UnknownSchema(f"schema id {schema_id}")

    def _answer(self, schema_id: int, what: str) -> Answer:
        answer = self.answers.get(schema_id, UnknownSchema(what))
        return WriterText(schema_id, answer, {}, "AVRO") if isinstance(answer, str) else answer

    def _note(self, request: object, timeout_s: float = 0.0) -> None:
        self.requests.append(request)
        self.longest_s = max(self.longest_s, timeout_s)
        is_over = self.up_to is not None and len(self.requests) > self.up_to
        if is_over or not self.is_up:
            raise SchemaRegistryUnavailable("the schema registry does not answer; retry.")
