"""Whether output may be coloured: only on a terminal, never where NO_COLOR is set (no-color.org)."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def coloured(stream: TextIO | None = None) -> bool:
    """Whether ``stream`` (standard output) takes colours."""
    target = stream or sys.stdout
    return (
        target.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )
