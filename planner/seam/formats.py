"""Record formats: what each adds to a table's properties, to a binding's shape and to the decoding key.

``connectors.decoding.registry`` has the decoder of each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import pyarrow as pa

from planner.errors import BadBinding
from planner.evolution.ledger import SCHEMAS, SchemaLedger
from planner.names import CLUSTER_NAME, TableName
from planner.schema import EpochUnit, TableSchema, field_id_if_any, nested_fields

JsonMode = Literal["strict", "lenient"]

JSON_MODE = "thermocline.json_mode"

#: ``thermocline.epoch_unit.<field id>``: numbers of that column are times since 1970 in this unit.
EPOCH_UNIT_PREFIX = "thermocline.epoch_unit."

#: ``thermocline.fraction.<field id>`` = ``floor``: times of that column lose what is below a microsecond.
FRACTION_PREFIX = "thermocline.fraction."
FLOOR = "floor"

REGISTRY = "thermocline.registry"

#: ``subject:version`` of the schema of all records, which have no id in front.
SCHEMA_FIXED = "thermocline.schema.fixed"

#: Full name of the records that become rows, of several on one topic.
SCHEMA_RECORD = "thermocline.schema.record"

#: Whether the table follows its writers' schemas.
SCHEMA_EVOLUTION = "thermocline.schema.evolution"

#: What comes of a schema that no change makes fit: its table is not tiered any more, or its records are bad ones.
ON_INCOMPATIBLE = "thermocline.schema.on_incompatible"

SchemaEvolution = Literal["none", "additive"]
OnIncompatible = Literal["stop", "error"]


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """How the values of JSON records are read (docs/json-types.md).

    ``epoch_units`` are by field id. ``floors`` are the ids of fields whose times lose what is below a microsecond.
    """

    name: ClassVar[str] = "json"
    #: Its properties, and the beginnings of those that end in a field's id.
    options: ClassVar[tuple[str, ...]] = (JSON_MODE,)
    prefixes: ClassVar[tuple[str, ...]] = (EPOCH_UNIT_PREFIX, FRACTION_PREFIX)
    #: Changes whenever strict decoding takes records that it refused. 2: ISO 8601's short times.
    forms: ClassVar[int] = 2

    mode: JsonMode = "strict"
    epoch_units: tuple[tuple[int, EpochUnit], ...] = ()
    floors: tuple[int, ...] = ()

    @classmethod
    def parse(cls, table: TableName, properties: Mapping[str, str]) -> JsonFormat:
        """Read the format's own properties. Raises BadBinding for a value that is not allowed."""
        return cls(
            one_of(table, properties, JSON_MODE, get_args(JsonMode), "strict"),  # type: ignore[arg-type]
            _epoch_units(table, properties),
            _floors(table, properties),
        )

    @property
    def properties(self) -> dict[str, str]:
        """The table properties that ``parse`` reads back equal."""
        return {JSON_MODE: self.mode, **_time_properties(self)}

    def shape(self, on_error: str, forms: int) -> dict[str, object]:
        """Return the facts that decide which row a record becomes, where strict decoding takes these forms.

        What makes a row of a bad record is left out under policy ``fail``, where nothing bad was tiered, and for lenient
        decoding, which had a value for it.
        """
        facts: dict[str, object] = {
            "json_mode": self.mode,
            "epoch_units": [list(item) for item in self.epoch_units],
        }
        if on_error != "fail" and self.mode == "strict":
            if forms > 1:
                facts["forms"] = forms
            if self.floors:
                facts["floors"] = list(self.floors)
        return facts

    def reads_as_at_first(self, schema: TableSchema) -> bool:
        """Return whether the first forms gave the same rows: they differ in times written as text only."""
        units = dict(self.epoch_units)
        return not any(
            _has_written_times(column.type, column.field_id, units) for column in schema.payload
        )

    @property
    def beyond_shape(self) -> str:
        """What the decoding key has of the format that its shape may lack."""
        return "".join(f".{field_id}" for field_id in self.floors)


@dataclass(frozen=True, slots=True)
class AvroFormat:
    """How the values of Avro records are read (docs/avro-types.md).

    ``unknown`` are the ids of the ledger that its registry lacked: which of them there are decides rows.

    ``registry`` names the schema registry in the settings. ``fixed`` is (subject, version) of the schema of all records,
    which then have no id in front. ``record`` is the full name of the records that become rows; others are skipped.
    ``epoch_units`` and ``floors`` as in ``JsonFormat``. ``ledger`` says what ids meant so far: it grows, and changes no row
    but by ids that were unknown, so formats that differ in its other entries alone are equal.
    """

    name: ClassVar[str] = "avro"
    options: ClassVar[tuple[str, ...]] = (
        REGISTRY,
        SCHEMA_FIXED,
        SCHEMA_RECORD,
        SCHEMA_EVOLUTION,
        ON_INCOMPATIBLE,
        SCHEMAS,
    )
    prefixes: ClassVar[tuple[str, ...]] = (EPOCH_UNIT_PREFIX, FRACTION_PREFIX)
    forms: ClassVar[int] = 1

    registry: str | None = None
    fixed: tuple[str, int] | None = None
    record: str | None = None
    epoch_units: tuple[tuple[int, EpochUnit], ...] = ()
    floors: tuple[int, ...] = ()
    evolution: SchemaEvolution = "none"
    on_incompatible: OnIncompatible = "stop"
    ledger: SchemaLedger = field(default_factory=SchemaLedger, compare=False)
    #: The ledger's, by which rows do differ.
    era: int = field(init=False, default=0)
    unknown: frozenset[int] = field(init=False, default=frozenset())

    def __post_init__(self) -> None:
        object.__setattr__(self, "era", self.ledger.era)
        object.__setattr__(self, "unknown", self.ledger.unknown)

    @classmethod
    def parse(cls, table: TableName, properties: Mapping[str, str]) -> AvroFormat:
        """Read the format's own properties. Raises BadBinding for a value that is not allowed."""
        registry = properties.get(REGISTRY)
        if registry is not None and not CLUSTER_NAME.fullmatch(registry):
            what = f"property {REGISTRY} is {registry!r}; it must be the name of a section [schema_registries.<name>]."
            raise bad_property(table, REGISTRY, what)
        record = properties.get(SCHEMA_RECORD)
        if record is not None and not record.strip():
            what = f"property {SCHEMA_RECORD} is {record!r}; it must be the full name of a record, with its namespace."
            raise bad_property(table, SCHEMA_RECORD, what)
        return cls(
            registry,
            _fixed(table, properties),
            record,
            _epoch_units(table, properties),
            _floors(table, properties),
            one_of(table, properties, SCHEMA_EVOLUTION, get_args(SchemaEvolution), "none"),  # type: ignore[arg-type]
            one_of(table, properties, ON_INCOMPATIBLE, get_args(OnIncompatible), "stop"),  # type: ignore[arg-type]
            SchemaLedger.parse(table, properties.get(SCHEMAS)),
        )

    @property
    def units(self) -> frozenset[int]:
        """The ids of the fields whose times may be numbers."""
        return frozenset(field_id for field_id, _ in self.epoch_units)

    @property
    def properties(self) -> dict[str, str]:
        """The table properties that ``parse`` reads back equal."""
        own = {
            REGISTRY: self.registry,
            SCHEMA_RECORD: self.record,
            SCHEMA_EVOLUTION: self.evolution,
            ON_INCOMPATIBLE: self.on_incompatible,
        }
        if self.ledger != SchemaLedger():
            own[SCHEMAS] = self.ledger.text
        if self.fixed is not None:
            own[SCHEMA_FIXED] = "{}:{}".format(*self.fixed)
        said = {key: value for key, value in own.items() if value is not None}
        return {**said, **_time_properties(self)}

    def shape(self, on_error: str, forms: int) -> dict[str, object]:  # noqa: ARG002
        """Return the facts that decide which row a record becomes; ``floors`` as ``JsonFormat.shape`` has them.

        The registry's name is left out, as the cluster's is: what its ids mean is no matter of its name.
        """
        facts: dict[str, object] = {
            "fixed": None if self.fixed is None else list(self.fixed),
            "record": self.record,
            "era": self.era,
            "epoch_units": [list(item) for item in self.epoch_units],
        }
        if on_error != "fail" and self.floors:
            facts["floors"] = list(self.floors)
        return facts

    @property
    def beyond_shape(self) -> str:
        """As ``JsonFormat.beyond_shape``."""
        floors = "".join(f".{field_id}" for field_id in self.floors)
        if not self.unknown:
            return floors
        ids = ",".join(map(str, sorted(self.unknown)))
        return f"{floors}.{hashlib.sha256(ids.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class RawFormat:
    """Records that are one value, the bytes as they are (docs/records.md). They hold no times, so ``epoch_units`` and
    ``floors`` are empty.
    """

    name: ClassVar[str] = "raw"
    options: ClassVar[tuple[str, ...]] = ()
    prefixes: ClassVar[tuple[str, ...]] = ()
    forms: ClassVar[int] = 1
    properties: ClassVar[Mapping[str, str]] = {}
    beyond_shape: ClassVar[str] = ""

    epoch_units: tuple[tuple[int, EpochUnit], ...] = ()
    floors: tuple[int, ...] = ()

    @classmethod
    def parse(cls, table: TableName, properties: Mapping[str, str]) -> RawFormat:  # noqa: ARG003
        """As ``JsonFormat.parse``; there is no property to read."""
        return cls()

    def shape(self, on_error: str, forms: int) -> dict[str, object]:  # noqa: ARG002
        """As ``JsonFormat.shape``: its name, which a binding adds, says all."""
        return {}


class StringFormat(RawFormat):
    """Records that are one text, in UTF-8."""

    __slots__ = ()
    name: ClassVar[str] = "string"


RecordFormat = JsonFormat | AvroFormat | RawFormat

#: By ``thermocline.format``.
FORMATS: Mapping[str, type[RecordFormat]] = {
    each.name: each for each in (JsonFormat, AvroFormat, RawFormat, StringFormat)
}


def bad_property(table: TableName, key: str, what: str) -> BadBinding:
    """Return the error of one property of a table."""
    return BadBinding(f"{table}: {what}", table=str(table), property=key)


def one_of(
    table: TableName,
    properties: Mapping[str, str],
    key: str,
    allowed: tuple[str, ...],
    default: str,
) -> str:
    """Read a property that has one of some values. Raises BadBinding for another."""
    value = properties.get(key, default)
    if value not in allowed:
        what = f"property {key} is {value!r}; allowed are {', '.join(allowed)}."
        raise bad_property(table, key, what)
    return value


def _time_properties(times: RecordFormat) -> dict[str, str]:
    return {
        **{f"{EPOCH_UNIT_PREFIX}{field_id}": unit for field_id, unit in times.epoch_units},
        **{f"{FRACTION_PREFIX}{field_id}": FLOOR for field_id in times.floors},
    }


def _fixed(table: TableName, properties: Mapping[str, str]) -> tuple[str, int] | None:
    text = properties.get(SCHEMA_FIXED)
    if text is None:
        return None
    subject, _, version = text.rpartition(":")
    is_number = version.isascii() and version.isdigit() and len(version) <= 10
    if not subject or not is_number or str(int(version) or "") != version:
        what = f"property {SCHEMA_FIXED} is {text!r}; it must be a subject and one of its versions, as in flows-value:3."
        raise bad_property(table, SCHEMA_FIXED, what)
    return subject, int(version)


def _has_written_times(
    kind: pa.DataType, field_id: int, units: Mapping[int, EpochUnit]
) -> bool:
    """Return whether a record writes a time as text somewhere in a value of this type."""
    if pa.types.is_timestamp(kind):
        return field_id not in units
    return any(
        _has_written_times(child.type, field_id_if_any(child) or 0, units)
        for child in nested_fields(kind)
    )


def _by_field(
    properties: Mapping[str, str], prefix: str
) -> Iterator[tuple[str, int | None, str]]:
    """Yield key, field id and value of the properties with a prefix; None where it is not an id."""
    for key, value in properties.items():
        if key.startswith(prefix):
            field_id = key.removeprefix(prefix)
            is_id = field_id.isascii() and field_id.isdigit()
            yield key, int(field_id) if is_id else None, value


def _epoch_units(
    table: TableName, properties: Mapping[str, str]
) -> tuple[tuple[int, EpochUnit], ...]:
    units = []
    for key, field_id, unit in _by_field(properties, EPOCH_UNIT_PREFIX):
        if field_id is None or unit not in get_args(EpochUnit):
            what = f"property {key} = {unit!r} is not a field id with a unit; units are s, ms, us, ns."
            raise bad_property(table, key, what)
        units.append((field_id, unit))
    return tuple(sorted(units))  # type: ignore[arg-type]


def _floors(table: TableName, properties: Mapping[str, str]) -> tuple[int, ...]:
    floors = []
    for key, field_id, text in _by_field(properties, FRACTION_PREFIX):
        if field_id is None or text != FLOOR:
            what = (
                f"property {key} = {text!r} is not a field id with what to do; that is {FLOOR}."
            )
            raise bad_property(table, key, what)
        floors.append(field_id)
    return tuple(sorted(floors))
