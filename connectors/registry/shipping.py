"""Writers' schemas that travel along with the work of processes that ask no registry: Spark's tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from connectors.decoding.writers import FIXED_ID
from connectors.registry.decoders import TIMEOUT_S, Answers, Decoders, avro_of, memory_of
from connectors.registry.subjects import Look, Versions, followed
from connectors.registry.texts import UnknownSchema
from planner.errors import BadConfig, SchemaRegistryUnavailable
from planner.evolution.ledger import UNKNOWN
from planner.names import TableName
from planner.seam.binding import Binding
from planner.seam.formats import AvroFormat

if TYPE_CHECKING:
    from connectors.registry.client import SchemaRegistry

#: How long a registry that did not answer is not asked again for what may not be needed.
SILENCE_S = 10.0
#: How long a list of versions is waited for, and then their schemas: other tables wait, too.
VERSIONS_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class Shipment:
    """What tasks are given, and the fingerprint of each schema (``planner.evolution.ledger``). Of a JSON table, nothing."""

    answers: Answers = field(default_factory=dict)
    fingerprints: Mapping[int, str] = field(default_factory=dict)


class SchemaShipping:
    """What this process was told of writers' schemas, for tasks. Thread-safe.

    ``registry_of`` is ``connectors.registry.registries.SchemaRegistries.of``.
    """

    def __init__(
        self,
        registry_of: Callable[[str, str], SchemaRegistry],
        *,
        timeout_s: float = TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.decoders = Decoders(registry_of, timeout_s=timeout_s)
        self._brief = Decoders(registry_of, timeout_s=VERSIONS_TIMEOUT_S)
        self._registry_of = registry_of
        self._clock = clock
        self._lock = threading.Lock()
        #: By registry, when it is asked again.
        self._silent_until: dict[str, float] = {}
        #: Of ledgers, and not in the registry any more, by the tables' memories.
        self._gone: set[tuple[str, int]] = set()

    def of_ledger(self, table: TableName, binding: Binding) -> Shipment:
        """Return what is known of the ids in a table's ledger.

        Those that this process has not met are asked for once. That the registry is away is no matter here: which of them
        the records have is seen by the tasks.

        Raises:
            SchemaRegistryChanged: an id means another schema than when records with it were tiered.
        """
        if not isinstance(binding.format, AvroFormat):
            return Shipment()
        ids = binding.format.ledger.fingerprints.keys()
        try:
            self._meet(table, binding, self._unmet(table, binding))
        except (SchemaRegistryUnavailable, BadConfig):
            self._hush(binding.format)
        self.decoders.check(str(table), binding)
        fingerprints = self.decoders.writers(str(table), binding).fingerprints
        marks = {each: fingerprints[each] for each in ids if each in fingerprints}
        return Shipment(
            self.decoders.answers_of(str(table), binding, ids),
            marks | dict.fromkeys(binding.format.unknown, UNKNOWN),
        )

    def of_tail(self, table: TableName, binding: Binding) -> Answers:
        """Return what is known of the ids that records of a tail may have: the ledger's, the subject's, those met already.

        Raises:
            SchemaRegistryUnavailable, BadConfig: nothing is known, and the registry does not answer.
            SchemaRegistryChanged: as ``of_ledger``.
        """
        form = binding.format
        if not isinstance(form, AvroFormat):
            return {}
        ids = set(form.ledger.fingerprints)
        try:
            if form.fixed is None:
                versions = self.versions(table, binding)
                ids |= {number for each in versions.values() for number in each.values()}
            else:
                ids.add(FIXED_ID)
            self._meet(table, binding, self._unmet(table, binding, ids))
        except (SchemaRegistryUnavailable, BadConfig):
            if not self.decoders.answers(str(table), binding, ids):
                raise
            self._hush(form)
        self.decoders.check(str(table), binding)
        return self.decoders.answers(str(table), binding, ids)

    def versions(self, table: TableName, binding: Binding, max_age_s: float = 0.0) -> Versions:
        """Return the versions of the subjects that a table may follow (``connectors.registry.subjects.followed``).

        Raises:
            SchemaRegistryUnavailable, BadConfig: the registry does not answer as it should; it is asked again in ``SILENCE_S``.
        """
        form = avro_of(binding)
        registry = self._registry_of(form.registry or "", memory_of(str(table), binding))
        try:
            return followed(registry, binding, form, Look(VERSIONS_TIMEOUT_S, max_age_s))
        except (SchemaRegistryUnavailable, BadConfig):
            self._hush(form)
            raise

    def of_versions(
        self, table: TableName, binding: Binding, ids: Collection[int]
    ) -> frozenset[int]:
        """Ask for ids that versions have, as briefly as for these; return those that there are, which are known then.

        Raises:
            SchemaRegistryUnavailable, BadConfig: as ``versions``.
        """
        try:
            return self._take(self._brief, table, binding, ids) if ids else frozenset()
        except (SchemaRegistryUnavailable, BadConfig):
            self._hush(avro_of(binding))
            raise

    def is_silent(self, form: AvroFormat) -> bool:
        """Return whether the registry did not answer just now."""
        with self._lock:
            return self._clock() < self._silent_until.get(form.registry or "", 0.0)

    def _hush(self, form: AvroFormat) -> None:
        with self._lock:
            self._silent_until[form.registry or ""] = self._clock() + SILENCE_S

    def _unmet(
        self, table: TableName, binding: Binding, ids: Collection[int] = ()
    ) -> list[int]:
        """Return the ids to ask for: those of which nothing is known, neither here nor by the ledger."""
        form, writers = avro_of(binding), self.decoders.writers(str(table), binding)
        if self.is_silent(form):
            return []
        memory = memory_of(str(table), binding)
        return [
            each
            for each in sorted({*form.ledger.fingerprints, *ids} - form.unknown)
            if writers.get(each) is None and (memory, each) not in self._gone
        ]

    def _meet(self, table: TableName, binding: Binding, ids: Collection[int]) -> None:
        """Ask for ids, and take what the registry has of them: that it lacks one matters where records have it."""
        if not ids:
            return
        present = self._take(self.decoders, table, binding, ids)
        memory = memory_of(str(table), binding)
        self._gone |= {(memory, each) for each in ids if each not in present}

    def _take(
        self, asking: Decoders, table: TableName, binding: Binding, ids: Collection[int]
    ) -> frozenset[int]:
        """Ask for ids, and take what the registry has of them; return those that it has."""
        answers = asking.look_up(str(table), binding, ids, waits=False)
        present = {
            each: answer
            for each, answer in answers.items()
            if not isinstance(answer, UnknownSchema)
        }
        self.decoders.add(str(table), binding, present)
        return frozenset(present)
