"""What a server says instead of an answer, in its own sentence: the driver's words around it are left out."""

from __future__ import annotations

import re
from typing import NamedTuple

#: ``INVALID_ARGUMENT: [FlightSQL] <sentence>. Detail: Python exception: <class> (InvalidArgument; Prepare)``;
#: amid the rows without the first word. The word in brackets is gRPC's.
_SERVER_ERROR = re.compile(
    r"^(?:[A-Z_]+: )?\[FlightSQL\] (?P<text>.*?)"
    r"(?:\. Detail: (?:Python exception: )?(?P<detail>\w+))?"
    r" \((?P<code>\w+); .*\)(?:\. Vendor code: \d+)?$",
    re.DOTALL,
)
#: What gRPC says when no server answered: no sentence of a server's.
_NO_SERVER = re.compile(
    r"connection error|transport:|dial tcp|error reading from server|name resolver", re.I
)


class Sentence(NamedTuple):
    """``status`` is gRPC's, as ``InvalidArgument``; ``detail`` the class of the server's error, where it is told."""

    text: str
    status: str
    detail: str | None

    @property
    def is_of_no_server(self) -> bool:
        return self.status == "Unavailable" and bool(_NO_SERVER.search(self.text))


def sentence_of(message: str) -> Sentence | None:
    """Read a driver's message; None: it has no server's sentence."""
    match = _SERVER_ERROR.match(message)
    if match is None:
        return None
    text = match["text"]
    if not text.endswith((".", "?", "^", "…")):
        text = f"{text}."
    return Sentence(text, match["code"], match["detail"])


class AnswerError(Exception):
    """What came instead of an answer: one sentence of the server's, or of the way to it.

    ``status`` is gRPC's name: ``Unavailable`` may go away by itself, ``InvalidArgument`` is the statement's.
    """

    def __init__(self, text: str, status: str) -> None:
        super().__init__(text)
        self.status = status

    def _render_traceback_(self) -> list[str]:
        """What IPython prints: the statement is in the cell above, and the way through this package helps no reader."""
        return [f"AnswerError: {printable(str(self))}"]

    @property
    def is_passing(self) -> bool:
        """Whether the same statement may be answered later."""
        return self.status == "Unavailable"


def printable(text: str) -> str:
    """A terminal obeys what is in a text of others, so what is not printed is spelled."""
    return "".join(
        each if each.isprintable() or each == "\n" else f"\\x{ord(each):02x}" for each in text
    )


def to_ours(error: BaseException, uri: str) -> BaseException:
    """Return our error for one of the driver's or its reader's; anything else as it is."""
    sentence = sentence_of(str(error))
    if sentence is None:
        return error
    if sentence.is_of_no_server:
        text = f"no Thermocline server answers at {uri}; try again, or look whether it runs."
        return AnswerError(text, sentence.status)
    return AnswerError(sentence.text, sentence.status)
