"""Tests of SQLAlchemy's suite that do not apply, by why: whole classes, or one test of a class."""

from __future__ import annotations

NOT_HERE: dict[str, str] = {}
