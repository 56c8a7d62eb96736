"""Counts the records that a generation decoded."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from planner.ports import RecordError
from planner.watermark import Outcomes

_MAX_ERRORS = 20


class OutcomeTally:
    """Outcomes of all records, and the last that did not decode. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outcomes = Outcomes()
        self._bad: deque[RecordError] = deque(maxlen=_MAX_ERRORS)

    def count(self, outcomes: Outcomes, errors: Sequence[RecordError]) -> None:
        """Count a batch once its rows are added."""
        with self._lock:
            self._outcomes += outcomes
            self._bad.extend(errors)

    def totals(self) -> tuple[Outcomes, tuple[RecordError, ...]]:
        with self._lock:
            return self._outcomes, tuple(self._bad)
