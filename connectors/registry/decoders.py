"""Builds decoders of tables, and finds the schemas that their records were written with.

One process asks registries: the server, the tierer's driver, a command. Those that read topics for it and Spark's tasks get
what it was answered along with their work, and neither address nor login of a registry.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from connectors.decoding.avro.carrying import carries_over
from connectors.decoding.avro.wire import ids_of
from connectors.decoding.fields import payload_fields
from connectors.decoding.policy import TableDecoder
from connectors.decoding.registry import decoder_for
from connectors.decoding.writers import FIXED_ID, Writers
from connectors.registry.texts import Answer, UnknownSchema, UnusableSchema
from planner.errors import InternalError, SchemasNeeded
from planner.evolution.changes import paths_of, schema_of_rows
from planner.evolution.conversions import Heritage, conversions
from planner.evolution.ledger import NO_SCHEMA, SchemaLedger
from planner.evolution.writer_types import WriterSchema
from planner.names import KAFKA_VALUE, TableName
from planner.ports import Decoded, Decoder
from planner.schema import TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import AvroFormat
from planner.seam.watermark import Outcomes
from planner.sql_text import FieldPath

#: A statement that meets a new schema waits so long at most; an unknown id's grace time is inside.
TIMEOUT_S = 30.0
#: Ids that are asked for together. Records that are not Avro may have thousands, and what is known of some is kept when time ends.
_AT_ONCE = 300
#: How long an id that the registry lacks counts as one of its table's, once these are too many.
FORGOTTEN_AFTER_S = 600.0

#: What a registry answered, by schema id (``connectors.decoding.writers.FIXED_ID`` for a table's fixed schema). Picklable.
Answers = Mapping[int, Answer]


class Registry(Protocol):
    """What ``connectors.registry.client.SchemaRegistry`` does of it."""

    def by_ids(
        self,
        ids: Collection[int],
        *,
        timeout_s: float,
        anew: bool = False,
        waits: bool = True,
    ) -> Answers:
        """Return the schemas of these ids."""

    def by_subject(self, subject: str, version: int, *, timeout_s: float) -> Answer:
        """Return one version of a subject."""


@dataclass(slots=True)
class _Era:
    """What a registry answered for a table, by one memory (``memory_of``). ``Decoders`` guards ``met``."""

    table: str = ""
    writers: Writers = field(default_factory=Writers)
    answers: dict[int, Answer] = field(default_factory=dict)
    #: Ids that records had, and when that was noted, by the clock.
    met: dict[int, float] = field(default_factory=dict)

    def meet(self, ledger: SchemaLedger, ids: Collection[int], now_s: float) -> None:
        """Note that records have ids. Raises TooManySchemas, as ``SchemaLedger.check_room``.

        Where there are too many, those are forgotten that the registry lacked some time ago: their records may be gone.
        """
        if not ledger.has_room({*self.met, *ids}):
            for each, at_s in tuple(self.met.items()):
                is_unknown = isinstance(self.answers.get(each), UnknownSchema)
                if is_unknown and now_s - at_s >= FORGOTTEN_AFTER_S:
                    del self.met[each], self.answers[each]
                    self.writers.forget(each)
        ledger.check_room(TableName.parse(self.table), {*self.met, *ids})
        self.met |= dict.fromkeys(ids, now_s)

    def add(self, answers: Answers) -> None:
        for schema_id, answer in answers.items():
            if self.answers.get(schema_id) == answer:
                continue  # a text is parsed once
            if isinstance(answer, UnknownSchema):
                self.writers.add_unknown(schema_id)
            elif isinstance(answer, UnusableSchema):
                self.writers.add_unreadable(schema_id, f"cannot be read: {answer.why}")
            elif answer.format != "AVRO":
                self.writers.add_unreadable(
                    schema_id, f"is of the type {answer.format}, not AVRO"
                )
            else:
                self.writers.add(schema_id, answer.text, answer.references)
            self.answers[schema_id] = answer


class Decoders:
    """``planner.ports.DecoderFactory`` for tables of all formats. Thread-safe.

    ``registry_of`` is ``connectors.registry.registries.SchemaRegistries.of``. Without it a decoder raises SchemasNeeded for
    ids that ``add`` was not given.
    """

    def __init__(
        self,
        registry_of: Callable[[str, str], Registry] | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry_of = registry_of
        self._timeout_s = timeout_s
        self._clock = clock
        self._lock = threading.Lock()
        self._eras: dict[tuple[object, ...], _Era] = {}

    def __call__(self, table: str, schema: TableSchema, binding: Binding) -> Decoder:
        """Build the decoder of a table.

        Raises:
            As ``connectors.decoding.registry.decoder_for``.
            SchemaRegistryChanged: as ``check``.
        """
        if not isinstance(binding.format, AvroFormat):
            return decoder_for(table, schema, binding)
        self.check(table, binding)
        decoder = decoder_for(table, schema, binding, self._era(table, binding).writers)
        return _AskingDecoder(decoder, lambda ids: self.ask(table, binding, ids))

    def ask(self, table: str, binding: Binding, ids: Collection[int]) -> None:
        """Ask the table's registry for the schemas of ids.

        Raises:
            SchemasNeeded: this process has no registries.
            SchemaRegistryUnavailable: no answer in time.
            SchemaRegistryChanged: as ``check``.
            TooManySchemas: as ``SchemaLedger.check_room``.
            BadConfig: the registry's settings are wrong.
        """
        era = self._era(table, binding)
        with self._lock:
            era.meet(avro_of(binding).ledger, ids, self._clock())
        in_order = sorted(ids)
        for start in range(0, len(in_order), _AT_ONCE):
            some = in_order[start : start + _AT_ONCE]
            self.add(table, binding, self.look_up(table, binding, some))
        self.check(table, binding)

    def look_up(
        self,
        table: str,
        binding: Binding,
        ids: Collection[int],
        *,
        anew: bool = False,
        waits: bool = True,
    ) -> Answers:
        """Return what the table's registry says of ids, and take none of it yet. Raises as ``ask``.

        ``anew``, ``waits``: as ``SchemaRegistry.by_ids``.
        """
        form = avro_of(binding)
        if self._registry_of is None:
            raise SchemasNeeded(
                f"{table}: records have schemas that their reader was not given; try again.",
                ids=" ".join(map(str, sorted(ids))),
            )
        registry = self._registry_of(form.registry or "", memory_of(table, binding))
        answers: dict[int, Answer] = {}
        if FIXED_ID in ids and form.fixed is not None:
            answers[FIXED_ID] = registry.by_subject(*form.fixed, timeout_s=self._timeout_s)
        numbers = [schema_id for schema_id in ids if schema_id != FIXED_ID]
        if numbers:
            answers |= registry.by_ids(
                numbers, timeout_s=self._timeout_s, anew=anew, waits=waits
            )
        return answers

    def paths_of_ledger(self, table: str, binding: Binding) -> frozenset[FieldPath]:
        """Return the fields of rows by all schemas in the table's ledger that the registry still has as they were.

        Raises as ``ask``.
        """
        form = avro_of(binding)
        entries = form.ledger.fingerprints
        era = _Era()
        era.add(
            self.look_up(table, binding, [at for at in entries if entries[at] not in NO_SCHEMA])
        )
        schemas = [era.writers.get(at) for at in entries]
        rows = [
            schema_of_rows(each, form.record, binding.envelope)
            for each in schemas
            if isinstance(each, WriterSchema) and each.fingerprint in entries.values()
        ]
        return frozenset[FieldPath]().union(
            *(paths_of(each) for each in rows if each is not None)
        )

    def check(self, table: str, binding: Binding) -> bool:
        """Check what this process knows of ids against the table's ledger; ids that it has not met yet are not asked for.

        Those that the registry lacked, and another process has taken up since, are asked for again. Return whether there were
        some: their records were bad ones here until now.

        Raises:
            SchemaRegistryChanged: one means another schema than when records with it were tiered.
            SchemaRegistryUnavailable, BadConfig: as ``ask``, where one is asked for again.
        """
        if not isinstance(binding.format, AvroFormat) or not binding.format.ledger.fingerprints:
            return False
        ledger, era = binding.format.ledger, self._era(table, binding)
        changed = ledger.changed(era.writers.fingerprints)
        if not changed:
            return False
        late = [each for each in changed if isinstance(era.answers.get(each), UnknownSchema)]
        if late and self._registry_of is not None:
            self.add(table, binding, self.look_up(table, binding, late, anew=True))
        ledger.check(TableName.parse(table), era.writers.fingerprints)
        return bool(late)

    def heritage(
        self, table: str, binding: Binding, before: TableSchema, after: TableSchema
    ) -> Heritage | None:
        """Return what rows under one schema say of those under another. None: nothing, the records must be read again."""
        steps = conversions(before, after)
        if steps is None or not isinstance(binding.format, AvroFormat):
            return None
        boundary = binding.boundary
        if boundary is not None and not boundary.is_of_same_records(before, after):
            # Rows that were left out under the one are rows under the other.
            return None
        if binding.upsert is not None:
            # Which change came before each is not known of rows that were read otherwise.
            return None
        values = []
        for schema in (before, after):
            key = binding.key_column(schema)
            if key is not None and steps.get(key.name) != "same":
                return None
            others = tuple(column for column in schema.columns if column is not key)
            values.append(payload_fields(table, replace(schema, columns=others), binding))
        carries_record = functools.partial(
            carries_over,
            steps=steps,
            record=binding.format.record,
            is_all_good=binding.on_error == "fail",
        )
        writers = self.writers(table, binding)

        @functools.cache
        def carries_id(schema_id: int) -> bool:
            writer = writers.get(schema_id)
            return isinstance(writer, WriterSchema) and carries_record(writer, *values)

        return Heritage(steps, lambda ids: ids is not None and all(map(carries_id, ids)))

    def add(self, table: str, binding: Binding, answers: Answers) -> None:
        """Take what another process was answered."""
        self._era(table, binding).add(answers)

    def answers(self, table: str, binding: Binding, ids: Collection[int] = ()) -> Answers:
        """Return what is known of ``ids``, and of those that records of the table had, for other processes."""
        if not isinstance(binding.format, AvroFormat):
            return {}
        return self.answers_of(table, binding, {*ids, *self.met(table, binding)})

    def answers_of(self, table: str, binding: Binding, ids: Collection[int]) -> Answers:
        """Return what is known of ``ids`` alone."""
        era = self._era(table, binding)
        return {at: era.answers[at] for at in sorted(ids) if at in era.answers}

    def met(self, table: str, binding: Binding) -> frozenset[int]:
        """Return the ids that records of a table had."""
        era = self._era(table, binding)
        with self._lock:
            return frozenset(era.met)

    def counts(self) -> dict[str, int]:
        """Return how many ids records of each table had."""
        with self._lock:
            return {era.table: len(era.met) for era in self._eras.values()}

    def writers(self, table: str, binding: Binding) -> Writers:
        return self._era(table, binding).writers

    def _era(self, table: str, binding: Binding) -> _Era:
        form = avro_of(binding)
        key = form.registry, form.fixed, memory_of(table, binding)
        with self._lock:
            return self._eras.setdefault(key, _Era(table))


def memory_of(table: str, binding: Binding) -> str:
    """Name the memory of a registry's answers that a table uses.

    Each table has its own, also one that was made anew by its name, and each era of one: a registry may have been replaced
    since it was asked for another table, or before a person accepted that ids mean other schemas. So no table has answers of
    two registries for that reason.
    """
    return f"{table} {binding.table_uuid} {avro_of(binding).era}"


def avro_of(binding: Binding) -> AvroFormat:
    """Return the format of a table of Avro records; raises InternalError for another one's."""
    if not isinstance(binding.format, AvroFormat):
        raise InternalError(f"The format {binding.format.name} has no schemas of writers.")
    return binding.format


def shipped_decoder(
    table: str, schema: TableSchema, binding: Binding, answers: Answers | None = None
) -> Decoder:
    """Build the decoder of a table where no registry is asked, by what came along with the work.

    Its batches say in ``needs`` which ids are not in ``answers``; behind the first such batch it reads ids alone.

    Raises:
        As ``connectors.decoding.registry.decoder_for``.
    """
    if not isinstance(binding.format, AvroFormat):
        return decoder_for(table, schema, binding)
    era = _Era()
    era.add(answers or {})
    decoder = decoder_for(table, schema, binding, era.writers)
    return _ShippedDecoder(decoder, binding, era.writers)


@dataclass(slots=True)
class _ShippedDecoder:
    decoder: TableDecoder
    binding: Binding
    writers: Writers
    _reads_ids: bool = False

    @property
    def reads(self) -> frozenset[str]:
        return self.decoder.reads

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """See ``planner.ports.Decoder.decode``."""
        if self._reads_ids:
            left = self.decoder.without_skips(batch)
            ids = ids_of(
                left.column(KAFKA_VALUE), is_fixed=avro_of(self.binding).fixed is not None
            )
            unknown = avro_of(self.binding).unknown
            needs = frozenset(each for each in ids - unknown if self.writers.get(each) is None)
            return Decoded(self.decoder.no_rows, Outcomes(), needs)
        decoded = self.decoder.decode(batch)
        self._reads_ids = bool(decoded.needs)
        return decoded


@dataclass(frozen=True, slots=True)
class _AskingDecoder:
    """Asks for the schemas that a batch needs, and decodes it again."""

    decoder: Decoder
    ask: Callable[[Collection[int]], None]

    @property
    def reads(self) -> frozenset[str]:
        return self.decoder.reads

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """See ``planner.ports.Decoder.decode``. Raises also as ``Decoders.ask``."""
        decoded = self.decoder.decode(batch)
        while decoded.needs:
            self.ask(decoded.needs)
            decoded = self.decoder.decode(batch)
        return decoded
