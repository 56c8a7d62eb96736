"""Which topic belongs to which table: the table's ``thermocline.*`` properties."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import pyarrow as pa

from planner.errors import BadBinding
from planner.names import TableName
from planner.schema import EpochUnit, TableSchema, field_id_if_any, nested_fields
from planner.topics import CLUSTER_NAME, topic_address

OnError = Literal["fail", "null", "skip"]
JsonMode = Literal["strict", "lenient"]

TOPIC = "thermocline.topic"
KAFKA = "thermocline.kafka"
FORMAT = "thermocline.format"
MODE = "thermocline.mode"
ON_ERROR = "thermocline.on_error"
JSON_MODE = "thermocline.json_mode"
MAX_TAIL_ROWS = "thermocline.max_tail_rows"
MAX_TAIL_BYTES = "thermocline.max_tail_bytes"
#: ``thermocline.epoch_unit.<field id>``: numbers of that column are times since 1970 in this unit.
EPOCH_UNIT_PREFIX = "thermocline.epoch_unit."
#: ``thermocline.fraction.<field id>`` = ``floor``: times of that column lose what is below a microsecond.
FRACTION_PREFIX = "thermocline.fraction."
FLOOR = "floor"
#: Properties below are for the tierer alone and change no row (see planner.triggers).
TIER_PREFIX = "thermocline.tier."
#: Mirror of the head's watermark text; never trusted alone (see planner.resolver).
MIRROR = "thermocline.watermark"
#: In the answers of our own Iceberg REST catalog: the text of the cut that the table ends at.
LIVE_CUT = "thermocline.cut"
#: Among the properties that such a catalog tells its clients.
LIVE = "thermocline.live"

_OPTIONS = (
    TOPIC,
    KAFKA,
    FORMAT,
    MODE,
    ON_ERROR,
    JSON_MODE,
    MAX_TAIL_ROWS,
    MAX_TAIL_BYTES,
    MIRROR,
)

#: Changes whenever a decoder of ours gives another value for the same bytes.
DECODER_VERSION = 1
#: Changes whenever strict JSON takes records that it refused. 2: ISO 8601's short times.
STRICT_FORMS = 2


@dataclass(frozen=True, slots=True)
class Binding:
    """How the records of a topic become rows of a table.

    ``kafka`` names the topic's cluster in the settings, ``[kafka_clusters.<name>]``; empty: ``[kafka]``.
    ``floors`` are the ids of fields whose times lose what is below a microsecond.
    ``skips`` are (partition, offset) of records that become no row, whatever they hold. They come from the watermark,
    not from properties: both sides of a seam read them from the same snapshot.
    """

    topic: str
    format: Literal["json"] = "json"
    mode: Literal["append"] = "append"
    on_error: OnError = "fail"
    json_mode: JsonMode = "strict"
    epoch_units: tuple[tuple[int, EpochUnit], ...] = ()
    floors: tuple[int, ...] = ()
    max_tail_rows: int | None = None
    max_tail_bytes: int | None = None
    skips: tuple[tuple[int, int], ...] = ()
    kafka: str = ""

    @property
    def address(self) -> str:
        """The topic for programs that may know several clusters (``planner.topics``)."""
        return topic_address(self.kafka, self.topic)

    @property
    def shape(self) -> str:
        """Hash of all that decides which row a record has become, except the schema, which the cut pins.

        What makes a row of a bad record is left out under policy ``fail``, where nothing bad was tiered, and for lenient
        JSON, which had a value for it.
        """
        return shape_under(self, STRICT_FORMS)

    def gives_rows_of(self, shape: str, schema: TableSchema) -> bool:
        """Return whether every record is the same row under this binding as under one with ``shape``.

        The first forms that strict took differ from today's in times written as text only.
        """
        if shape == self.shape:
            return True
        units = dict(self.epoch_units)
        return shape == shape_under(self, 1) and not any(
            _has_written_times(column.type, column.field_id, units) for column in schema.payload
        )

    def properties(self) -> dict[str, str]:
        """The table properties of this binding; ``parse_binding`` reads them back equal, without skips."""
        properties = {
            TOPIC: self.topic,
            FORMAT: self.format,
            MODE: self.mode,
            ON_ERROR: self.on_error,
            JSON_MODE: self.json_mode,
        }
        if self.kafka:
            properties[KAFKA] = self.kafka
        for field_id, unit in self.epoch_units:
            properties[f"{EPOCH_UNIT_PREFIX}{field_id}"] = unit
        for field_id in self.floors:
            properties[f"{FRACTION_PREFIX}{field_id}"] = FLOOR
        if self.max_tail_rows is not None:
            properties[MAX_TAIL_ROWS] = str(self.max_tail_rows)
        if self.max_tail_bytes is not None:
            properties[MAX_TAIL_BYTES] = str(self.max_tail_bytes)
        return properties


@functools.lru_cache(maxsize=1024)
def shape_under(binding: Binding, forms: int) -> str:
    """Return ``Binding.shape`` where strict JSON takes these forms. Cached, since statements need it."""
    facts: dict[str, object] = {
        "decoder": DECODER_VERSION,
        "format": binding.format,
        "mode": binding.mode,
        "on_error": binding.on_error,
        "json_mode": binding.json_mode,
        "epoch_units": [list(item) for item in binding.epoch_units],
    }
    if binding.on_error != "fail" and binding.json_mode == "strict":
        if forms > 1:
            facts["forms"] = forms
        if binding.floors:
            facts["floors"] = list(binding.floors)
    if binding.skips:
        facts["skips"] = [list(item) for item in binding.skips]
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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


def parse_binding(table: TableName, properties: Mapping[str, str]) -> Binding | None:
    """Read the binding from table properties. None when the table names no topic.

    Raises:
        BadBinding: a value is not allowed, or a ``thermocline.*`` key is unknown (a typing error there
            would silently change the table's rows); or the table is a live one, which has its tail already.
    """
    if LIVE_CUT in properties:
        what = "this is a live table; point at the catalog it comes from."
        raise bad_property(table, LIVE_CUT, what)
    if TOPIC not in properties:
        return None
    for key in properties:
        if (
            key.startswith("thermocline.")
            and key not in _OPTIONS
            and not key.startswith((EPOCH_UNIT_PREFIX, FRACTION_PREFIX, TIER_PREFIX))
        ):
            options = f"{', '.join(_OPTIONS)}, {EPOCH_UNIT_PREFIX}<field id> and {FRACTION_PREFIX}<field id>"
            raise bad_property(table, key, f"unknown property {key}; known are {options}.")
    return Binding(
        topic=properties[TOPIC],
        format=_one_of(table, properties, FORMAT, ("json",), "json"),  # type: ignore[arg-type]
        mode=_one_of(table, properties, MODE, ("append",), "append"),  # type: ignore[arg-type]
        on_error=_one_of(table, properties, ON_ERROR, get_args(OnError), "fail"),  # type: ignore[arg-type]
        json_mode=_one_of(table, properties, JSON_MODE, get_args(JsonMode), "strict"),  # type: ignore[arg-type]
        epoch_units=_epoch_units(table, properties),
        floors=_floors(table, properties),
        max_tail_rows=count_property(table, properties, MAX_TAIL_ROWS),
        max_tail_bytes=count_property(table, properties, MAX_TAIL_BYTES),
        kafka=_cluster(table, properties),
    )


def bad_property(table: TableName, key: str, what: str) -> BadBinding:
    """Return the error of one property of a table."""
    return BadBinding(f"{table}: {what}", table=str(table), property=key)


def _one_of(
    table: TableName,
    properties: Mapping[str, str],
    key: str,
    allowed: tuple[str, ...],
    default: str,
) -> str:
    value = properties.get(key, default)
    if value not in allowed:
        what = f"property {key} is {value!r}; allowed are {', '.join(allowed)}."
        raise bad_property(table, key, what)
    return value


def _cluster(table: TableName, properties: Mapping[str, str]) -> str:
    name = properties.get(KAFKA, "")
    if KAFKA in properties and not CLUSTER_NAME.fullmatch(name):
        what = f"property {KAFKA} is {name!r}; it must be the name of a section [kafka_clusters.<name>]."
        raise bad_property(table, KAFKA, what)
    return name


def count_property(table: TableName, properties: Mapping[str, str], key: str) -> int | None:
    """Read a whole number above 0; None where the table does not say. Raises BadBinding for another text."""
    text = properties.get(key)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        what = f"property {key} is {text!r}; it must be a whole number above 0."
        raise bad_property(table, key, what)
    return int(text)


def _epoch_units(
    table: TableName, properties: Mapping[str, str]
) -> tuple[tuple[int, EpochUnit], ...]:
    units = []
    for key, unit in properties.items():
        if not key.startswith(EPOCH_UNIT_PREFIX):
            continue
        field_id = key.removeprefix(EPOCH_UNIT_PREFIX)
        if not field_id.isascii() or not field_id.isdigit() or unit not in get_args(EpochUnit):
            what = f"property {key} = {unit!r} is not a field id with a unit; units are s, ms, us, ns."
            raise bad_property(table, key, what)
        units.append((int(field_id), unit))
    return tuple(sorted(units))  # type: ignore[arg-type]


def _floors(table: TableName, properties: Mapping[str, str]) -> tuple[int, ...]:
    floors = []
    for key, text in properties.items():
        if not key.startswith(FRACTION_PREFIX):
            continue
        field_id = key.removeprefix(FRACTION_PREFIX)
        if not field_id.isascii() or not field_id.isdigit() or text != FLOOR:
            what = (
                f"property {key} = {text!r} is not a field id with what to do; that is {FLOOR}."
            )
            raise bad_property(table, key, what)
        floors.append(int(field_id))
    return tuple(sorted(floors))
