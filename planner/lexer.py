"""The tokens of SQL texts: what can be said of one without parsing it. Takes time linear in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r"""(?P<space>\s++)
      | (?P<comment>--[^\n]*+|/\*.*?\*/)
      | '(?P<text>(?:[^']|'')*+)'
      | "(?P<quoted>(?:[^"]|"")*+)"
      | (?P<dollar>\$(?P<tag>\w*+)\$.*?\$(?P=tag)\$)
      | (?P<open>(?:['"]|\$\w*+\$|/\*).*+)
      | (?P<word>[A-Za-z_][A-Za-z0-9_$]*+)
      | (?P<number>-?[0-9]++)
      | (?P<mark>[=.;%])
      | (?P<other>[^A-Za-z0-9_\s'"$/=.;%-]++|.)""",
    re.VERBOSE | re.DOTALL,
)


def tokens(sql: str) -> Iterator[re.Match[str]]:
    """Yield every token, spaces and comments included; ``lastgroup`` is its kind.

    ``text``, ``quoted`` and ``dollar`` are quoted; the groups of the first two are what is between the quotes, doubled
    ones still doubled. ``open`` is a quote or a comment that is not closed, to the end of the text.
    """
    return _TOKEN.finditer(sql)
