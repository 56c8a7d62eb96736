"""SQLAlchemy's types of the types that ``information_schema.columns`` names."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import types

_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")
_BY_NAME: dict[str, Any] = {
    "BOOLEAN": types.Boolean(),
    "TINYINT": types.SmallInteger(),
    "SMALLINT": types.SmallInteger(),
    "UTINYINT": types.SmallInteger(),
    "INTEGER": types.Integer(),
    "USMALLINT": types.Integer(),
    "BIGINT": types.BigInteger(),
    "UINTEGER": types.BigInteger(),
    "UBIGINT": types.Numeric(20, 0),
    "HUGEINT": types.Numeric(38, 0),
    "FLOAT": types.Float(24),
    "DOUBLE": types.Float(53),
    "VARCHAR": types.String(),
    "UUID": types.String(36),
    "BLOB": types.LargeBinary(),
    "DATE": types.Date(),
    "TIME": types.Time(),
    "TIMESTAMP": types.DateTime(),
    "TIMESTAMP_S": types.DateTime(),
    "TIMESTAMP_MS": types.DateTime(),
    "TIMESTAMP_NS": types.DateTime(),
    "TIMESTAMP WITH TIME ZONE": types.DateTime(timezone=True),
    "INTERVAL": types.Interval(),
}


class Nested(types.UserDefinedType):  # type: ignore[type-arg]
    """A struct, list or map: dictionaries and lists of Python, and the name that the engine gives it."""

    cache_ok = True

    def __init__(self, text: str) -> None:
        self.text = text

    def get_col_spec(self, **_: Any) -> str:
        return self.text


def type_of(text: str) -> Any:
    decimal = _DECIMAL.fullmatch(text)
    if decimal is not None:
        return types.Numeric(int(decimal[1]), int(decimal[2]))
    return _BY_NAME.get(text) or Nested(text)
