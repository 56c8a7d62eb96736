"""A record's bytes to JSON values, with the standard library alone; numbers stay text, so nothing is rounded yet."""

from __future__ import annotations

import base64
import json
import re
from decimal import Context, Decimal
from typing import Any, NoReturn

from connectors.decoding.framing import PREFIX_BYTES, other_framing
from connectors.decoding.policy import SINGLE, Unfit
from planner.seam.formats import FLOOR, FRACTION_PREFIX

#: Deeper records are refused. A written limit, because the parsers' own depends on the stack of the caller:
#: the same record would decode in one process and not in another.
MAX_DEPTH = 500
#: A string without an end matches too: searching its end from each quote would take quadratic time.
_JSON_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
BASE64 = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
_BASE64 = re.compile(BASE64)
#: Digits of more bytes are beyond every decimal.
_MAX_DIGIT_BYTES = 800
#: Debezium writes a negative scale of PostgreSQL as itself and 2,048.
_MAX_SCALE = 1_000
#: Holds every number of so many bytes.
_DIGITS = Context(prec=2_000, Emax=9_999, Emin=-9_999)


class Number(str):
    """A JSON number, as written."""

    __slots__ = ()


class OtherFormat(Unfit):
    """A record of another format, which its producer meant. ``schema_id`` is its Avro schema's."""

    cure = f"bind the table to a topic of JSON records{SINGLE}"

    def __init__(self, reason: str, message: str, schema_id: int | None) -> None:
        super().__init__(None, reason, message)
        self.schema_id = schema_id
        if schema_id is not None:
            self.cure = (
                f"make a table of such records with `thermocline create --format avro`{SINGLE}"
            )


class OtherNumber(Unfit):
    """A number that the field's type does not hold, and another type does."""

    cure = f"give the key to a new column that holds such numbers (docs/ways-out.md, UndecodableRecord){SINGLE}"


class FinerTime(Unfit):
    """A time with a fraction below a microsecond, which a floor of the field with this id cuts off."""

    def __init__(self, path: str | None, reason: str, field_id: int) -> None:
        super().__init__(path, reason)
        setting = f"{FRACTION_PREFIX}{field_id} = {FLOOR}"
        self.cure = f"have such digits cut off by the table property {setting}{SINGLE}"


def parse(raw: bytes) -> dict[str, Any]:
    """Parse an object, or raise Unfit; else as ``parse_value``."""
    value = parse_value(raw)
    if not isinstance(value, dict):
        raise Unfit(None, f"the JSON is {kind_of(value)}, not an object")
    return value


def parse_value(raw: bytes) -> Any:
    """Parse a value by RFC 8259, or raise Unfit. Numbers are ``Number``; of a duplicate key the last value stays."""
    try:
        return _parse(raw)
    except Unfit as unfit:
        other = other_framing(raw)
        if other is not None:
            raise OtherFormat(unfit.reason, other, None) from unfit
        # Serializers of a schema registry write a zero, then the schema's id in four bytes.
        if raw[:1] != b"\0" or len(raw) < PREFIX_BYTES:
            raise
        number = int.from_bytes(raw[1:PREFIX_BYTES])
        if raw[5:6] == b"{":
            message = f"this looks like JSON behind a schema registry, schema id {number}"
            raise OtherFormat(unfit.reason, message, None) from unfit
        message = f"this looks like Avro with schema id {number}"
        raise OtherFormat(unfit.reason, message, number) from unfit


def _parse(raw: bytes) -> Any:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as cause:
        raise Unfit(None, f"the value is not UTF-8 (byte {cause.start})") from cause
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
        raise Unfit(None, f"the JSON is nested more than {MAX_DEPTH} levels deep")
    try:
        return json.loads(
            text, parse_int=Number, parse_float=Number, parse_constant=_no_constant
        )
    except json.JSONDecodeError as cause:
        reason = f"the value is not JSON (character {cause.pos})"
        raise Unfit(None, reason, _common_form(text, cause)) from cause


def kind_of(value: object) -> str:
    """Name the kind of a JSON value, never its content."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, Number):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else "an object"


def _no_constant(name: str) -> NoReturn:
    message = f"the value has a bare {name}, which is not JSON"
    raise Unfit(None, "the value is not JSON", message)


def _common_form(text: str, cause: json.JSONDecodeError) -> str | None:
    """Name what is often sent in place of one object."""
    if not text:
        return "the value is empty (zero bytes, which is no tombstone)"
    if text.startswith("\ufeff"):
        return "the value begins with a byte order mark, which is not JSON"
    if cause.msg == "Extra data" and text[cause.pos] in "{[":
        return "the value is several JSON values, as in NDJSON, and a record is one"
    return None


def _depth(text: str) -> int:
    deepest = depth = 0
    for character in re.findall(r"[\[\]{}]", _JSON_STRING.sub("", text)):
        depth += 1 if character in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def from_base64(text: str) -> bytes | None:
    """Return the bytes that a text in base64 says; None: it is none."""
    return base64.b64decode(text) if _BASE64.fullmatch(text) else None


def unscaled(path: str, digits: str, scale: int) -> Decimal:
    """Read what Kafka Connect writes of a decimal: its digits in base64. Raises as ``of_digits``."""
    octets = from_base64(digits)
    if not octets:
        raise Unfit(path, "the string is no decimal's digits in base64")
    return of_digits(path, octets, scale)


def of_digits(path: str, octets: bytes, scale: int) -> Decimal:
    """Return the decimal of digits in two's complement, the highest byte first.

    Raises:
        Unfit: it is beyond every decimal, or its scale is none.
    """
    if scale > _MAX_SCALE:
        reason = f"the number has the scale {scale:,}, which Debezium writes for a negative one"
        raise Unfit(path, reason)
    if len(octets) > _MAX_DIGIT_BYTES or scale < -_MAX_SCALE:
        raise OtherNumber(path, "the number is beyond every decimal")
    return Decimal(int.from_bytes(octets, signed=True)).scaleb(-scale, context=_DIGITS)
