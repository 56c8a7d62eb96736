"""Several statements in one text, told apart by ``;`` outside quotes and comments."""

from __future__ import annotations

import re

#: What hides a semicolon: quotes ('' and "" stay inside), dollar quotes, comments. An unclosed one runs on.
_HIDING = re.compile(
    r"'(?:[^']|'')*(?:'|$)"
    r'|"(?:[^"]|"")*(?:"|$)'
    r"|\$(?P<tag>\w*)\$.*?(?:\$(?P=tag)\$|$)"
    r"|(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))",
    re.DOTALL,
)


def split(text: str) -> list[str]:
    """Return the statements of ``text`` without their semicolons; texts of comments alone are left out."""
    return [piece for piece, _ in _pieces(text) if not _is_blank(piece)]


def is_complete(text: str) -> bool:
    """Whether what was typed so far ends a statement: its last word is a semicolon, or there is none."""
    pieces = _pieces(text)
    return _is_blank(pieces[-1][0])


def _pieces(text: str) -> list[tuple[str, bool]]:
    """Return (piece, whether a semicolon ended it); the last one is what follows the last semicolon."""
    pieces: list[tuple[str, bool]] = []
    begin = at = 0
    while at < len(text):
        hidden = _HIDING.match(text, at)
        if hidden is not None and hidden.end() > at:
            at = hidden.end()
        elif text[at] == ";":
            pieces.append((text[begin:at].strip(), True))
            at += 1
            begin = at
        else:
            at += 1
    pieces.append((text[begin:].strip(), False))
    return pieces


def _is_blank(piece: str) -> bool:
    bare = _HIDING.sub(lambda match: "" if match["comment"] is not None else "x", piece)
    return not bare.strip()
