"""``thermocline schemas``: the schemas of a table's writers, and how the table follows them."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from connectors.decoding.writers import FIXED_ID, Unknown, Writers
from connectors.iceberg.catalogs import Catalogs
from connectors.iceberg.evolve import evolve_table
from connectors.iceberg.past_fields import past_fields
from connectors.iceberg.store import IcebergStore
from connectors.registry.decoders import Decoders
from connectors.registry.facts import mark_of, record_name
from connectors.registry.registries import SchemaRegistries
from connectors.registry.subjects import SubjectVersion, followed, lacking, table_subjects
from connectors.registry.table_schemas import Commit, take_up
from connectors.repairs import AcceptingSchemas
from planner.errors import BadParameter, SchemaRegistryUnavailable
from planner.evolution.applying import applied
from planner.evolution.changes import Evolution, evolve, schema_of_rows
from planner.evolution.ledger import SchemaLedger
from planner.evolution.writer_types import WriterSchema
from planner.names import TableName
from planner.schema import TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import AvroFormat
from planner.seam.schemas_table import state_of
from planner.sql_text import FieldPath
from thermocline.catalog_access import catalog_roots
from thermocline.commands.repair import Repair, committer_of, repair_command
from thermocline.config.settings import Settings, load

if TYPE_CHECKING:
    from connectors.registry.client import SchemaRegistry

_EXAMPLES = """\b
Examples:
  thermocline schemas show lake.net.flows
  thermocline schemas plan lake.net.flows
  thermocline schemas evolve lake.net.flows
  thermocline schemas accept lake.net.flows --yes --json
"""
_table = click.argument("table", metavar="CATALOG.NAMESPACE.TABLE")
_json = click.option("--json", "as_json", is_flag=True, help="One JSON document.")


@click.group("schemas", epilog=_EXAMPLES)
def command() -> None:
    """Show which schemas records of a table have, and have its columns follow them."""


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of Avro records, pinned, and what asks its registry."""

    name: TableName
    schema: TableSchema
    binding: Binding
    form: AvroFormat
    registry: SchemaRegistry
    decoders: Decoders
    #: The fields that it has or had.
    past: Callable[[], frozenset[FieldPath]]
    commit: Commit

    def writers(self, ids: Iterable[int]) -> Writers:
        """Ask for the schemas of ids, as they are in the registry today."""
        return _as_of_today(self.name, self.binding, self.form, self.decoders, ids)

    def changed(self) -> tuple[int, ...]:
        """Return the ids of the ledger that mean another schema in the registry today, or none any more."""
        ledger = self.form.ledger
        return ledger.changed(self.writers(ledger.fingerprints).fingerprints)

    def earlier(self) -> frozenset[FieldPath]:
        """Return the fields that the table has had, and those of the schemas that it has taken up."""
        return self.past() | self.decoders.paths_of_ledger(str(self.name), self.binding)


def _as_of_today(
    name: TableName, binding: Binding, form: AvroFormat, decoders: Decoders, ids: Iterable[int]
) -> Writers:
    # Of an empty ledger: what its ids meant before is no matter here.
    today = replace(binding, format=replace(form, ledger=SchemaLedger({}, form.era + 1)))
    decoders.ask(str(name), today, tuple(ids))
    return decoders.writers(str(name), today)


@contextmanager
def _opened(settings: Settings, name: TableName) -> Iterator[_Table]:
    with (
        closing(IcebergStore(settings.catalogs, roots=catalog_roots(settings))) as store,
        closing(Catalogs(settings.catalogs, catalog_roots(settings))) as catalogs,
        SchemaRegistries(settings.registries) as registries,
    ):
        pin = store.pin(name)
        if pin.binding is None or not isinstance(pin.binding.format, AvroFormat):
            raise BadParameter(
                f"{name}: its records are not Avro, so it has no schemas of writers.",
                table=str(name),
            )
        form = pin.binding.format
        registry = registries.of(form.registry or "")
        decoders = Decoders(registries.of)
        yield _Table(
            name,
            pin.schema,
            pin.binding,
            form,
            registry,
            decoders,
            lambda: past_fields(catalogs.load(name)),
            functools.partial(evolve_table, catalogs),
        )


@command.command(
    "show", short_help="Show the ledger: what each schema id means.", epilog=_EXAMPLES
)
@_table
@_json
@click.pass_obj
def _show(config: str | None, table: str, as_json: bool) -> None:
    """Show the ledger of a table: the schema ids that its records have had, and what the registry says of each today.

    `same`: the schema of then. `changed`: another one, or none any more; the table answers SchemaRegistryChanged.
    `unknown`: the registry had none, its records are bad ones. `not asked`: the registry does not answer.
    """
    name = TableName.parse(table)
    with _opened(load(config).require_catalogs(), name) as opened:
        rows = _ledger_rows(opened)
    if as_json:
        entries = {"table": str(name), "era": opened.form.era, "schemas": rows}
        click.echo(json.dumps(entries, indent=2))
        return
    for row in rows:
        subjects = ", ".join(f"{subject}:{version}" for subject, version in row["subjects"])
        click.echo(
            "  ".join(
                filter(None, (_id_text(row["id"]), subjects, row["record"], row["state"]))
            )
        )
    if not rows:
        click.echo(f"{name}: the ledger is empty.")


def _id_text(schema_id: int) -> str:
    return "fixed schema" if schema_id == FIXED_ID else f"schema id {schema_id}"


def _ledger_rows(table: _Table) -> list[dict[str, Any]]:
    entries = dict(sorted(table.form.ledger.fingerprints.items()))
    try:
        writers = table.writers(entries)
        subjects = {
            number: table_subjects(table.registry, table.binding, table.form, number)
            for number in entries
        }
    except SchemaRegistryUnavailable as error:
        click.echo(f"thermocline: {error.message}", err=True)
        return [_row(number, each, (), None) for number, each in entries.items()]
    return [
        _row(number, each, subjects[number], writers.get(number))
        for number, each in entries.items()
    ]


def _row(
    number: int,
    fingerprint: str,
    subjects: tuple[tuple[str, int], ...],
    writer: WriterSchema | Unknown | None,
) -> dict[str, Any]:
    return {
        "id": number,
        "subjects": [list(each) for each in subjects],
        "record": record_name(writer),
        "state": state_of(fingerprint, mark_of(writer)),
        "fingerprint": fingerprint,
    }


@dataclass(frozen=True, slots=True)
class _Step:
    """What one schema brings. ``notes`` say what does not become columns."""

    version: SubjectVersion
    changes: tuple[str, ...] = ()
    misfits: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def document(self) -> dict[str, Any]:
        return {
            "subject": self.version.subject,
            "version": self.version.version,
            "id": self.version.id,
            "changes": list(self.changes),
            "misfits": list(self.misfits),
            "left_out": list(self.notes),
        }

    def lines(self) -> Iterator[str]:
        is_empty = not (self.changes or self.misfits or self.notes)
        yield f"{self.version}:{' nothing to change' if is_empty else ''}"
        yield from (f"  {each}" for each in self.changes)
        yield from (f"  does not fit: {each}" for each in self.misfits)
        yield from (f"  left out: {each}" for each in self.notes)


@command.command(
    "plan", short_help="Show what new schemas would change, without a commit.", epilog=_EXAMPLES
)
@_table
@_json
@click.pass_obj
def _plan(config: str | None, table: str, as_json: bool) -> None:
    """Show, for each version of the topic's subject that the ledger lacks, what would change; commit nothing.

    Of each: columns to add, to widen and to make optional; fields that do not fit their column; fields that get none.
    """
    name = TableName.parse(table)
    with _opened(load(config).require_catalogs(), name) as opened:
        steps, changed = list(_planned(opened)), opened.changed()
    if as_json:
        click.echo(_document(name, steps, changed))
        return
    lines = [line for step in steps for line in step.lines()]
    click.echo("\n".join((*lines, *_last_lines(name, steps, changed))))


def _document(name: TableName, steps: Iterable[_Step], changed: Iterable[int]) -> str:
    schemas = [each.document for each in steps]
    facts = {"table": str(name), "changed": list(changed), "schemas": schemas}
    return json.dumps(facts, indent=2)


def _last_lines(
    name: TableName, steps: Collection[_Step], changed: Collection[int]
) -> Iterator[str]:
    yield from (
        f"{_id_text(number)} has changed, so the table answers SchemaRegistryChanged"
        for number in changed
    )
    if not (steps or changed):
        yield f"{name}: the ledger has every version of its subject."


def _planned(table: _Table) -> Iterator[_Step]:
    """Plan each schema upon those before it."""
    subjects = followed(table.registry, table.binding, table.form)
    versions = lacking(subjects, table.binding, table.form)
    writers = table.writers([each.id for each in versions]) if versions else Writers()
    schema = table.schema
    earlier = table.earlier() if versions else frozenset()
    for version in versions:
        writer = writers.get(version.id)
        if not isinstance(writer, WriterSchema):
            reason = writer.reason if isinstance(writer, Unknown) else "it is gone"
            yield _Step(version, notes=(f"all its records, which are bad ones: {reason}",))
            continue
        step, evolution = _step(table, version, schema, writer, earlier)
        schema = applied(schema, evolution.changes)
        yield step


def _step(
    table: _Table,
    version: SubjectVersion,
    schema: TableSchema,
    writer: WriterSchema,
    earlier: Collection[FieldPath],
) -> tuple[_Step, Evolution]:
    rows = schema_of_rows(writer, table.form.record, table.binding.envelope)
    if rows is None:
        note = f"all its records: they are {record_name(writer)}, not {table.form.record}"
        return _Step(version, notes=(note,)), Evolution()
    evolution = evolve(
        schema,
        rows,
        earlier,
        table.form.units,
        table.binding.key_column(schema),
        table.binding.key_fields,
    )
    left_out = tuple(map(str, evolution.left_out))
    misfits = tuple(map(str, evolution.misfits))
    changes = tuple(map(str, evolution.changes))
    if table.form.evolution == "none":
        reason = "thermocline.schema.evolution is none"
        notes = (*left_out, *(f"{each} ({reason})" for each in changes))
        return _Step(version, (), misfits, notes), Evolution()
    return _Step(version, changes, misfits, left_out), evolution


@command.command(
    "evolve", short_help="Have the table follow new schemas, now.", epilog=_EXAMPLES
)
@_table
@_json
@click.pass_obj
def _evolve(config: str | None, table: str, as_json: bool) -> None:
    """Change the table as `plan` says and enter the schemas in its ledger, where no `tier` runs that would do it.

    One commit for each schema, oldest first; one that is done already changes nothing. A field that does not fit stops it
    there with SchemaIncompatible, unless the table's thermocline.schema.on_incompatible is error.
    """
    settings = load(config).require_catalogs()
    name = TableName.parse(table)
    done: list[_Step] = []
    with _opened(settings, name) as opened:
        for step in _planned(opened):
            committed = take_up(
                name,
                opened.binding,
                [step.version.id],
                opened.decoders,
                opened.commit,
            )
            changes = () if committed is None else tuple(map(str, committed.changes))
            done.append(replace(step, changes=changes))
            if not as_json:
                click.echo("\n".join(done[-1].lines()))
        changed = opened.changed()
    if as_json:
        click.echo(_document(name, done, changed))
        return
    for line in _last_lines(name, done, changed):
        click.echo(line)


@command.command(
    "accept", short_help="Let schema ids mean what the registry says today.", epilog=_EXAMPLES
)
@repair_command("Do not show which ids mean something else and ask.")
def _accept(settings: Settings, repair: Repair) -> None:
    """Let schema ids mean what the registry says today, for a table that answers SchemaRegistryChanged.

    Rows below the watermark stay as they were decoded. Records from the watermark on are decoded by today's schemas of
    their ids: say yes only if they were written with these. The table takes up the new schemas as those of new ids
    (`schemas evolve`). Servers and tierers that run ask the registry again for the ids of this table.
    """
    name = repair.table
    with (
        SchemaRegistries(settings.registries) as registries,
        committer_of(settings) as committer,
    ):
        changes: dict[int, str] = {}
        decide = AcceptingSchemas(
            lambda binding: _today(name, binding, Decoders(registries.of), changes)
        )
        committer.look(name, decide)
        mark = repair.carry_out(
            "Let them mean that?",
            [f"{name}: the registry has other schemas than when records were tiered:"]
            + [f"  {text}" for text in changes.values()],
            lambda: committer.amend(name, decide, decide.properties),
        )
    era = decide.ledger.era
    lines = [f"{text}, from the watermark on" for text in changes.values()]
    repair.report(
        mark,
        {"ids": sorted(changes), "era": era},
        lines or [f"the ledger begins anew, era {era}"],
    )


def _today(
    name: TableName, binding: Binding, decoders: Decoders, changes: dict[int, str]
) -> Mapping[int, str]:
    """Return today's fingerprints of the ids in the ledger, and note what of them is another one."""
    form = binding.format
    if not isinstance(form, AvroFormat):
        return {}
    ids = form.ledger.fingerprints
    writers = _as_of_today(name, binding, form, decoders, ids) if ids else Writers()
    today = writers.fingerprints
    for number in form.ledger.changed(today):
        now = record_name(writers.get(number))
        changes[number] = f"{_id_text(number)} is {now or 'not there any more'}"
    return today
