"""All of it."""

from __future__ import annotations

from sqlalchemy.testing.suite import *  # noqa: F403
