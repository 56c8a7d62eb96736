"""Names, texts and types as DuckDB spells them in SQL.

The tokens of SQL texts: what can be said of one without parsing it. Takes time linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def same_name(name: str, names: Collection[str]) -> str | None:
    """Find a name as SQL compares names: the exact one, else one that differs in case."""
    if name in names:
        return name
    return next((other for other in sorted(names) if other.lower() == name.lower()), None)


_TOKEN = re.compile(
    r"""(?P<space>\s++)
      | (?P<comment>--[^\n]*+|/\*.*?\*/)
      | '(?P<text>(?:[^']|'')*+)'
      | [eE]'(?P<escaped>(?:[^'\\]|''|\\.)*+)'
      | "(?P<quoted>(?:[^"]|"")*+)"
      | (?P<dollar>\$(?P<tag>\w*+)\$.*?\$(?P=tag)\$)
      | (?P<open>(?:['"]|\$\w*+\$|/\*).*+)
      | (?P<word>(?:[A-Za-z_]|[^\x00-\x7F\s])(?:[A-Za-z0-9_$]|[^\x00-\x7F\s])*+)
      | (?P<number>-?[0-9]++)
      | (?P<mark>[=.;%])
      | (?P<other>[^A-Za-z0-9_\s'"$/=.;%\x80-\U0010FFFF-]++|.)""",
    re.VERBOSE | re.DOTALL,
)


def tokens(sql: str) -> Iterator[re.Match[str]]:
    """Yield every token, spaces and comments included; ``lastgroup`` is its kind.

    ``text``, ``escaped``, ``quoted`` and ``dollar`` are quoted; the groups of all but the last are what is between the
    quotes, doubled ones still doubled. ``open`` is a quote or a comment that is not closed, to the end of the text.
    """
    return _TOKEN.finditer(sql)
