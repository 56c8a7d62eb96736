"""Columns from samples of a topic, by the rules in docs/json-types.md, "Inferred columns".

Pure: the caller has read the samples. Every readable sample decodes strictly under the resulting columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from connectors.json.fields import Field, Kind
from connectors.json.parsing import Number, Unfit, kind_of, parse
from connectors.json.strict import read_value
from planner.errors import BadBinding
from planner.names import METADATA_COLUMNS
from planner.schema import TIMESTAMPTZ, Column

_TIMES: dict[Kind, pa.DataType] = {
    "timestamptz": TIMESTAMPTZ,
    "timestamp": pa.timestamp("us"),
    "date": pa.date32(),
}


def infer_columns(samples: Sequence[bytes]) -> tuple[Column, ...]:
    """Find the columns under which every readable sample decodes, in the order keys first appear.

    Fields without a type in any sample are left out. Field ids are positions from 1; a table assigns its own.

    Raises:
        BadBinding: no sample is readable, a field holds values no one type takes, or its name cannot be a
            column's.
    """
    records = []
    for sample in samples:
        try:
            records.append(parse(sample))
        except Unfit:
            continue
    if not records:
        raise BadBinding(
            f"No columns can be inferred: none of {len(samples)} samples is a JSON object; give the columns.",
            samples=len(samples),
        )
    members = _members("", records)
    for field in members:
        if field.name in METADATA_COLUMNS:
            raise BadBinding(
                f"Field {field.name} has the name of a log metadata column; give the columns, and leave it out "
                f"or read it under another name.",
                field=field.name,
            )
    return tuple(
        Column(index, field.name, field.type) for index, field in enumerate(members, start=1)
    )


def _members(path: str, objects: Sequence[dict[str, Any]]) -> list[pa.Field]:
    names = dict.fromkeys(name for item in objects for name in item)
    _check_case(path, names)
    columns = []
    for name in names:
        inner = f"{path}.{name}" if path else name
        kind = _kind(inner, [item[name] for item in objects if name in item])
        if kind is not None:
            columns.append(pa.field(name, kind))
    return columns


def _check_case(path: str, names: Iterable[str]) -> None:
    by_fold: dict[str, str] = {}
    for name in names:
        other = by_fold.setdefault(name.casefold(), name)
        if other != name:
            where = f" in {path}" if path else ""
            raise BadBinding(
                f"Fields {other} and {name}{where} differ in case only, which SQL does not tell apart; give the "
                f"columns.",
                field=name,
            )


def _kind(path: str, values: Sequence[Any]) -> pa.DataType | None:
    """The type of one field over all samples, or None if they do not tell it."""
    values = [value for value in values if value is not None]
    # Without the article: "a boolean", "an array".
    shapes = dict.fromkeys(kind_of(value).partition(" ")[2] for value in values)
    if len(shapes) > 1:
        raise BadBinding(
            f"Field {path} is {' and '.join(shapes)} in different samples, and no type takes both; give the "
            f"columns, with lenient JSON or without this one.",
            field=path,
            shapes=tuple(shapes),
        )
    match next(iter(shapes), None):
        case "boolean":
            return pa.bool_()
        case "number":
            return _number_kind(path, values)
        case "string":
            return _string_kind(path, values)
        case "object":
            members = _members(path, values)
            return pa.struct(members) if members else None
        case "array":
            element = _kind(f"{path}[]", [item for value in values for item in value])
            return None if element is None else pa.list_(pa.field("element", element))
    return None


def _number_kind(path: str, values: Sequence[Number]) -> pa.DataType:
    whole = [value for value in values if value.removeprefix("-").isdigit()]
    if not _all_fit(path, "long", pa.int64(), whole):
        raise BadBinding(
            f"Field {path} has whole numbers beyond 64 bits; give the columns, with decimal or double here.",
            field=path,
        )
    if len(whole) == len(values):
        return pa.int64()
    if not _all_fit(path, "double", pa.float64(), values):
        raise BadBinding(
            f"Field {path} has numbers beyond double; give the columns, with decimal or without this one.",
            field=path,
        )
    return pa.float64()


def _string_kind(path: str, values: Sequence[str]) -> pa.DataType:
    for kind, pattern in _TIMES.items():
        if _all_fit(path, kind, pattern, values):
            return pattern
    if not _all_fit(path, "string", pa.string(), values):
        raise BadBinding(
            f"Field {path} has strings with half of a surrogate pair, which no column holds; give the columns "
            f"without it.",
            field=path,
        )
    return pa.string()


def _all_fit(path: str, kind: Kind, arrow: pa.DataType, values: Sequence[Any]) -> bool:
    field = Field(path, kind, arrow, required=False)
    try:
        for value in values:
            read_value(field, value)
    except Unfit:
        return False
    return True
