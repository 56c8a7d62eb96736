"""Several statements in one text, told apart by the engine's own tokens."""

from __future__ import annotations

import re


def split(text: str) -> list[str]:
    """Return the statements of ``text`` without their semicolons; texts of comments alone are left out."""
    return [piece for piece, has_words in _pieces(text) if has_words]


def is_complete(text: str) -> bool:
    """Whether what was typed so far ends a statement: its last word is a semicolon, or there is none."""
    return not _pieces(text)[-1][1]


def _pieces(text: str) -> list[tuple[str, bool]]:
    """Return (piece, whether it has words); the last one is what follows the last semicolon."""
    if not re.search(r";|--|/\*", text):
        return [(text.strip(), bool(text.strip()))]
    # Not at the top: it takes a tenth of a second, which most statements need not wait.
    import duckdb

    # Offsets are of bytes. Of a quote or comment that is not closed there is no token, nor of what follows.
    raw = text.encode()
    end = len(raw) + 1
    pieces: list[tuple[str, bool]] = []
    begin, has_words = 0, False
    tokens = [offset for offset, _ in duckdb.tokenize(f"{text}\n;")]
    for offset in tokens:
        if offset == end:
            break
        if raw[offset : offset + 1] == b";":
            pieces.append((raw[begin:offset].decode().strip(), has_words))
            begin, has_words = offset + 1, False
        else:
            has_words = True
    is_open = tokens[-1:] != [end]
    pieces.append((raw[begin:].decode().strip(), has_words or is_open))
    return pieces
