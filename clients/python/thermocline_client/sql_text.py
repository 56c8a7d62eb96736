"""Names of tables as SQL spells them."""

from __future__ import annotations

import re

_PART = r'"(?:[^"]|"")+"|[^".\s]+'
_NAME = re.compile(rf"(?:{_PART})(?:\.(?:{_PART}))*")
#: Suffixes of a table's own relations.
_SIDES = ("$tail", "$cold", "$seam")


def side_name(name: str, side: str) -> str | None:
    """Return ``"lake"."net"."flows$tail"`` of a table's name and ``tail``; None: it is no name of a table."""
    if not _NAME.fullmatch(name):
        return None
    *front, last = re.findall(_PART, name)
    last = _unquoted(last)
    for suffix in _SIDES:
        last = last.removesuffix(suffix)
    return ".".join(map(_quoted, (*map(_unquoted, front), f"{last}${side}")))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _unquoted(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part
