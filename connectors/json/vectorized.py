"""The fast path: records as typed msgspec structs, columns as vectorised Arrow conversions.

It gives a value only where that is provably the value of the exact path (``strict``), and names every other record as
doubtful. Three things make it so: msgspec's strict types (each deviation from docs/json-types.md is closed here or
excluded by the annotation), exact patterns over whole columns before any Arrow cast, and the rule that a value in doubt
takes its whole record to the exact path.

msgspec lives here only.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, Meta, UnsetType

from connectors.json.arrays import Doubt, build, uuids
from connectors.json.fields import (
    DAY_US,
    MAX_FLOAT,
    MAX_TIME_US,
    MIN_TIME_US,
    NS_PER_US,
    TIME_KINDS,
    UNIT_US,
    Field,
)
from connectors.json.strict import MAX_DEPTH
from planner.schema import EpochUnit


class FastPath:
    """Decodes the records of one list of fields. Thread-safe."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = fields
        record, self._columns = _record_type(fields)
        # float_hook sees numbers of untyped fields only, which are decimals: their text is kept.
        self._decode = msgspec.json.Decoder(record, float_hook=str).decode

    @classmethod
    def of(cls, fields: Sequence[Field]) -> FastPath | None:
        """Build it, or return None where a key has a quote, backslash or control character."""
        try:
            return cls(fields)
        except ValueError:
            return None

    def read(
        self, column: pa.Array, values: Sequence[bytes | None]
    ) -> tuple[list[int], list[pa.Array], list[int]]:
        """Read what is certain of a batch; ``values`` is ``column`` as a list.

        Returns the positions of certain records, one array per field over them, and the positions of doubtful
        records. Positions ascend; nulls are in neither.
        """
        positions, records, doubtful = self._parse(column, values)
        arrays, culprits = self._convert(records)
        while culprits:  # once more without them: a column names its doubts one step at a time
            doubtful.extend(positions[index] for index in culprits)
            keep = [index for index in range(len(records)) if index not in culprits]
            positions = [positions[index] for index in keep]
            records = [records[index] for index in keep]
            arrays, culprits = self._convert(records)
        doubtful.sort()
        return positions, arrays, doubtful

    def _parse(
        self, column: pa.Array, values: Sequence[Any]
    ) -> tuple[list[int], list[Any], list[int]]:
        """Parse records one by one: positions and records that have the struct's types, and the other positions."""
        decode = self._decode
        certain = _certain_text(column)
        positions: list[int] = []
        records: list[Any] = []
        doubtful: list[int] = []
        if certain is None and not column.null_count:
            # Mostly there is no doubt, and a plain loop takes half the time.
            with contextlib.suppress(*_NOT_PARSED):
                records = [decode(value) for value in values]
                return list(range(len(records))), records, doubtful
        for at, value in enumerate(values):
            if value is None:
                continue
            if certain is not None and not certain(value):
                doubtful.append(at)
                continue
            try:
                records.append(decode(value))
            except _NOT_PARSED:
                doubtful.append(at)
                continue
            positions.append(at)
        return positions, records, doubtful

    def _convert(self, records: Sequence[Any]) -> tuple[list[pa.Array], set[int]]:
        """Build one array per field, or find records (by index) that some column has doubts about."""
        arrays = []
        culprits: set[int] = set()
        for field, column in zip(self._fields, self._columns, strict=True):
            values = column(records)
            # With one key msgspec itself requires the value.
            if field.required and len(field.keys) > 1:
                culprits.update(at for at, value in enumerate(values) if value is None)
            try:
                arrays.append(build(field, values, _leaf))
            except Doubt as doubt:
                culprits.update(doubt.at)
        return arrays, culprits


_NOT_PARSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def _certain_text(column: pa.Array) -> Callable[[bytes], bool] | None:
    """Return a check of each record before msgspec reads it, or None when the whole batch is fine.

    msgspec does not look at the bytes of strings it skips, and its depth limit is the stack's.
    """
    try:
        column.cast(pa.string())
        valid = True
    except pa.ArrowInvalid:
        valid = False
    longest = pc.max(pc.binary_length(column)).as_py() or 0
    shallow = longest <= 2 * MAX_DEPTH
    if valid and shallow:
        return None
    return lambda value: (shallow or _is_shallow(value)) and (valid or _is_utf8(value))


def _is_shallow(value: bytes) -> bool:
    return value.count(b"[") + value.count(b"{") <= MAX_DEPTH


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


#: Arrow compiles a pattern at each use: in that time, 0.09 ms, Python matches this many texts.
_FEW = 256

#: A type without values, for a field of which nothing but null is certain here.
_NOTHING = Annotated[str, Meta(min_length=1, max_length=0)]


def _record_type(
    fields: Sequence[Field],
) -> tuple[type[msgspec.Struct], list[Callable[[Sequence[Any]], list[Any]]]]:
    """Define the struct of a record, and for each field how to read its values from many of them."""
    members: list[tuple[str, Any, Any]] = []
    columns: list[Callable[[Sequence[Any]], list[Any]]] = []
    for field in fields:
        kind, convert = _type(field)
        names = [f"f{len(members) + index}" for index in range(len(field.keys))]
        if len(names) == 1:
            members.append((names[0], kind, _single(field)))
        else:
            members.extend(
                (name, kind | UnsetType, msgspec.field(name=key, default=UNSET))
                for name, key in zip(names, field.keys, strict=True)
            )
        columns.append(_column(names, convert))
    return _define(members), columns


def _column(
    names: list[str], convert: Callable[[Any], Any] | None
) -> Callable[[Sequence[Any]], list[Any]]:
    """Read one field of all records, structs as tuples and maps as pairs (``arrays.build``)."""

    def read(records: Sequence[Any]) -> list[Any]:
        if len(names) == 1:
            values = list(map(attrgetter(names[0]), records))
        else:
            values = [_first(record, names) for record in records]
        if convert is None:
            return values
        return [None if value is None else convert(value) for value in values]

    return read


def _first(record: Any, names: Sequence[str]) -> Any:
    for name in names:
        value = getattr(record, name)
        if value is not UNSET:
            return value
    return None


def _type(field: Field) -> tuple[Any, Callable[[Any], Any] | None]:
    """Annotation of a field, and how to bring its value into the form of ``arrays.build``, if it is not."""
    kind, convert = _parsed_type(field)
    return (kind if field.required else kind | None), convert


def _parsed_type(field: Field) -> tuple[Any, Callable[[Any], Any] | None]:
    if field.kind == "struct":
        return _struct_type(field)
    if field.kind == "list":
        kind, convert = _type(field.children[0])
        return list.__class_getitem__(kind), _each(convert)
    if field.is_object:
        kind, convert = _type(field.children[1])
        each = _each(convert)
        return dict.__class_getitem__((str, kind)), lambda value: list(
            zip(value, each(value.values()) if each else value.values(), strict=True)
        )
    if field.kind == "map":
        return _NOTHING, None  # keys may repeat: the exact path compares them
    if field.unit is not None:
        return _epoch_type(field, field.unit), None
    return _TYPES[field.kind], None


def _epoch_type(field: Field, unit: EpochUnit) -> Any:
    lowest, highest, step = _epoch_bounds(field, unit)
    return Annotated[int, Meta(ge=lowest, le=highest, multiple_of=step)]


def _epoch_bounds(field: Field, unit: EpochUnit) -> tuple[int, int, int]:
    """Whole numbers that are a time in years 0001 to 9999, and for a date the start of a day.

    Returns the lowest, the highest, and what each is a multiple of.
    """
    per_us = NS_PER_US if unit == "ns" else 1
    units_us = UNIT_US.get(unit, 1)
    step = DAY_US * per_us // units_us if field.kind == "date" else per_us
    # The year 0001 in nanoseconds is beyond 64 bits; the exact path reads those.
    lowest = max(-(1 << 63), -(-MIN_TIME_US * per_us // units_us))
    highest = min((1 << 63) - 1, MAX_TIME_US * per_us // units_us)
    return lowest, highest, step


def _struct_type(field: Field) -> tuple[Any, Callable[[Any], Any]]:
    types = [_type(child) for child in field.children]
    record = _define(
        (f"f{index}", kind, _single(child))
        for index, (child, (kind, _)) in enumerate(zip(field.children, types, strict=True))
    )
    converts = [convert for _, convert in types]
    if not any(converts):
        return record, msgspec.structs.astuple
    return record, lambda value: tuple(
        convert(member) if convert is not None and member is not None else member
        for convert, member in zip(converts, msgspec.structs.astuple(value), strict=True)
    )


def _single(field: Field) -> Any:
    """Declare a field that has one key. Without a default it must be there."""
    if field.required:
        return msgspec.field(name=field.keys[0])
    return msgspec.field(name=field.keys[0], default=None)


def _define(members: Iterable[tuple[str, Any, Any]]) -> type[msgspec.Struct]:
    """Define a struct. Attributes are numbered, so that no key can collide with Python's names.

    ``kw_only``: required members may follow optional ones.
    ``gc=False``: a record refers to nothing that refers back, so the collector need not track it.
    """
    return msgspec.defstruct("Record", list(members), gc=False, kw_only=True)


def _each(convert: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    if convert is None:
        return None
    return lambda values: [None if value is None else convert(value) for value in values]


_TYPES: dict[str, Any] = {
    "boolean": bool,
    "int": Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)],
    "long": Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)],
    "float": Annotated[float, Meta(ge=-MAX_FLOAT, le=MAX_FLOAT)],
    "double": float,
    # msgspec's Decimal takes " 1_0" and "NaN" for numbers, so: text, and ``_decimals`` looks at it.
    "decimal": Any,
    "date": str,
    "timestamp": str,
    "timestamptz": str,
    "string": str,
    "binary": str,
    "fixed": str,
    "uuid": str,
}


# Columns. A pattern is exact: no text it matches can fail or be misread by the conversion after it.

_YEAR = r"(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_LEAP_YEAR = (
    r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
)
_DAY = (
    rf"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    rf"|{_LEAP_YEAR}-02-29)"
)
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_OFFSET = r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"

_PATTERNS: dict[str, str] = {
    "date": rf"^{_DAY}$",
    "timestamp": rf"^{_DAY}T{_TIME}$",
    "timestamptz": rf"^{_DAY}T{_TIME}{_OFFSET}$",
    "binary": r"^(?:[0-9a-fA-F]{2})*$",
    "fixed": r"^(?:[0-9a-fA-F]{2})*$",
    "uuid": r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
}


def _pattern(field: Field) -> str | None:
    if field.kind == "decimal":
        # Exponents and zeros beyond the scale may fit as well; the exact path knows.
        scale, whole = field.type.scale, field.type.precision - field.type.scale
        digits = rf"(?:0|[1-9][0-9]{{0,{whole - 1}}})" if whole else "0"
        return rf"^-?{digits}(?:\.[0-9]{{1,{scale}}})?$" if scale else rf"^-?{digits}$"
    return _PATTERNS.get(field.kind)


def _leaf(field: Field, values: Sequence[Any]) -> pa.Array:
    """Build the array of a field from what msgspec gave.

    Raises:
        Doubt: a value is not certain.
    """
    if field.unit is not None:
        return _epoch_times(field, field.unit, pa.array(values, pa.int64()))
    if field.kind == "decimal":
        values = _number_texts(field, values)
    pattern = _pattern(field)
    if pattern is None:
        return pa.array(values, field.type)
    text = pa.array(values, pa.string())
    _require_match(text, values, pattern)
    if field.kind in TIME_KINDS:
        return _times(field, text)
    if field.kind == "fixed":
        _require(pc.equal(pc.binary_length(text), 2 * field.type.byte_width))
    if field.kind in ("binary", "fixed"):
        return pa.array([_unhex(value) for value in values], field.type)
    if field.kind == "uuid":
        return uuids([_unhex(value and value.replace("-", "")) for value in values])
    return text.cast(field.type)


def _times(field: Field, text: pa.Array) -> pa.Array:
    """Read texts of which every one matches its kind's pattern."""
    times = text.cast(field.type)
    if field.kind == "timestamptz" and times.null_count < len(times):
        micros = times.view(pa.int64())
        ends = pc.min_max(micros)
        if ends["min"].as_py() < MIN_TIME_US or ends["max"].as_py() > MAX_TIME_US:
            at_least, at_most = (
                pc.greater_equal(micros, MIN_TIME_US),
                pc.less_equal(micros, MAX_TIME_US),
            )
            _require(pc.and_(at_least, at_most))
    return times


def _require_match(text: pa.Array, values: Sequence[str | None], pattern: str) -> None:
    """``values`` is ``text`` as a list. None matches.

    Raises:
        Doubt: a text does not match.
    """
    if len(values) > _FEW:
        return _require(pc.match_substring_regex(text, pattern))
    matches = _compiled(pattern)
    doubts = [
        at for at, value in enumerate(values) if value is not None and matches(value) is None
    ]
    if doubts:
        raise Doubt(doubts)
    return None


@functools.cache
def _compiled(pattern: str) -> Callable[[str], re.Match[str] | None]:
    """Match whole texts, as between RE2's ``^`` and ``$``."""
    return re.compile(pattern.removeprefix("^").removesuffix("$")).fullmatch


def _require(certain: pa.Array) -> None:
    if pc.all(certain).as_py() is False:
        raise Doubt(pc.indices_nonzero(pc.invert(certain)).to_pylist())


def _unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _number_texts(field: Field, values: Sequence[Any]) -> Sequence[str | None]:
    """Texts of numbers, and of strings, which a decimal may be written as too."""
    kinds = set(map(type, values))
    allowed = {str, int} if field.required else {str, int, type(None)}
    if not kinds <= allowed:
        raise Doubt([at for at, value in enumerate(values) if type(value) not in allowed])
    if int in kinds:
        return [str(value) if type(value) is int else value for value in values]
    return values


def _epoch_times(field: Field, unit: EpochUnit, numbers: pa.Array) -> pa.Array:
    """Times of numbers within ``_epoch_bounds``; nothing is lost or overflows."""
    micros = (
        pc.divide(numbers, NS_PER_US) if unit == "ns" else pc.multiply(numbers, UNIT_US[unit])
    )
    if field.kind == "date":
        return pc.divide(micros, DAY_US).cast(pa.int32()).cast(field.type)
    return micros.cast(field.type)
