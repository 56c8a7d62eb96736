"""Reads, compares and prints the trees of DuckDB's parser, which travel as JSON, up to 32 MB for one statement.

Each call into a library keeps Python's lock to its end, and other statements wait: `json.loads` of 12 MB
took 0.2 to 1.3 s. So large trees are refused before they are read, read in pieces, and compared by the engine.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from planner.errors import BadStatement, UnsupportedStatement
from planner.statement.ast import Node, statement
from planner.statement.gate import check_counts
from planner.statement.rewrite import same

#: Runs SQL with one argument, and returns its one row.
Ask = Callable[[str, str], tuple[Any, ...]]

#: What the gate passes is smaller: 50,000 literals have 14 MB, 12,000 parts 8, and texts of control characters 6.
_MAX_BYTES = 32 << 20
_PARSE = f"""
SELECT if(strlen(tree) > {_MAX_BYTES}, NULL, tree) FROM (SELECT json_serialize_sql(?) AS tree)
"""  # noqa: S608 - a number of ours
#: The SQL of a tree, and the tree of that SQL.
_PRINT = """
SELECT sql, json_serialize_sql(sql) FROM (SELECT json_deserialize_sql(?::JSON) AS sql)
"""
#: The same, with NULL for a tree that is the same but for places. It takes 0.4 ms more, and Python's lock for less.
_PRINT_LONG = r"""
SELECT sql, if(regexp_replace(tree, place, '', 'g') = regexp_replace(again, place, '', 'g'), NULL, again)
FROM (SELECT *, json_serialize_sql(sql) AS again, '"query_location":\d+' AS place
      FROM (SELECT tree, json_deserialize_sql(tree::JSON) AS sql FROM (SELECT ? AS tree)))
"""
_LONG_CHARS = 1 << 18
#: Of a literal such as 1e999. Quotes inside a value are escaped, so no text looks like it.
_INFINITE = re.compile(r'"value":-?Infinity')
_POSITION = re.compile(r'"query_location":\d+')
#: Read in one piece: about 1 ms. Deeper pieces are read whole, or a deep tree were looked through at each level.
_PIECE_BYTES = 1 << 17
_PIECES_DEEP = 24
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


def parse(ask: Ask, sql: str) -> Node:
    """Return the document of a text; ``document["error"]`` says whether it did not parse.

    Raises:
        BadStatement: it holds what no tree can: a part of a character, a number without end.
        UnsupportedStatement: the tree is too large or too deep.
    """
    (text,) = ask(_PARSE, sql)
    if text is None:
        raise UnsupportedStatement("the statement has too many parts; narrow it.")
    if _INFINITE.search(text):
        raise BadStatement(
            "a number is too large for a DOUBLE; write 'inf'::DOUBLE for infinity."
        )
    literals = text.count('"class":"CONSTANT"')
    check_counts(literals, text.count('"class":"') - literals)
    return read(text)


def unparse(ask: Ask, text: str, document: Node) -> str:
    """Return the SQL of ``document``, whose JSON is ``text``. Raises UnsupportedStatement: the SQL has another tree."""
    sql, again = ask(_PRINT_LONG if len(text) > _LONG_CHARS else _PRINT, text)
    if sql is None or (again is not None and not _is_same(text, document, again)):
        raise UnsupportedStatement(
            "this combination of clauses cannot be carried over faithfully; write joins in the order "
            "they apply, each with its own condition."
        )
    printed: str = sql
    return printed


def read(text: str) -> Node:
    """Read a document of DuckDB's. Raises BadStatement, UnsupportedStatement: as ``parse``."""
    try:
        document: Node = _read(msgspec.Raw(text), 0)
    except RecursionError as error:
        raise UnsupportedStatement(
            "the statement is nested too deeply; split it with WITH clauses."
        ) from error
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        # The parser quotes part of a character: its message is no text, and there is no tree.
        raise BadStatement("the statement does not parse; send SQL.") from error
    return document


def _read(raw: msgspec.Raw, depth: int) -> Any:
    view = memoryview(raw)
    if len(view) > _PIECE_BYTES and depth < _PIECES_DEEP:
        if view[0] == ord("{"):
            return {
                name: _read(value, depth + 1) for name, value in _FIELDS.decode(raw).items()
            }
        if view[0] == ord("["):
            return [_read(value, depth + 1) for value in _ITEMS.decode(raw)]
    return msgspec.json.decode(raw)


def _is_same(text: str, document: Node, again: str) -> bool:
    """Whether ``again`` is the tree of ``text``, which is ``document``, but for places."""
    # Quotes inside a value are escaped, so no value looks like a place.
    if len(text) <= _LONG_CHARS and _POSITION.sub("", text) == _POSITION.sub("", again):
        return True
    other = read(again)
    return not other["error"] and same(statement(document)["node"], statement(other)["node"])
