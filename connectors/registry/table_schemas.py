"""Keeps a table in step with the schemas of its writers: its columns follow, its ledger says what each id meant."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from connectors.decoding.writers import Unknown, Writers
from connectors.registry.decoders import Decoders
from planner.errors import BadBinding, SchemaIncompatible, TieringConflict
from planner.evolution.changes import (
    Decide,
    Evolution,
    Evolving,
    Path,
    evolve,
    schema_of_rows,
)
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

    One commit for each schema that the ledger lacks, also where nothing has to evolve, and one for all ids that have none.

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
    unknown = sorted(each for each in ids if isinstance(writers.get(each), Unknown))
    steps = [unknown] if unknown else []
    steps += [[each] for each in sorted(ids) if each not in set(unknown)]
    for step in steps:
        committed = commit(table, _decision(table, step, writers, (era, earlier)))
        if committed is not None:
            done.append(committed)
    return tuple(done)


def _decision(
    table: TableName,
    ids: Sequence[int],
    writers: Writers,
    before: tuple[int, Collection[Path]],
) -> Decide:
    """``ids`` are one, or all without a schema. ``before``: the era of the decision, and the fields of earlier schemas."""
    era, earlier = before

    def decide(schema: TableSchema, properties: Mapping[str, str]) -> Evolving | None:
        binding = parse_binding(table, properties)
        if binding is None or not isinstance(binding.format, AvroFormat):
            raise BadBinding(
                f"{table}: the table has no Avro records any more; plan again.",
                table=str(table),
            )
        today = writers.fingerprints
        fingerprints = {each: today[each] for each in ids}
        ledger = binding.format.ledger
        if ledger.era != era:
            raise TieringConflict(
                f"{table}: a person accepted that ids mean other schemas; plan again.",
                table=str(table),
            )
        ledger.check(table, fingerprints)
        more = ledger.with_schemas(fingerprints)
        if more == ledger:
            return None
        writer = writers.get(ids[0])
        if isinstance(writer, Unknown) or writer is None:
            return Evolving((), more.text)
        evolution = needed(table, schema, binding, (ids[0], writer), earlier)
        return Evolving(evolution.changes, more.text)

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
    rows = schema_of_rows(writer, form.record)
    if form.evolution == "none" or rows is None:
        return Evolution()
    evolution = evolve(schema, rows, earlier, binding.key_column(schema))
    if evolution.misfits and form.on_incompatible == "stop":
        misfit = evolution.misfits[0]
        name = rows.root.value.name or rows.root.value.kind
        raise SchemaIncompatible(
            f"{table}: schema id {schema_id} ({name}) does not fit: {misfit}, which no change makes one; register a schema that "
            f"fits, or set the table's property {ON_INCOMPATIBLE} to error, by which such records are bad ones.",
            table=str(table),
            schema_id=schema_id,
            field=".".join(misfit.path),
        )
    return evolution
