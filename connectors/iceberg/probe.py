"""Tries a catalog and its store out: what a person who sets one up wants to know before anything depends on it."""

from __future__ import annotations

import datetime as dt
import ssl
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from pyarrow import fs
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError

from connectors.iceberg.file_io import with_file_io
from connectors.store.errors import cause, is_denied
from planner.errors import ColdStoreUnavailable

PROBE_PREFIX = ".thermocline-probe-"
_DATE_TIMEOUT_S = 5.0
_CONTENT = b"thermocline doctor"
#: Advice where the store's own error says nothing useful.
_LOOK = "look at the store's credentials, and at the rights of this user there"


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """What a store lets this process do. ``ahead_s``: its clock against this machine's; None where it does not say."""

    may_write: bool
    ahead_s: float | None = None


def probe_store(properties: Mapping[str, str], location: str) -> StoreFacts:
    """Write, read and remove a small file below ``location``; where only writing is denied, ask for a file instead.

    Raises ColdStoreUnavailable: files can neither be written nor read. The message ends with what to do, after "; ".
    """
    path = f"{location.rstrip('/')}/{PROBE_PREFIX}{uuid.uuid4().hex}"
    io = load_file_io(with_file_io(properties), location)
    before = time.time()
    try:
        with io.new_output(path).create(overwrite=True) as file:
            file.write(_CONTENT)
    except OSError as error:
        if not is_denied(error):
            raise _failure("written", error) from error
        # The file does not exist: with read rights the answer is "not found", without them another refusal.
        with _failing("read"):
            io.new_input(path).exists()
        return StoreFacts(may_write=False)
    try:
        with _failing("read"), io.new_input(path).open() as file:
            if file.read() != _CONTENT:
                why = "the store gives back other bytes than were written"
                raise ColdStoreUnavailable(f"{why}; {_LOOK}.")
        return StoreFacts(may_write=True, ahead_s=_ahead(io, path, before))
    finally:
        with _failing("removed"):
            io.delete(path)


def catalog_skew(properties: Mapping[str, str]) -> float | None:
    """How far an HTTP catalog's clock is ahead of this machine's, in seconds; None where it does not say."""
    uri = properties.get("uri", "")
    if not uri.startswith(("http://", "https://")):
        return None
    began = time.time()
    try:
        context = ssl.create_default_context(cafile=properties.get("ssl.cabundle"))
        request = Request(uri, method="HEAD")  # noqa: S310 - as configured
        with urlopen(request, timeout=_DATE_TIMEOUT_S, context=context) as answer:  # noqa: S310
            date = answer.headers.get("Date")
    except HTTPError as error:
        # Any answer has the server's clock.
        with closing(error):
            date = error.headers.get("Date")
    except OSError:
        return None
    if not date:
        return None
    return parsedate_to_datetime(date).timestamp() - (began + time.time()) / 2


def may_commit(properties: Mapping[str, str]) -> bool | None:
    """Whether PostgreSQL lets this user change which metadata a table has; None of others: only a commit would tell."""
    uri = properties.get("uri", "")
    if urlsplit(uri).scheme.partition("+")[0] not in ("postgresql", "postgres"):
        return None
    engine = create_engine(uri)
    try:
        with engine.connect() as connection:
            asks = text("SELECT has_table_privilege('iceberg_tables', 'UPDATE')")
            return bool(connection.execute(asks).scalar())
    except DBAPIError:
        return None
    finally:
        engine.dispose()


@contextmanager
def _failing(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _failure(what, error) from error


def _failure(what: str, error: OSError) -> ColdStoreUnavailable:
    reason = cause(error) or f"{type(error).__name__}; {_LOOK}"
    return ColdStoreUnavailable(f"a file cannot be {what} there: {reason}.")


def _ahead(io: FileIO, path: str, before: float) -> float | None:
    """The file's time of change against the moment it was written; stores round to a second."""
    if not isinstance(io, PyArrowFileIO):
        return None
    scheme, netloc, inner = io.parse_location(path)
    info = io.fs_by_scheme(scheme, netloc).get_file_info(inner)
    if info.type is not fs.FileType.File or info.mtime is None:
        return None
    mtime: dt.datetime = info.mtime
    return mtime.timestamp() - (before + time.time()) / 2
