"""What of a server may change while it runs: who may call, and what each caller may take."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.flightsql.state.auth import Access
from proxy.flightsql.state.quotas import LimitsOf, UserLimits


def unlimited(user: str | None, groups: frozenset[str]) -> UserLimits:
    """A ``LimitsOf``: only the server's own."""
    return UserLimits()


@dataclass(slots=True)
class ServerPolicy:
    """Read anew by every call; its fields are replaced, never changed."""

    access: Access
    limits_of: LimitsOf = unlimited
