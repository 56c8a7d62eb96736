"""The fast path: records as typed msgspec structs, columns as vectorised Arrow conversions.

It gives a value only where that is provably the value of the exact path (``strict``): by msgspec's strict types, whose
deviations from docs/json-types.md are closed or excluded here, and by exact patterns over whole columns (``columns``).
A value in doubt takes its whole record to the exact path. msgspec lives here only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, Meta, UnsetType

from connectors.decoding.arrays import Doubt, build
from connectors.decoding.fields import MAX_FLOAT, TIME_KINDS, Field, Unit
from connectors.decoding.json.columns import (
    certain_array,
    certain_leaf,
    epoch_bounds,
    unchecked_type,
)
from connectors.decoding.json.parsing import MAX_DEPTH, Number

#: Of one field: its names in the struct, and how to bring a value into the form of ``arrays.build``, if it is not.
_Member = tuple[list[str], Callable[[Any], Any] | None]

#: At most this many records are Python objects at a time, so they stay in a core's cache (512 KB) until Arrow has them.
_AT_ONCE = 1_024


class FastPath:
    """Decodes the records of one list of fields. Thread-safe.

    ``is_value``: a record is the value of the one field, and not an object that has it.
    """

    def __init__(self, fields: Sequence[Field], *, is_value: bool = False) -> None:
        self._fields = fields
        record, members = _record_type(fields)
        # float_hook sees numbers of untyped fields only, which are decimals: their text is kept.
        hook = Number if any(field.is_connects for field in fields) else str
        self._decode = msgspec.json.Decoder(record, float_hook=hook).decode
        if is_value:
            decode = msgspec.json.Decoder(_type(fields[0])[0], float_hook=hook).decode
            self._decode = lambda raw: record(f0=decode(raw))
        self._rows = _Rows(fields, members)
        #: How to read each of the other fields of many records.
        self._readers = {
            at: _column(*member)
            for at, member in enumerate(members)
            if at not in self._rows.indices
        }

    @classmethod
    def of(cls, fields: Sequence[Field], *, is_value: bool = False) -> FastPath | None:
        """Build it, or return None where a key has a quote, backslash or control character."""
        try:
            return cls(fields, is_value=is_value)
        except ValueError:
            return None

    def read(
        self, column: pa.Array, values: Sequence[bytes | None]
    ) -> tuple[list[int], list[pa.Array], list[int]]:
        """Read what is certain of a batch; ``values`` is ``column`` as a list.

        Returns the positions of certain records, one array per field over them, and the positions of doubtful
        records. Positions ascend; nulls are in neither.
        """
        certain = _certain_text(column)
        positions: list[int] = []
        doubtful: list[int] = []
        rows = []
        lists: dict[int, list[Any]] = {at: [] for at in self._readers}
        for start in range(0, len(values), _AT_ONCE):
            portion = values[start : start + _AT_ONCE]
            records = self._parse(portion, start, certain, positions, doubtful)
            rows.append(self._rows.read(records))
            for at, read in self._readers.items():
                lists[at] += read(records)
        columns: dict[int, Any] = {**lists, **self._rows.columns(rows)}
        arrays, culprits = self._convert(columns)
        while culprits:  # once more without them: a column names its doubts one step at a time
            doubtful.extend(positions[index] for index in culprits)
            keep = [index for index in range(len(positions)) if index not in culprits]
            positions = [positions[index] for index in keep]
            columns = {at: _only(column, keep) for at, column in columns.items()}
            arrays, culprits = self._convert(columns)
        doubtful.sort()
        return positions, arrays, doubtful

    def _parse(
        self,
        values: Sequence[Any],
        start: int,
        certain: Callable[[bytes], bool] | None,
        positions: list[int],
        doubtful: list[int],
    ) -> list[Any]:
        """Return the records that have the struct's types; add their positions, and the others'.

        The first value is at position ``start``.
        """
        decode = self._decode
        if certain is None:
            # Mostly there is no doubt, and a plain loop takes half the time. A null is a TypeError.
            with contextlib.suppress(*_NOT_PARSED, TypeError):
                records = list(map(decode, values))
                positions += range(start, start + len(values))
                return records
        records = []
        for at, value in enumerate(values, start):
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
        return records

    def _convert(self, columns: Mapping[int, Any]) -> tuple[list[pa.Array], set[int]]:
        """Build one array per field, or find records (by index) that some column has doubts about."""
        arrays = []
        culprits: set[int] = set()
        for at, field in enumerate(self._fields):
            values = columns[at]
            # With one key msgspec itself requires the value.
            if field.required and len(field.keys) > 1:
                culprits.update(at for at, value in enumerate(values) if value is None)
            try:
                if at in self._readers:
                    arrays.append(build(field, values, certain_leaf))
                else:
                    arrays.append(certain_array(field, values))
            except Doubt as doubt:
                culprits.update(doubt.at)
        return arrays, culprits


class _WithSchema(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    schema: msgspec.Raw
    payload: msgspec.Raw


_split = msgspec.json.Decoder(_WithSchema).decode


def split_schema(raw: bytes) -> tuple[bytes, bytes] | None:
    """Return the texts of the schema and of the value of a record that has just these; None for others."""
    try:
        both = _split(raw)
    except (*_NOT_PARSED, TypeError):
        return None
    return bytes(both.schema), bytes(both.payload)


class _Rows:
    """Fields that Arrow reads out of one tuple for each record, which takes a third less time than a list for each field.

    ``indices`` are theirs. They are those of one key that Arrow can hold as msgspec gives them.
    """

    def __init__(self, fields: Sequence[Field], members: Sequence[_Member]) -> None:
        names = {
            at: names[0]
            for at, (field, (names, _)) in enumerate(zip(fields, members, strict=True))
            if len(names) == 1 and field.kind not in _NOT_PLAIN
        }
        self.indices = tuple(names) if len(names) > 1 else ()
        self._type = pa.struct([(str(at), unchecked_type(fields[at])) for at in self.indices])
        self._tuple: Callable[[Any], tuple[Any, ...]]
        if len(self.indices) == sum(len(each) for each, _ in members):
            self._tuple = msgspec.structs.astuple
        elif self.indices:
            self._tuple = attrgetter(*names.values())

    def read(self, records: Sequence[Any]) -> pa.Array:
        if not self.indices:
            return pa.array([], self._type)
        return pa.array(list(map(self._tuple, records)), self._type)

    def columns(self, rows: Sequence[pa.Array]) -> dict[int, pa.Array]:
        together = pa.concat_arrays([pa.array([], self._type), *rows])
        return dict(zip(self.indices, together.flatten(), strict=True))


#: msgspec gives several types for a decimal, and objects for what is nested.
_NOT_PLAIN = ("decimal", "struct", "list", "map")


def _only(values: Any, keep: Sequence[int]) -> Any:
    if isinstance(values, pa.Array):
        return values.take(pa.array(keep, pa.int64()))
    return [values[index] for index in keep]


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
    shallow = (pc.max(pc.binary_length(column)).as_py() or 0) <= 2 * MAX_DEPTH
    if valid and shallow:
        return None
    return lambda value: (
        (shallow or value.count(b"[") + value.count(b"{") <= MAX_DEPTH)
        and (valid or _is_utf8(value))
    )


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


#: A type without values, for a field where nothing but null is certain.
_NOTHING = Annotated[str, Meta(min_length=1, max_length=0)]


def _record_type(fields: Sequence[Field]) -> tuple[type[msgspec.Struct], list[_Member]]:
    """Define the struct of a record."""
    members: list[tuple[str, Any, Any]] = []
    columns: list[_Member] = []
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
        columns.append((names, convert))
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
    kind, convert = (_NOTHING, None) if field.misfit else _parsed_type(field)
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


def _epoch_type(field: Field, unit: Unit) -> Any:
    lowest, highest, step = epoch_bounds(field, unit)
    return Annotated[int, Meta(ge=lowest, le=highest, multiple_of=step)]


def _struct_type(field: Field) -> tuple[Any, Callable[[Any], Any]]:
    record, members = _record_type(field.children)
    values: Callable[[Any], tuple[Any, ...]] = msgspec.structs.astuple
    if any(len(names) > 1 for names, _ in members):
        # Those of a row inside a change have former names; none of them is required.
        def values(value: Any) -> tuple[Any, ...]:
            return tuple([_first(value, names) for names, _ in members])

    converts = [convert for _, convert in members]
    if not any(converts):
        return record, values
    return record, lambda value: tuple(
        convert(member) if convert is not None and member is not None else member
        for convert, member in zip(converts, values(value), strict=True)
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
    **dict.fromkeys((*TIME_KINDS, "string", "binary", "fixed", "uuid"), str),
}
