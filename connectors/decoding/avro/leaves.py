"""The fast path's values that have no others inside: from the bytes of many records to one Arrow array each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from connectors.decoding.arrays import Doubt
from connectors.decoding.avro.exact import UNITS
from connectors.decoding.avro.lanes import Bools, Ints, Lane
from connectors.decoding.avro.plan import How, Plan
from connectors.decoding.fields import (
    DAY_US,
    MAX_TIME_US,
    MIN_TIME_US,
    NS_PER_US,
    UNIT_US,
    Field,
)
from connectors.decoding.json.columns import certain_array
from planner.evolution.writer_types import Logical

#: Reads one value of each record of a lane that is present (None: of all); NULL for the others. Returns None without a field.
Read = Callable[[Lane, Bools | None], pa.Array | None]

_DIGITS = np.full(256, 255, np.uint8)
for _digit in range(16):
    _DIGITS[[ord(f"{_digit:x}"), ord(f"{_digit:X}")]] = _digit
_HYPHENS = np.array([8, 13, 18, 23])
_NO_HYPHENS = np.array([at for at in range(36) if at not in (8, 13, 18, 23)])
#: Of texts, so many at a time are looked through for those that are not UTF-8.
_TEXTS = 256


def array_of(kind: pa.DataType, values: NDArray[Any], present: Bools | None) -> pa.Array:
    """Return values in the memory form of an Arrow type of one fixed width; NULL where they are not present."""
    buffer = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, len(values), [_validity(present), buffer])


def _validity(present: Bools | None) -> pa.Buffer | None:
    if present is None:
        return None
    return pa.py_buffer(np.packbits(present, bitorder="little"))


def _boolean(plan: Plan) -> Read:
    def read(lane: Lane, present: Bools | None) -> pa.Array | None:
        octets = lane.batch.octets(lane.at)
        lane.doubt(octets > 1, present)
        lane.move(1, present)
        if plan.field is None:
            return None
        bits = np.packbits(octets == 1, bitorder="little")
        return pa.Array.from_buffers(
            pa.bool_(), len(lane), [_validity(present), pa.py_buffer(bits)]
        )

    return read


def _integers(plan: Plan) -> Callable[[Lane, Bools | None], Ints]:
    """Read whole numbers; an int beyond 32 bits is doubtful."""
    if plan.writer.kind == "long":
        return lambda lane, present: lane.longs(present)

    def read(lane: Lane, present: Bools | None) -> Ints:
        numbers = lane.longs(present)
        lane.doubt(numbers.astype(np.int32) != numbers, present)
        return numbers

    return read


def _whole(plan: Plan) -> Read | None:
    field, raw = plan.field, _integers(plan)
    if field is None:

        def skip(lane: Lane, present: Bools | None) -> None:
            raw(lane, present)

        return skip
    if field.kind == "decimal":
        return _whole_decimal(field, raw)
    kinds: Mapping[str, tuple[Any, int]] = {
        "int": (np.int32, (1 << 31) - 1),
        "long": (np.int64, (1 << 63) - 1),
        # All whole numbers up to these are exact; some beyond are, as the exact path knows.
        "float": (np.float32, 1 << 24),
        "double": (np.float64, 1 << 53),
    }
    kind, limit = kinds[field.kind]

    def read(lane: Lane, present: Bools | None) -> pa.Array:
        numbers = raw(lane, present)
        if field.kind != "long":
            lane.doubt((numbers > limit) | (numbers < -limit), present)
        return array_of(field.type, numbers.astype(kind, copy=False), present)

    return read


def _whole_decimal(field: Field, raw: Callable[[Lane, Bools | None], Ints]) -> Read | None:
    digits, factor = min(field.type.precision, 18) - field.type.scale, 10**field.type.scale
    if digits < 1:
        return None
    limit = 10**digits

    def read(lane: Lane, present: Bools | None) -> pa.Array:
        numbers = raw(lane, present)
        is_beyond = (numbers >= limit) | (numbers <= -limit)
        lane.doubt(is_beyond, present)
        numbers = np.where(is_beyond, 0, numbers) * factor
        return array_of(
            field.type,
            np.stack([numbers, numbers >> 63], axis=1),
            present,
        )

    return read


def _epoch(plan: Plan) -> Read:
    field, raw = cast("Field", plan.field), _integers(plan)
    meaning = plan.writer.logical and plan.writer.logical.meaning
    unit = "day" if meaning == "date" else UNITS[meaning] if meaning else field.unit
    per_us = NS_PER_US if unit == "ns" else 1
    us = DAY_US if unit == "day" else UNIT_US.get(unit, 1)  # type: ignore[arg-type]
    low = max(-(1 << 63), -(-MIN_TIME_US * per_us // us))
    high = min((1 << 63) - 1, (MAX_TIME_US * per_us + per_us - 1) // us)

    def read(lane: Lane, present: Bools | None) -> pa.Array:
        numbers = raw(lane, present)
        is_beyond = (numbers < low) | (numbers > high)
        if is_beyond.any():
            lane.doubt(is_beyond, present)
            numbers = np.where(is_beyond, 0, numbers)
        if unit == "day":
            return array_of(field.type, numbers.astype(np.int32), present)
        micros = numbers * us
        if per_us > 1:
            micros, rest = np.divmod(numbers, per_us)
            if not field.floor:
                lane.doubt(rest != 0, present)
        if field.kind != "date":
            return array_of(field.type, micros, present)
        days, rest = np.divmod(micros, DAY_US)
        lane.doubt(rest != 0, present)
        return array_of(field.type, days.astype(np.int32), present)

    return read


def _floating(plan: Plan) -> Read:
    size = 4 if plan.writer.kind == "float" else 8
    field = plan.field

    def read(lane: Lane, present: Bools | None) -> pa.Array | None:
        at = lane.at
        lane.move(size, present)
        if field is None:
            return None
        if size == 8:
            return array_of(field.type, lane.batch.words(at).view(np.float64), present)
        numbers = lane.batch.halves(at).view(np.float32)
        # By Arrow: numpy warns of some values that are no numbers.
        floats = array_of(pa.float32(), numbers, present)
        return floats.cast(field.type) if field.kind == "double" else floats

    return read


def _octets(plan: Plan, lane: Lane, present: Bools | None) -> tuple[Ints, Ints]:
    """Read the bytes of a fixed, or bytes with their length."""
    if plan.writer.kind != "fixed":
        return lane.bytes(present)
    starts = np.minimum(lane.at, lane.ends)
    lane.move(plan.writer.size, present)
    return starts, np.minimum(lane.at, lane.ends)


def _bytes(plan: Plan) -> Read:
    field = plan.field

    def read(lane: Lane, present: Bools | None) -> pa.Array | None:
        starts, ends = _octets(plan, lane, present)
        if field is None:
            return None
        if field.kind == "fixed":
            width = field.type.byte_width
            lane.doubt(ends - starts != width, present)
            return array_of(field.type, lane.batch.fixed(starts, width), present)
        return _with_nulls(pa.binary(), lane.batch.spans(starts, ends), present)

    return read


def _with_nulls(kind: pa.DataType, values: pa.Array, present: Bools | None) -> pa.Array:
    """Return binary values of a fresh array as ``kind``, NULL where they are not present."""
    _, offsets, octets = values.buffers()
    return pa.Array.from_buffers(kind, len(values), [_validity(present), offsets, octets])


def _text(plan: Plan) -> Read:
    def read(lane: Lane, present: Bools | None) -> pa.Array | None:
        texts = text_array(lane, present)
        if plan.field is None:
            return None
        return _with_nulls(pa.string(), texts, present)

    return read


def text_array(lane: Lane, present: Bools | None) -> pa.Array:
    """Read strings; those that are not UTF-8 are doubtful, and empty."""
    starts, ends = lane.bytes(present)
    texts = lane.batch.spans(starts, ends)
    if _is_utf8(texts):
        return texts
    is_odd = np.zeros(len(lane), np.bool_)
    for start in range(0, len(texts), _TEXTS):
        some = texts.slice(start, _TEXTS)
        if not _is_utf8(some):
            is_odd[start : start + _TEXTS] = [
                not _is_utf8(some.slice(at, 1)) for at in range(len(some))
            ]
    lane.doubt(is_odd)
    return lane.batch.spans(starts, np.where(is_odd, starts, ends))


def _is_utf8(texts: pa.Array) -> bool:
    try:
        texts.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _time_text(plan: Plan) -> Read:
    field = replace(cast("Field", plan.field), unit=None)

    def read(lane: Lane, present: Bools | None) -> pa.Array:
        texts = _with_nulls(pa.string(), text_array(lane, present), present)
        while True:
            try:
                return certain_array(field, texts)
            except Doubt as doubt:
                is_odd = np.zeros(len(lane), np.bool_)
                is_odd[doubt.at] = True
                lane.doubt(is_odd)
                texts = pc.if_else(pa.array(is_odd), pa.scalar(None, pa.string()), texts)

    return read


def _enum(plan: Plan) -> Read:
    symbols = pa.array(plan.writer.symbols, pa.string())

    def read(lane: Lane, present: Bools | None) -> pa.Array | None:
        indices = lane.longs(present)
        is_odd = (indices < 0) | (indices >= len(symbols))
        lane.doubt(is_odd, present)
        if plan.field is None:
            return None
        indices = np.where(is_odd, 0, indices)
        return symbols.take(pa.array(indices, mask=None if present is None else ~present))

    return read


def _decimal(plan: Plan) -> Read | None:
    field, logical = cast("Field", plan.field), cast("Logical", plan.writer.logical)
    if field.type.scale != logical.scale or field.type.precision < logical.digits:
        return None
    limit = 10**logical.digits

    def read(lane: Lane, present: Bools | None) -> pa.Array:
        starts, ends = _octets(plan, lane, present)
        sizes = ends - starts
        low = _signed(lane.batch.words(ends - 8), np.minimum(sizes, 8))
        high = low >> 63
        is_long = sizes > 8
        if is_long.any():
            upper = _signed(lane.batch.words(ends - 16), np.clip(sizes - 8, 0, 8))
            high = np.where(is_long, upper, high)
        is_odd = sizes > 16
        if logical.digits <= 18:
            is_odd |= (high != low >> 63) | (low >= limit) | (low <= -limit)
        elif is_long.any():
            # Almost: what is near the limit is for the exact path.
            about = np.abs(high * 2.0**64 + low.view(np.uint64))
            is_odd |= about >= limit * (1 - 1e-9)
        lane.doubt(is_odd, present)
        return array_of(field.type, np.stack([low, high], axis=1), present)

    return read


def _signed(words: NDArray[np.uint64], sizes: Ints) -> Ints:
    """Read the last 0 to 8 bytes of each word as one number, the highest byte first."""
    shifts = np.minimum(64 - 8 * sizes, 63)
    numbers = (words.byteswap().view(np.int64) << shifts) >> shifts
    return np.where(sizes == 0, 0, numbers)


def _uuid_bytes(plan: Plan) -> Read | None:
    field = plan.field
    if field is not None and field.kind != "uuid":
        return None

    def read(lane: Lane, present: Bools | None) -> pa.Array | None:
        at = lane.at
        lane.move(plan.writer.size, present)
        return None if field is None else _uuids(lane.batch.fixed(at, 16), present)

    return read


def _uuids(octets: NDArray[Any], present: Bools | None) -> pa.Array:
    return pa.ExtensionArray.from_storage(pa.uuid(), array_of(pa.binary(16), octets, present))


def _uuid_text(plan: Plan) -> Read:
    if plan.field is None or plan.field.kind == "string":
        return _text(plan)

    def read(lane: Lane, present: Bools | None) -> pa.Array:
        starts, ends = lane.bytes(present)
        texts = lane.batch.fixed(starts, 36)
        digits = _DIGITS[texts[:, _NO_HYPHENS]]
        is_odd = (ends - starts != 36) | (texts[:, _HYPHENS] != ord("-")).any(axis=1)
        lane.doubt(is_odd | (digits == 255).any(axis=1), present)
        return _uuids(digits[:, 0::2] << 4 | digits[:, 1::2], present)

    return read


#: What is read so; a function may return None where it is not certain of a pair of types.
LEAVES: Mapping[How, Callable[[Plan], Read | None]] = {
    "boolean": _boolean,
    "whole": _whole,
    "epoch": _epoch,
    "floating": _floating,
    "decimal": _decimal,
    "bytes": _bytes,
    "text": _text,
    "time_text": _time_text,
    "uuid_text": _uuid_text,
    "uuid_bytes": _uuid_bytes,
    "enum": _enum,
}
