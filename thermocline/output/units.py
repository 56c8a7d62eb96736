"""Times and sizes as people read them; colours on a terminal alone, never where NO_COLOR is set (no-color.org)."""

from __future__ import annotations

import os
import sys


def coloured() -> bool:
    """Whether standard output takes colours."""
    refused = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not refused


_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def span_text(seconds: float | None) -> str:
    """Return the two largest units of a span of time; ``?`` where it is not known."""
    if seconds is None:
        return "?"
    if seconds < 10:
        return f"{seconds:.1f}s"
    left = int(seconds)
    parts: list[str] = []
    for name, size in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count}{name}")
    return " ".join(parts[:2])


def size_text(count: float) -> str:
    """Return bytes in a unit that leaves at most four digits."""
    for unit in _SIZES[:-1]:
        if count < 1024:
            return f"{count:.{0 if unit == 'B' or count >= 100 else 1}f} {unit}"
        count /= 1024
    return f"{count:.1f} {_SIZES[-1]}"
