"""Creates a bound table together with its first watermark."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    TableAlreadyExistsError,
)
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Transaction
from pyiceberg.table.name_mapping import NameMapping, create_mapping_from_schema
from pyiceberg.table.update.snapshot import ManageSnapshots

from connectors.iceberg.catalogs import Catalogs
from connectors.iceberg.partition_terms import partition_spec, sort_order
from connectors.iceberg.types import nested_field, table_schema
from connectors.table_facts import COMMENT
from planner.column_statistics import uuid_properties
from planner.epoch_units import ids_at, units_by_id
from planner.errors import BadConfig
from planner.maintenance.options import COMPACT
from planner.names import (
    KAFKA_OFFSET,
    KAFKA_PARTITION,
    LEADING_COLUMNS,
    Side,
    TableName,
    side_name,
)
from planner.schema import METADATA_TYPES, Column, TableSchema, check_federated, nested_fields
from planner.seam.binding import KAFKA, TOPIC, Binding, check_keyed
from planner.seam.snapshots import NEVER_EXPIRES_MS, TAG, WatermarkEntries
from planner.seam.watermark import Watermark
from planner.sql_text import FieldPath, spelled
from planner.tiering.keyed import DELETE_GRANULARITY, DELETE_MODE, MERGE_ON_READ

NAME_MAPPING = "schema.name-mapping.default"
#: pyiceberg 0.12 reads version 3 and cannot write it; Spark can upgrade the table later.
FORMAT_VERSION = "2"
#: Iceberg spec, "Reserved Field IDs": readers hide or compute columns of these names.
RESERVED_NAMES = frozenset(
    (
        *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id"),
        *("_last_updated_sequence_number", "_change_type", "_change_ordinal"),
        "_commit_snapshot_id",
    )
)
DEFAULT_PROPERTIES: Mapping[str, str] = {
    # Tiering stages on a branch (docs/internals/watermark.md).
    "write.wap.enabled": "true",
    # ``range`` and ``hash`` shuffle: the first reads Kafka twice, both break the order of offsets in a file.
    "write.distribution-mode": "none",
    "write.parquet.compression-codec": "zstd",
    # Tiering need not hurry, so files may be full; half of Iceberg's default keeps
    # enough of them to scan in parallel.
    "write.target-file-size-bytes": str(256 * 1024 * 1024),
    # DuckDB opens every manifest when it plans a scan, 0.5 ms each: 50 files planned in 29 ms out of 50
    # manifests and in 2 ms out of one. Iceberg's default would let 100 of them gather.
    "commit.manifest.min-count-to-merge": "8",
    # A merge rewrites what it merges, and every reader decodes that again: at most some 5,000 entries, however
    # many files the table has. With Iceberg's 8 MB, 10,000 were rewritten at every seventh publish.
    "commit.manifest.target-size-bytes": str(1024 * 1024),
    # The resolver proves with these what a foreign UPDATE or DELETE rewrote (docs/internals/seam.md, T25).
    f"write.metadata.metrics.column.{KAFKA_PARTITION}": "full",
    f"write.metadata.metrics.column.{KAFKA_OFFSET}": "full",
    # A publish a minute would leave half a million metadata files a year. Pins follow the newest one.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    # An upgrade of programs does not begin to rewrite tables of before.
    COMPACT: "true",
}

#: A publish deletes the rows that it replaces, a file of deletes for each data file (``planner.tiering.keyed``).
KEYED_PROPERTIES: Mapping[str, str] = {
    DELETE_MODE: MERGE_ON_READ,
    DELETE_GRANULARITY: "file",
}


@dataclass(frozen=True)
class NewTable:
    """A bound table to create.

    ``columns`` are those of the record's value, that of its key where ``binding.key`` says how to read it (``key_column`` is
    its name), and optional metadata columns where wanted; ``create_table`` adds the three leading ones, and under error policy
    ``null`` those it needs. ``partition_by`` and ``sort_by`` are terms as Iceberg writes them, ``floors`` paths to times.
    ``key`` names the columns of a keyed table's key (``binding.upsert``), by which it is sorted unless it says otherwise.
    """

    name: TableName
    columns: Sequence[Column]
    binding: Binding
    partition_by: Sequence[str] = ()
    sort_by: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    location: str | None = None
    floors: Sequence[FieldPath] = ()
    key_column: str = ""
    key: Sequence[str] = ()


def create_table(
    catalogs: Mapping[str, Mapping[str, str]],
    new: NewTable,
    first: Watermark,
    *,
    replaces: bool = False,
) -> Watermark:
    """Create a table and commit ``first`` in an empty snapshot, in one catalog commit.

    Field ids are assigned here, so ``binding`` and ``first.shape`` get them here too (``planner.epoch_units``). So does a
    keyed table's key: its columns are Iceberg's identifier fields, and required.

    Metadata columns are optional in Iceberg's sense: Spark and pyiceberg write nullable columns, and an UPDATE
    by either would be refused on a required one. The resolver treats a row without them as foreign.

    ``replaces``: a table of this name over the same topic that has no rows yet is dropped first.

    Returns the watermark as committed.

    Raises:
        BadConfig: the table's name means a side of another one, a column name is reserved or given twice, a partition or
            sort term is wrong, or the table exists.
        BadBinding, UnsupportedType: as ``planner.schema.check_federated`` and ``check_keyed``.
        CatalogUnavailable, ColdStoreUnavailable: nothing was created, or a table that ``pin`` refuses.
    """
    table, binding = new.name, new.binding
    if side_name(table.name) is not None:
        endings = " or ".join(f"${side.value}" for side in Side if side is not Side.BOTH)
        raise BadConfig(
            f"{table}: a name that ends in {endings} means a side of the table before it; choose another name.",
            table=str(table),
        )
    columns = [
        replace(each, required=True) if each.name in new.key else each for each in new.columns
    ]
    all_columns = _all_columns(table, columns, binding)
    schema = _schema(all_columns)
    numbered = table_schema(table, schema, None)
    if binding.upsert is not None:
        key = ids_at([(name,) for name in new.key], numbered)
        binding = replace(binding, upsert=replace(binding.upsert, key=key))
        check_keyed(str(table), replace(numbered, identifier=frozenset(key)), binding)
        schema = Schema(*schema.fields, identifier_field_ids=list(key))
        first = replace(first, key=key)
    spec = partition_spec(table, schema, new.partition_by)
    order = sort_order(table, schema, new.sort_by or tuple(map(spelled, new.key)))
    units = units_by_id(new.columns, numbered)
    of_fields = replace(binding.format, epoch_units=units, floors=ids_at(new.floors, numbered))
    binding = replace(binding, format=of_fields)
    if binding.key is not None and binding.upsert is None:
        [column] = ids_at([(new.key_column,)], numbered)
        binding = replace(binding, key=replace(binding.key, column=column))
    first = replace(first, shape=binding.shape)
    all_properties = {
        **DEFAULT_PROPERTIES,
        **({} if binding.upsert is None else KEYED_PROPERTIES),
        **uuid_properties(all_columns.arrow),
        **new.properties,
        **binding.properties(),
        "format-version": FORMAT_VERSION,
        NAME_MAPPING: _name_mapping(schema, new.columns).model_dump_json(),
    }
    if new.comment is not None:
        all_properties[COMMENT] = new.comment
    identifier = (*table.namespace, table.name)
    definition = (identifier, schema, new.location, spec, order, all_properties)
    exists = BadConfig(
        f"{table}: the table exists already; choose another name, or drop it first.",
        table=str(table),
    )
    with closing(Catalogs(catalogs)) as opened, opened.using(table.catalog, table) as catalog:
        for depth in range(1, len(table.namespace) + 1):
            catalog.create_namespace_if_not_exists(table.namespace[:depth])
        if catalog.table_exists(identifier):
            if not replaces:
                raise exists
            _drop_without_rows(catalog, table, binding)
        # pyiceberg 0.12 stages a new table in flat namespaces only. Elsewhere, between the two commits, the table
        # is bound and has no watermark, which ``pin`` refuses: no reader takes it for empty.
        stages = len(table.namespace) == 1 or not isinstance(catalog, MetastoreCatalog)
        try:
            if not stages or not _is_staged(catalog, definition, first):
                _commit(catalog.create_table(*definition).transaction(), first)
        except (TableAlreadyExistsError, CommitFailedException) as error:
            # Another program created it since: a catalog says so by either error.
            raise exists from error
        if TAG not in catalog.load_table(identifier).metadata.refs:
            catalog.drop_table(identifier)
            raise BadConfig(
                f"{table}: catalog {table.catalog} keeps no tags and branches of tables, as Nessie does not, and "
                f"tiering needs both; the table was dropped again. Choose another catalog.",
                table=str(table),
            )
    return first


def _drop_without_rows(catalog: Catalog, table: TableName, binding: Binding) -> None:
    """Drop ``table`` where it is bound to the topic of ``binding`` and no snapshot has a file.

    Raises BadConfig: the table has rows, or had some, or is bound to another topic.
    """
    identifier = (*table.namespace, table.name)
    metadata = catalog.load_table(identifier).metadata
    address = metadata.properties.get(TOPIC), metadata.properties.get(KAFKA, "")
    files = [
        snapshot.summary["total-data-files"] if snapshot.summary else None
        for snapshot in metadata.snapshots
    ]
    if address != (binding.topic, binding.kafka) or any(count != "0" for count in files):
        raise BadConfig(
            f"{table}: --replace is for a table over topic {binding.address} that has no rows yet, and this one has "
            f"rows, or another topic; choose another name, or drop it first.",
            table=str(table),
        )
    catalog.drop_table(identifier)


def _is_staged(catalog: Catalog, definition: tuple[Any, ...], first: Watermark) -> bool:
    """Create the table and its watermark in one commit; False: the catalog does not understand that, and has no table.

    Nessie 0.99 requires ``last-column-id``, which pyiceberg 0.12 does not send any more, and answers 500.
    """
    try:
        _commit(catalog.create_table_transaction(*definition), first)
    except (BadRequestError, CommitStateUnknownException):
        if catalog.table_exists(definition[0]):
            raise
        return False
    return True


def _commit(transaction: Transaction, first: Watermark) -> None:
    add_watermark(transaction, first)
    transaction.commit_transaction()


def add_watermark(transaction: Transaction, mark: Watermark) -> None:
    """Add an empty append with a watermark, its tag and its mirror."""
    entries = WatermarkEntries.of(mark)
    update = transaction.update_snapshot(snapshot_properties=dict(entries.summary))
    append = update.fast_append()
    append.commit()
    tag = ManageSnapshots(transaction)
    tag.create_tag(append.snapshot_id, TAG, max_ref_age_ms=NEVER_EXPIRES_MS)
    tag.commit()
    transaction.set_properties(dict(entries.properties))


def _all_columns(table: TableName, columns: Sequence[Column], binding: Binding) -> TableSchema:
    names = {column.name for column in columns}
    added = list(LEADING_COLUMNS)
    if binding.on_error == "null":
        added += [name for name in binding.null_policy_columns if name not in names]
    leading = (Column(0, name, METADATA_TYPES[name]) for name in added)
    schema = TableSchema(0, (*leading, *columns))
    _check_names(table, schema.columns)
    _check_paths(table, schema.columns)
    check_federated(table, schema)
    return schema


def _schema(columns: TableSchema) -> Schema:
    # Catalogs assign ids again, a level at a time from 1, as is done here: the name mapping and the epoch
    # units refer to them.
    ids = itertools.count(1)
    fields = [
        pa.field(
            column.name,
            column.type,
            nullable=not column.required,
            metadata=None if column.doc is None else {"doc": column.doc},
        )
        for column in columns.columns
    ]
    return assign_fresh_schema_ids(Schema(*(nested_field(field, ids) for field in fields)))


def _name_mapping(schema: Schema, columns: Sequence[Column]) -> NameMapping:
    """Map each field to its name, and a column to the other fields that it is read from (``Column.keys``)."""
    keys = {column.name: column.keys for column in columns}
    fields = []
    for mapped in create_mapping_from_schema(schema):
        names = list(dict.fromkeys((*mapped.names, *keys.get(mapped.names[0], ()))))
        fields.append(mapped.model_copy(update={"names": names}))
    return NameMapping(fields)


def _check_paths(table: TableName, columns: Sequence[Column]) -> None:
    """Refuse two fields of one dotted name, by which Iceberg's libraries look fields up at every level."""

    def paths(prefix: str, name: str, kind: pa.DataType) -> Iterator[str]:
        path = f"{prefix}{name}"
        yield path
        for member in nested_fields(kind):
            yield from paths(f"{path}.", member.name, member.type)

    counts = Counter(path for column in columns for path in paths("", column.name, column.type))
    path, count = counts.most_common(1)[0]
    if count > 1:
        raise BadConfig(
            f"{table}: two fields are called {path}, one by a dot in its name and one inside another, which Iceberg does not "
            f"tell apart; leave one out, or give the column another name, with --rename FIELD=COLUMN.",
            table=str(table),
            column=path,
        )


def _check_names(table: TableName, columns: Sequence[Column]) -> None:
    names: set[str] = set()
    for column in columns:
        name = column.name.lower()
        if not name or name in RESERVED_NAMES:
            raise BadConfig(
                f"{table}: column name {column.name!r} is reserved by Iceberg; give the column another one, with --rename "
                f"FIELD=COLUMN.",
                table=str(table),
                column=column.name,
            )
        if name in names:
            raise BadConfig(
                f"{table}: column {column.name} is given twice, or is one that is added to every table "
                f"({', '.join(LEADING_COLUMNS)}); engines compare names without regard to case: give the column another "
                f"one, with --rename FIELD=COLUMN.",
                table=str(table),
                column=column.name,
            )
        names.add(name)
