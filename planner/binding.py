"""Which topic belongs to which table: the table's ``thermocline.*`` properties."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from planner.errors import BadBinding
from planner.names import TableName
from planner.schema import EpochUnit
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


@dataclass(frozen=True, slots=True)
class Binding:
    """How the records of a topic become rows of a table.

    ``kafka`` names the topic's cluster in the settings, ``[kafka_clusters.<name>]``; empty: ``[kafka]``.
    ``skips`` are (partition, offset) of records that become no row, whatever they hold. They come from the watermark,
    not from properties: both sides of a seam read them from the same snapshot.
    """

    topic: str
    format: Literal["json"] = "json"
    mode: Literal["append"] = "append"
    on_error: OnError = "fail"
    json_mode: JsonMode = "strict"
    epoch_units: tuple[tuple[int, EpochUnit], ...] = ()
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
        """Hash of all that decides how bytes become values, except the schema, which the cut pins."""
        return _shape(self)

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
        if self.max_tail_rows is not None:
            properties[MAX_TAIL_ROWS] = str(self.max_tail_rows)
        if self.max_tail_bytes is not None:
            properties[MAX_TAIL_BYTES] = str(self.max_tail_bytes)
        return properties


@functools.lru_cache(maxsize=1024)
def _shape(binding: Binding) -> str:
    """See ``Binding.shape``. Cached, since statements need it."""
    facts: dict[str, object] = {
        "decoder": DECODER_VERSION,
        "format": binding.format,
        "mode": binding.mode,
        "on_error": binding.on_error,
        "json_mode": binding.json_mode,
        "epoch_units": [list(item) for item in binding.epoch_units],
    }
    if binding.skips:
        facts["skips"] = [list(item) for item in binding.skips]
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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
            and not key.startswith((EPOCH_UNIT_PREFIX, TIER_PREFIX))
        ):
            options = f"{', '.join(_OPTIONS)} and {EPOCH_UNIT_PREFIX}<field id>"
            raise bad_property(table, key, f"unknown property {key}; known are {options}.")
    return Binding(
        topic=properties[TOPIC],
        format=_one_of(table, properties, FORMAT, ("json",), "json"),  # type: ignore[arg-type]
        mode=_one_of(table, properties, MODE, ("append",), "append"),  # type: ignore[arg-type]
        on_error=_one_of(table, properties, ON_ERROR, get_args(OnError), "fail"),  # type: ignore[arg-type]
        json_mode=_one_of(table, properties, JSON_MODE, get_args(JsonMode), "strict"),  # type: ignore[arg-type]
        epoch_units=_epoch_units(table, properties),
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
