"""Commits what a table needs for new schemas of its writers, and the ledger of these, in one transaction (no Spark)."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.update.schema import UpdateSchema

from connectors.iceberg.catalogs import Catalogs
from connectors.iceberg.create import NAME_MAPPING
from connectors.iceberg.past_fields import past_fields
from connectors.iceberg.types import iceberg_type, parsed_schema
from planner.column_statistics import uuid_properties
from planner.errors import CatalogUnavailable, SchemaIncompatible
from planner.evolution.changes import AddColumn, Change, Decide, Evolving, Widen
from planner.evolution.ledger import SCHEMAS
from planner.names import TableName
from planner.seam.formats import SCHEMA_EVOLUTION

_ATTEMPTS = 10
_BACKOFF_S = 0.05


def evolve_table(
    catalogs: Catalogs,
    table: TableName,
    decide: Decide,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> Evolving | None:
    """Commit what ``decide`` says, and return it; None: there was nothing to commit.

    Another commit in between has it decided again, so two tierers end with one column.

    Raises:
        As ``decide``.
        SchemaIncompatible: Iceberg does not let this table change so: a name is that of a partition field, or an identifier
            field would become optional.
        CatalogUnavailable: it did not answer, or others committed first ten times in a row. What it may have committed in
            spite of that is found by the next call.
    """
    for attempt in range(_ATTEMPTS):
        if attempt:
            sleep(_BACKOFF_S * 2**attempt * random.uniform(0.5, 1))  # noqa: S311 - jitter
        loaded = catalogs.load(table)
        properties = loaded.metadata.properties
        schema = parsed_schema(
            table, loaded.schema().model_dump(), properties.get(NAME_MAPPING)
        )
        evolving = decide(schema, properties, past_fields(loaded))
        if evolving is None:
            return None
        try:
            with catalogs.using(table.catalog, table):
                _commit(table, loaded, evolving)
        except CommitFailedException:
            continue
        return evolving
    raise CatalogUnavailable(
        f"{table}: other writers committed first {_ATTEMPTS} times in a row; its schema was not changed, try again.",
        table=str(table),
    )


def _commit(table: TableName, loaded: Table, evolving: Evolving) -> None:
    transaction = loaded.transaction()
    properties = {SCHEMAS: evolving.ledger}
    if evolving.changes:
        try:
            for changes in _independent(evolving.changes):
                with transaction.update_schema() as update:
                    for change in changes:
                        _apply(update, change)
        except ValueError as error:
            raise _refused(table, evolving.changes, error) from None
        added = [change for change in evolving.changes if isinstance(change, AddColumn)]
        fields = [pa.field(".".join(change.path), change.type) for change in added]
        properties |= uuid_properties(pa.schema(fields))
    transaction.set_properties(properties)
    transaction.commit_transaction()


def _refused(
    table: TableName, changes: Sequence[Change], error: ValueError
) -> SchemaIncompatible:
    # pydantic's second line has the reason, with what it was given behind it.
    lines = str(error).splitlines()
    reason = lines[min(1, len(lines) - 1)].partition(" [type=")[0]
    reason = reason.strip().removeprefix("Value error, ")
    return SchemaIncompatible(
        f"{table}: Iceberg refuses a change that a new schema asks for ({', '.join(map(str, changes))}): {reason}; change the "
        f"table so that it can be made, or set its property {SCHEMA_EVOLUTION} to none, by which the columns stay as they are.",
        table=str(table),
    )


def _independent(changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
    """Split into runs without a change of what another one of the run changed: one update of pyiceberg's takes none."""
    start, paths = 0, set[tuple[str, ...]]()
    for index, change in enumerate(changes):
        path = tuple(change.path)
        if any(path[:depth] in paths for depth in range(1, len(path) + 1)):
            yield changes[start:index]
            start, paths = index, set()
        paths.add(path)
    if changes:
        yield changes[start:]


def _apply(update: UpdateSchema, change: Change) -> None:
    if isinstance(change, AddColumn):
        # pyiceberg gives nested fields ids of its own.
        update.add_column(change.path, iceberg_type(change.type, itertools.count(1)))
    elif isinstance(change, Widen):
        update.update_column(change.path, iceberg_type(change.after, itertools.count(1)))
    else:
        update.make_column_optional(change.path)
