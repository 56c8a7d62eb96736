"""Local paths of a table's files."""

from __future__ import annotations

from pathlib import Path


def local_path(location: str) -> Path | None:
    """Return the path of a local file: ``/a``, ``file:/a`` or ``file:///a``. None: it is elsewhere."""
    for prefix in ("file://", "file:"):
        if location.startswith(prefix):
            return Path(location.removeprefix(prefix))
    return None if "://" in location else Path(location)
