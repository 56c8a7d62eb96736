"""The files under deploy, and how they are checked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

DEPLOY = Path(__file__).parents[2] / "deploy"
Check = Callable[..., Any]


class Refused(Exception):
    """What the tool says of a file that is wrong."""
