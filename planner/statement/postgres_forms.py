"""Forms of Postgres that tools write, as DuckDB has them; the gate has passed the statement.

``pg_catalog.version()`` is ``version()``; ``to_timestamp(text, format)`` is ``strptime`` with the format in its letters, as a
time of the session's zone (PostgreSQL's documentation, "Data Type Formatting Functions").
"""

from __future__ import annotations

import re

from planner.errors import UnsupportedStatement
from planner.statement.ast import Node, fold, kind_of, walk
from planner.statement.parameters import call, cast, constant

#: Functions that may have ``pg_catalog`` before them.
OF_PG_CATALOG = frozenset(("version",))
#: Settings of the session that ``current_setting`` tells.
SETTINGS = frozenset(("timezone",))

_FIELDS = {
    "YYYY": "%Y",
    "YY": "%y",
    "MM": "%m",
    "MON": "%b",
    "MONTH": "%B",
    "DD": "%d",
    "DDD": "%j",
    "HH24": "%H",
    "HH12": "%I",
    "HH": "%I",
    "MI": "%M",
    "SS": "%S",
    "MS": "%g",
    "US": "%f",
    "AM": "%p",
    "PM": "%p",
    "T": "T",
    "TZH:TZM": "%z",
}
#: A field, the longest first; what stands in quotes; or marks between fields.
_PIECE = re.compile(
    rf"(?P<field>{'|'.join(sorted(_FIELDS, key=len, reverse=True))})"
    r'|"(?P<quoted>[^"]*)"|(?P<marks>[^A-Za-z0-9"]+)',
    re.IGNORECASE | re.ASCII,
)


def rewrite_postgres_forms(document: Node) -> None:
    """Put these forms into DuckDB's, in place.

    Raises:
        UnsupportedStatement: a format is no literal, or has what cannot be said in DuckDB's.
    """
    for node, _ in walk(document):
        if kind_of(node) != "FUNCTION":
            continue
        if fold(node["schema"]) == "pg_catalog":
            node["schema"] = ""
        if fold(node["function_name"]) == "to_timestamp" and len(node["children"]) == 2:
            alias, (value, pattern) = node["alias"], node["children"]
            time = call("strptime", value, constant(_strptime_format(pattern), "VARCHAR"))
            node.clear()
            node.update(cast(time, {"id": "TIMESTAMP WITH TIME ZONE"}), alias=alias)


def _strptime_format(pattern: Node) -> str:
    text = pattern.get("value", {}).get("value") if kind_of(pattern) == "CONSTANT" else None
    if not isinstance(text, str):
        raise UnsupportedStatement(
            "the format of to_timestamp must be a literal; write it in quotes."
        )
    pieces, at = [], 0
    while at < len(text):
        piece = _PIECE.match(text, at)
        if piece is None:
            raise UnsupportedStatement(
                f"to_timestamp does not know the format {text[:80]!r} from {text[at : at + 20]!r} on; fields are "
                f"{', '.join(_FIELDS)}, other letters stand in double quotes."
            )
        field, quoted = piece["field"], piece["quoted"]
        plain = piece["marks"] if quoted is None else quoted
        pieces.append(_FIELDS[field.upper()] if field else str(plain).replace("%", "%%"))
        at = piece.end()
    return "".join(pieces)
