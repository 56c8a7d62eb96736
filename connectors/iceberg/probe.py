"""Tries a catalog and its store out: what a person who sets one up wants to know before anything depends on it."""

from __future__ import annotations

import datetime as dt
import time
import uuid
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from urllib.request import Request, urlopen

from pyarrow import fs
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO

from connectors.iceberg.errors import file_errors
from connectors.iceberg.file_io import with_file_io
from planner.errors import ColdStoreUnavailable

PROBE_PREFIX = ".thermocline-probe-"
_DATE_TIMEOUT_S = 5.0


def probe_store(properties: Mapping[str, str], location: str) -> float | None:
    """Write, read and remove a small file below ``location``, as this process's rights allow.

    Returns how far the store's clock is ahead of this machine's, in seconds; None where it does not say.

    Raises:
        ColdStoreUnavailable: one of the three failed; the message says which.
    """
    path = f"{location.rstrip('/')}/{PROBE_PREFIX}{uuid.uuid4().hex}"
    io = load_file_io(with_file_io(properties), location)
    said = b"thermocline doctor"
    before = time.time()
    with file_errors("the store: a probe file", gone=ColdStoreUnavailable):
        with io.new_output(path).create() as written:
            written.write(said)
        try:
            with io.new_input(path).open() as read:
                if read.read() != said:
                    raise ColdStoreUnavailable(
                        "the store gives back other bytes than were written."
                    )
            return _skew(io, path, before)
        finally:
            io.delete(path)


def catalog_skew(uri: str) -> float | None:
    """How far an HTTP catalog's clock is ahead of this machine's, in seconds; None where it does not say."""
    if not uri.startswith(("http://", "https://")):
        return None
    began = time.time()
    try:
        with urlopen(Request(uri, method="HEAD"), timeout=_DATE_TIMEOUT_S) as answer:  # noqa: S310 - as configured
            date = answer.headers.get("Date")
    except OSError as error:
        date = getattr(error, "headers", {}).get("Date")
    if not date:
        return None
    return parsedate_to_datetime(date).timestamp() - (began + time.time()) / 2


def _skew(io: object, path: str, before: float) -> float | None:
    """The file's time of change against the moment it was written; stores round to a second."""
    if not isinstance(io, PyArrowFileIO):
        return None
    scheme, netloc, inner = io.parse_location(path)
    info = io.fs_by_scheme(scheme, netloc).get_file_info(inner)
    if info.type is not fs.FileType.File or info.mtime is None:
        return None
    mtime: dt.datetime = info.mtime
    return mtime.timestamp() - (before + time.time()) / 2
