"""Decodes what a generation gets, and keeps count of it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from planner.ports import Decoder, RecordError
from planner.watermark import Outcomes

_KEPT_ERRORS = 20


class Decoding:
    """A decoder with its tally. Thread-safe."""

    def __init__(self, decoder: Decoder) -> None:
        self.decode = decoder.decode
        self._lock = threading.Lock()
        self._outcomes = Outcomes()
        self._bad: deque[RecordError] = deque(maxlen=_KEPT_ERRORS)

    def count(self, outcomes: Outcomes, errors: Sequence[RecordError]) -> None:
        """Note what a batch came to, once its rows are held."""
        with self._lock:
            self._outcomes += outcomes
            self._bad.extend(errors)

    def tally(self) -> tuple[Outcomes, tuple[RecordError, ...]]:
        with self._lock:
            return self._outcomes, tuple(self._bad)
