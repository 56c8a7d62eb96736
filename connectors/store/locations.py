"""Locations of files in one form, to compare them: a store goes by several schemes, a folder by several names."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable
from pathlib import Path

#: Schemes that name one store.
_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "wasbs": "wasb"}
#: What Python's ``urlsplit`` leaves out of a URL, and before it. So do pyiceberg's readers and writers of files.
_LEFT_OUT = str.maketrans("", "", "\t\r\n")
_BEFORE = "".join(map(chr, range(0x21)))


def plain(location: str) -> str:
    """Return a location as pyiceberg opens it: of a table whose name has a line end, say."""
    if location.startswith("/") or ":" not in location:
        return location
    return location.lstrip(_BEFORE).translate(_LEFT_OUT)


def local_path(location: str) -> Path | None:
    """Return the path of a local file: ``/a``, ``file:/a``, ``file:///a`` or ``FILE://host/a``. None: it is elsewhere."""
    scheme, colon, rest = plain(location).partition(":")
    if colon and scheme.lower() == "file":
        if rest.startswith("//"):
            # What it is for a reader that ignores the host. No table may have one: see ``has_host``.
            rest = "/" + rest[2:].partition("/")[2]
        return Path(rest)
    return None if "://" in location else Path(location)


def has_host(location: str) -> bool:
    """Whether the URL of a local file names a host, ``localhost`` too: pyiceberg 0.12 reads it as a folder of the working
    directory.
    """
    scheme, _, rest = plain(location).partition(":")
    return scheme.lower() == "file" and rest.startswith("//") and not rest.startswith("///")


def canonical(location: str) -> str:
    """Return a location in one form, to compare: ``/a/b``, or ``s3://bucket/a/b``."""
    path = local_path(location)
    if path is not None:
        text = posixpath.normpath(str(path))
        # POSIX leaves two slashes at the start their own meaning, which no system here gives them.
        return text.replace("//", "/", 1) if text.startswith("//") else text
    scheme, _, rest = plain(location).partition("://")
    return f"{_SCHEMES.get(scheme.lower(), scheme.lower())}://{posixpath.normpath(rest)}"


def real_location(location: str) -> str:
    """Return as ``place``, links of the disk followed."""
    path = local_path(location)
    return canonical(location if path is None else os.path.realpath(path))


def is_location(warehouse: str) -> bool:
    """Whether a catalog's warehouse is a location: that of a REST catalog may be a name."""
    return "/" in warehouse


def is_below(path: str, roots: Iterable[str]) -> bool:
    """Both as ``place`` returns them."""
    return any(path == root or path.startswith(f"{root.rstrip('/')}/") for root in roots)
