"""Several statements in one text, told apart by the engine's own tokens."""

from __future__ import annotations

from planner.lexer import tokens


def split(text: str) -> list[str]:
    """Return the statements of ``text`` without their semicolons; texts of comments alone are left out."""
    return [piece for piece in _pieces(text) if piece]


def is_complete(text: str) -> bool:
    """Whether what was typed so far ends a statement: its last word is a semicolon, or there is none."""
    return not _pieces(text)[-1]


def _pieces(text: str) -> list[str]:
    """Return what is before, between and behind semicolons; empty where that is comments alone."""
    pieces, begin, is_blank = [], 0, True
    for token in tokens(text):
        if token[0] == ";":
            pieces.append("" if is_blank else text[begin : token.start()].strip())
            begin, is_blank = token.end(), True
        elif token.lastgroup not in ("space", "comment") and not token[0].startswith("/*"):
            is_blank = False
    return [*pieces, "" if is_blank else text[begin:].strip()]
