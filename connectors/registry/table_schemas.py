"""Keeps a table in step with the schemas of its writers: its columns follow, its ledger says what each id meant."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from connectors.decoding.writers import Writers
from connectors.registry.decoders import Decoders, avro_of
from planner.errors import BadBinding, SchemaIncompatible, TieringConflict
from planner.evolution.applying import applied
from planner.evolution.changes import (
    Change,
    Decide,
    Evolution,
    Evolving,
    evolve,
    schema_of_rows,
)
from planner.evolution.ledger import SchemaLedger
from planner.evolution.writer_types import WriterSchema
from planner.names import TableName, shell_word
from planner.schema import TableSchema
from planner.seam.binding import Binding, parse_binding
from planner.seam.formats import ON_INCOMPATIBLE, AvroFormat
from planner.sql_text import FieldPath

#: Commits what a decision says on the newest metadata; returns what was committed.
Commit = Callable[[TableName, Decide], Evolving | None]


def take_up(
    table: TableName,
    binding: Binding,
    ids: Collection[int],
    decoders: Decoders,
    commit: Commit,
) -> Evolving | None:
    """Bring schemas by id into the table: what they need of it, and themselves into its ledger. Return what was committed.

    One commit for all that the ledger lacks, also where nothing has to evolve.

    Raises:
        SchemaRegistryUnavailable, SchemaRegistryChanged, TooManySchemas, BadConfig: as ``Decoders.ask``.
        SchemaIncompatible: a schema does not fit, and the table is set to stop then. It is in no ledger; those with lower
            ids are.
        As ``commit``.
    """
    writers = decoders.writers(str(table), binding)
    unmet = [schema_id for schema_id in ids if writers.get(schema_id) is None]
    if unmet:
        decoders.ask(str(table), binding, unmet)
    earlier = decoders.paths_of_ledger(str(table), binding) if ids else frozenset()
    era = avro_of(binding).ledger.era
    deciding = _Deciding(table, tuple(sorted(ids)), writers, era, earlier)
    committed = commit(table, deciding) if ids else None
    if deciding.misfit is not None:
        raise deciding.misfit
    return committed


@dataclass(slots=True)
class _Deciding:
    """A ``Decide``. ``earlier``: the fields of schemas taken up before. ``misfit``: what stopped it before all were taken up.

    ``earlier`` has what was left out of the table from the start, the table's own schemas what was dropped from it.
    """

    table: TableName
    ids: tuple[int, ...]
    writers: Writers
    era: int
    earlier: frozenset[FieldPath]
    misfit: SchemaIncompatible | None = None

    def __call__(
        self, schema: TableSchema, properties: Mapping[str, str], past: Collection[FieldPath]
    ) -> Evolving | None:
        earlier = self.earlier.union(past)
        table, fingerprints = self.table, self.writers.fingerprints
        binding, ledger = self._newest(properties)
        ledger.check(table, {each: fingerprints[each] for each in self.ids})
        ledger.check_room(table, self.ids)
        new = [at for at in self.ids if ledger.fingerprints.get(at) != fingerprints[at]]
        changes: list[Change] = []
        self.misfit = None
        for index, schema_id in enumerate(new):
            writer = self.writers.get(schema_id)
            if not isinstance(writer, WriterSchema):
                continue
            try:
                evolution = needed(table, schema, binding, (schema_id, writer), earlier)
            except SchemaIncompatible as misfit:
                self.misfit, new = misfit, new[:index]
                break
            schema = applied(schema, evolution.changes)
            changes += evolution.changes
        if not new:
            return None
        more = ledger.with_schemas({at: fingerprints[at] for at in new})
        return Evolving(tuple(changes), more.text)

    def _newest(self, properties: Mapping[str, str]) -> tuple[Binding, SchemaLedger]:
        binding = parse_binding(self.table, properties)
        if binding is None or not isinstance(binding.format, AvroFormat):
            raise BadBinding(
                f"{self.table}: the table has no Avro records any more; plan again.",
                table=str(self.table),
            )
        if binding.format.ledger.era != self.era:
            raise TieringConflict(
                f"{self.table}: a person accepted that ids mean other schemas; plan again.",
                table=str(self.table),
            )
        return binding, binding.format.ledger


def needed(
    table: TableName,
    schema: TableSchema,
    binding: Binding,
    numbered: tuple[int, WriterSchema],
    earlier: Collection[FieldPath] = (),
) -> Evolution:
    """Return what a table takes up of a schema with its id, by its own options; ``earlier`` as in ``evolve``.

    Raises:
        SchemaIncompatible: a field does not fit, and the table is set to stop then.
    """
    schema_id, writer = numbered
    form = avro_of(binding)
    rows = schema_of_rows(writer, form.record, binding.envelope)
    if form.evolution == "none" or rows is None:
        return Evolution()
    evolution = evolve(
        schema, rows, earlier, form.units, binding.key_column(schema), binding.key_fields
    )
    if evolution.misfits and form.on_incompatible == "stop":
        misfit = evolution.misfits[0]
        name = rows.root.value.name or rows.root.value.kind
        raise SchemaIncompatible(
            f"{table}: schema id {schema_id} ({name}) does not fit: {misfit}, which no change makes one. `thermocline schemas plan "
            f"{shell_word(table)}` shows its subject; register a schema there that fits, or set the table's property "
            f"{ON_INCOMPATIBLE} to error, by which such records are bad ones.",
            table=str(table),
            schema_id=schema_id,
            field=".".join(misfit.path),
        )
    return evolution
