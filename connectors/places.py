"""Locations of files in one form, to compare them: a store goes by several schemes, a folder by several names."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from pathlib import Path

#: Schemes that name one store.
_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "wasbs": "wasb"}


def local_path(location: str) -> Path | None:
    """Return the path of a local file: ``/a``, ``file:/a`` or ``file:///a``. None: it is elsewhere."""
    for prefix in ("file://", "file:"):
        if location.startswith(prefix):
            return Path(location.removeprefix(prefix))
    return None if "://" in location else Path(location)


def place(location: str) -> str:
    """Return a location in one form, to compare: ``/a/b``, or ``s3://bucket/a/b``."""
    path = local_path(location)
    if path is not None:
        plain = posixpath.normpath(str(path))
        # POSIX leaves two slashes at the start their own meaning, which no system here gives them.
        return plain.replace("//", "/", 1) if plain.startswith("//") else plain
    scheme, _, rest = location.partition("://")
    return f"{_SCHEMES.get(scheme.lower(), scheme.lower())}://{posixpath.normpath(rest)}"


def real_place(location: str) -> str:
    """Return as ``place``, links of the disk followed."""
    path = local_path(location)
    return place(location if path is None else str(path.resolve()))


def is_below(path: str, roots: Iterable[str]) -> bool:
    """Both as ``place`` returns them."""
    return any(path == root or path.startswith(f"{root.rstrip('/')}/") for root in roots)
