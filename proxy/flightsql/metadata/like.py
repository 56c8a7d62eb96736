"""LIKE patterns of metadata requests, matched in time linear in pattern times text.

Not through ``re``: a pattern with many ``%`` makes its backtracking explode, and patterns come from clients.
"""

from __future__ import annotations

from enum import Enum, auto

from planner.errors import BadParameter

#: What SqlInfo 513 announces.
ESCAPE = "\\"
#: A megabyte of them took 0.4 s of Python's lock to be read.
MAX_CHARS = 4_096


class Wildcard(Enum):
    ONE = auto()
    ANY = auto()


class Like:
    """One pattern: ``%`` any text, ``_`` one character; ``ESCAPE`` takes the next one literally."""

    def __init__(self, pattern: str) -> None:
        """Raises:
        BadParameter: it is longer than any name.
        """
        if len(pattern) > MAX_CHARS:
            raise BadParameter(
                f"a pattern of {len(pattern):,} characters; names have fewer, and patterns at most {MAX_CHARS:,}."
            )
        self._tokens: list[str | Wildcard] = []
        characters = iter(pattern)
        for character in characters:
            if character == ESCAPE:
                # An escape at the very end stands for itself.
                self._tokens.append(next(characters, ESCAPE))
            elif character == "%":
                if self._tokens[-1:] != [Wildcard.ANY]:
                    self._tokens.append(Wildcard.ANY)
            else:
                self._tokens.append(Wildcard.ONE if character == "_" else character)
        self._min_length = sum(token is not Wildcard.ANY for token in self._tokens)

    def matches(self, text: str) -> bool:
        tokens = self._tokens
        # It is matched against every name there is.
        if self._min_length > len(text):
            return False
        at, position = 0, 0
        # Where to go on if the text since the last ``%`` does not fit: only that one is ever widened.
        resume: tuple[int, int] | None = None
        while position < len(text):
            token = tokens[at] if at < len(tokens) else None
            if token is Wildcard.ANY:
                resume = (at + 1, position)
                at += 1
            elif token is Wildcard.ONE or (token is not None and token == text[position]):
                at, position = at + 1, position + 1
            elif resume is not None:
                at, position = resume[0], resume[1] + 1
                resume = (at, position)
            else:
                return False
        return all(token is Wildcard.ANY for token in tokens[at:])
