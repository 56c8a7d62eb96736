"""Keeps a table in step with the schemas of its writers: its columns follow, its ledger says what each id meant."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from connectors.decoding.writers import Unknown, Writers
from connectors.registry.decoders import Decoders
from planner.errors import BadBinding, SchemaIncompatible, TieringConflict
from planner.evolution.changes import Decide, Evolution, Evolving, Path, evolve
from planner.evolution.writer_types import WriterSchema
from planner.names import TableName
from planner.schema import TableSchema
from planner.seam.binding import Binding, parse_binding
from planner.seam.formats import ON_INCOMPATIBLE, AvroFormat

#: Commits what a decision says on the newest metadata; returns what was committed.
Commit = Callable[[TableName, Decide], Evolving | None]


def take_up(
    table: TableName,
    binding: Binding,
    ids: Collection[int],
    decoders: Decoders,
    commit: Commit,
) -> tuple[Evolving, ...]:
    """Bring schemas by id into the table: what they need of it, and themselves into its ledger. Return what was committed.

    One commit for each schema that the ledger lacks, also where nothing has to evolve.

    Raises:
        SchemaRegistryUnavailable, SchemaRegistryChanged, BadConfig: as ``Decoders.ask``.
        SchemaIncompatible: a schema does not fit, and the table is set to stop then. It is in no ledger.
        As ``commit``.
    """
    writers = decoders.writers(binding)
    unmet = [schema_id for schema_id in ids if writers.get(schema_id) is None]
    if unmet:
        decoders.ask(str(table), binding, unmet)
    done = []
    earlier = decoders.paths_of_ledger(str(table), binding) if ids else frozenset()
    era = binding.format.ledger.era if isinstance(binding.format, AvroFormat) else 0
    for schema_id in sorted(ids):
        committed = commit(table, _decision(table, schema_id, writers, (era, earlier)))
        if committed is not None:
            done.append(committed)
    return tuple(done)


def _decision(
    table: TableName, schema_id: int, writers: Writers, before: tuple[int, Collection[Path]]
) -> Decide:
    """``before`` are the era for which this is decided, and the fields of schemas taken up earlier."""
    era, earlier = before

    def decide(schema: TableSchema, properties: Mapping[str, str]) -> Evolving | None:
        binding = parse_binding(table, properties)
        if binding is None or not isinstance(binding.format, AvroFormat):
            raise BadBinding(
                f"{table}: the table has no Avro records any more; plan again.",
                table=str(table),
            )
        fingerprint = writers.fingerprints[schema_id]
        ledger = binding.format.ledger
        if ledger.era != era:
            raise TieringConflict(
                f"{table}: a person accepted that ids mean other schemas; plan again.",
                table=str(table),
            )
        ledger.check(table, {schema_id: fingerprint})
        if ledger.fingerprints.get(schema_id) == fingerprint:
            return None
        more = ledger.with_schemas({schema_id: fingerprint}).text
        writer = writers.get(schema_id)
        if isinstance(writer, Unknown) or writer is None:
            return Evolving((), more)
        evolution = needed(table, schema, binding, (schema_id, writer), earlier)
        return Evolving(evolution.changes, more)

    return decide


def needed(
    table: TableName,
    schema: TableSchema,
    binding: Binding,
    numbered: tuple[int, WriterSchema],
    earlier: Collection[Path] = (),
) -> Evolution:
    """Return what a table takes up of a schema with its id, by its own options; ``earlier`` as in ``evolve``.

    Raises:
        SchemaIncompatible: a field does not fit, and the table is set to stop then.
    """
    schema_id, writer = numbered
    form = binding.format
    assert isinstance(form, AvroFormat)  # noqa: S101 - as its caller checks
    if form.evolution == "none" or form.record not in (None, writer.root.value.name):
        return Evolution()
    evolution = evolve(schema, writer, earlier, binding.key_column(schema))
    if evolution.misfits and form.on_incompatible == "stop":
        misfit = evolution.misfits[0]
        name = writer.root.value.name or writer.root.value.kind
        raise SchemaIncompatible(
            f"{table}: schema id {schema_id} ({name}) does not fit: {misfit}, which no change makes one; register a schema that "
            f"fits, or set the table's property {ON_INCOMPATIBLE} to error, by which such records are bad ones.",
            table=str(table),
            schema_id=schema_id,
            field=".".join(misfit.path),
        )
    return evolution
