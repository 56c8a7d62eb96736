"""What a server can say of the schemas of a table's writers: those of its ledger, and those that records of the tail had."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from connectors.decoding.writers import Unknown
from connectors.registry.decoders import Decoders, memory_of
from connectors.registry.subjects import SUBJECTS_MAX_AGE_S, Look, table_subjects
from connectors.registry.texts import UnknownSchema
from planner.errors import BadConfig, SchemaRegistryUnavailable
from planner.evolution.ledger import UNKNOWN
from planner.evolution.writer_types import WriterSchema
from planner.names import TableName
from planner.seam.binding import Binding
from planner.seam.formats import AvroFormat
from planner.seam.schemas_table import SchemaFacts

if TYPE_CHECKING:
    from connectors.registry.client import SchemaRegistry

#: How long a statement waits for one answer, and for all; and how long a registry is left alone that gave none.
_ANSWER_S = 2.0
_ALL_S = 5.0
_SILENCE_S = 10.0


def record_name(writer: WriterSchema | Unknown | None) -> str | None:
    """Return the full name of a schema's record, or the kind of one that is no record."""
    if not isinstance(writer, WriterSchema):
        return None
    return writer.root.value.name or writer.root.value.kind


def mark_of(writer: WriterSchema | Unknown | None) -> str | None:
    """Return what a ledger has of a schema; None: the registry was not asked."""
    if isinstance(writer, Unknown):
        return writer.mark
    return None if writer is None else writer.fingerprint


class SchemaReports:
    """Thread-safe. ``registry_of`` and ``decoders`` are those of the tables' tails.

    Each id is asked for once: what is said of it is what the process goes by.
    """

    def __init__(
        self,
        registry_of: Callable[[str, str], SchemaRegistry],
        decoders: Decoders,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry_of = registry_of
        self._tails = decoders
        # Apart from those of tails: what is asked for here alone stops no statement.
        self._own = Decoders(registry_of, timeout_s=_ANSWER_S)
        self._clock = clock
        self._lock = threading.Lock()
        self._silent_until: dict[str, float] = {}

    def __call__(self, table: TableName, binding: Binding | None) -> list[SchemaFacts]:
        """Return facts of each id, as far as the registry answers soon."""
        if binding is None or not isinstance(binding.format, AvroFormat):
            return []
        form = binding.format
        ids = sorted({*form.ledger.fingerprints, *self._tails.met(str(table), binding)})
        name = form.registry or ""
        facts = {each: SchemaFacts(each) for each in ids}
        with self._lock:
            is_silent = self._clock() < self._silent_until.get(name, 0.0)
        if not is_silent:
            try:
                for answer in self._answers(table, binding, form, ids):
                    facts[answer.id] = answer
            except (SchemaRegistryUnavailable, BadConfig):
                with self._lock:
                    self._silent_until[name] = self._clock() + _SILENCE_S
        tails = self._tails.writers(str(table), binding)
        return [_as_read(facts[each], tails.get(each)) for each in ids]

    def _answers(
        self, table: TableName, binding: Binding, form: AvroFormat, ids: Collection[int]
    ) -> Iterator[SchemaFacts]:
        """Raises SchemaRegistryUnavailable, BadConfig."""
        end_s = self._clock() + _ALL_S
        writers = self._own.writers(str(table), binding)
        registry = self._registry_of(form.registry or "", memory_of(str(table), binding))
        look = Look(_ANSWER_S, SUBJECTS_MAX_AGE_S)
        for each in ids:
            if self._clock() > end_s:
                return
            if writers.get(each) is None:
                answers = self._own.look_up(str(table), binding, (each,), waits=False)
                if isinstance(answers[each], UnknownSchema):  # it may come to life
                    yield SchemaFacts(each, UNKNOWN)
                    continue
                self._own.add(str(table), binding, answers)
            subjects = table_subjects(registry, binding, form, each, look)
            writer = writers.get(each)
            yield SchemaFacts(each, mark_of(writer), record_name(writer), subjects)


def _as_read(facts: SchemaFacts, writer: WriterSchema | Unknown | None) -> SchemaFacts:
    """Return facts with the schema that a tail goes by, where one has met the id."""
    if writer is None:
        return facts
    return replace(facts, mark=mark_of(writer), record=record_name(writer))
