"""What a check found: well, doubtful or broken, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from planner.errors import FederationError

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. ``fix`` is empty exactly where the state is ok."""

    check: str
    state: State
    what: str
    fix: str = ""

    def __post_init__(self) -> None:
        if (self.state == "ok") == bool(self.fix):
            raise ValueError("a finding has a fix exactly when it is not ok")


Findings = Iterator[Finding]


def ok(check: str, what: str) -> Finding:
    return Finding(check, "ok", what)


def warn(check: str, what: str, fix: str) -> Finding:
    return Finding(check, "warn", what, fix)


def fail(check: str, what: str, fix: str) -> Finding:
    return Finding(check, "fail", what, fix)


def refused(check: str, error: FederationError, fix: str = "", *, end: str = ". ") -> Finding:
    """Report an error; what to do is ``fix``, or else what its message says after the last ``end``."""
    message = error.message.rstrip(".")
    if fix:
        return fail(check, message, fix)
    what, _, fix = message.rpartition(end)
    if what:
        return fail(check, what, fix)
    return fail(check, fix, f"see docs/errors.md: {type(error).__name__}")
