"""Whether output may be coloured: only on a terminal, never where NO_COLOR is set (no-color.org)."""

from __future__ import annotations

import os
import sys


def coloured() -> bool:
    """Whether standard output takes colours."""
    return (
        sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )
