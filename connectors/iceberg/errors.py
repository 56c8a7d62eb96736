"""Errors of pyiceberg, its catalogs and file systems, put into the words of ``planner.errors``.

Vendor messages are never passed on: they hold paths, URLs and at times credentials. They stay readable as
``__cause__`` for the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pydantic
from pyiceberg import exceptions as iceberg
from sqlalchemy.exc import DBAPIError

from connectors.store.errors import cause
from planner.errors import (
    CatalogUnavailable,
    ColdStoreUnavailable,
    FederationError,
    SnapshotExpired,
    UnknownTable,
    UnsupportedFile,
    UnsupportedType,
)
from planner.names import TableName
from planner.seam.cut import ColdSlice, Pin, PinReference

_MISSING = (iceberg.NoSuchTableError, iceberg.NoSuchNamespaceError)
_REFUSED_CREDENTIALS = (
    iceberg.UnauthorizedError,
    iceberg.ForbiddenError,
    iceberg.AuthorizationExpiredError,
    iceberg.OAuthError,
    iceberg.SignError,
)
#: PostgreSQL's words while connecting, where it gives no code yet, and the codes of a missing right or sign-in.
_REFUSED_BY_DATABASE = (
    "password authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    'FATAL:  role "',
)
_REFUSED_CODES = frozenset({"28000", "28P01", "42501"})
_NO_DATABASE = re.compile(r'FATAL:  database "[^"]*" does not exist')
#: Client libraries of catalogs, by name: each is installed only with the catalog that needs it.
_CATALOG_CLIENTS = frozenset(
    (
        *("sqlalchemy", "sqlite3", "psycopg2", "requests", "urllib3", "thrift", "google"),
        *("botocore", "boto3"),
    )
)
_MAX_READ = 4_000
_UNSUPPORTED_TYPE = re.compile(
    r"Unsupported field type: '([^']+)'|Could not parse (\S+) into a Geo"
)


@contextmanager
def catalog_errors(catalog: str, table: TableName | None = None) -> Iterator[None]:
    """Translate errors of a catalog call, and of the metadata file it makes pyiceberg read.

    Raises:
        UnknownTable: the catalog has no such table or namespace.
        CatalogUnavailable: the catalog does not answer, or refuses the credentials.
        ColdStoreUnavailable: the metadata file cannot be read.
        UnsupportedType: the schema holds a type pyiceberg does not know.
    """
    try:
        yield
    except FederationError:
        raise
    except Exception as error:
        translated = _of_catalog(error, catalog, table)
        if translated is None:
            raise
        raise translated from error


class DamagedFile(Exception):
    """A file exists and is damaged. ``kind`` names its kind, in the plural."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class UnreadableFiles(Exception):
    """Files of a snapshot are whole, and of a kind that is not read. The text goes on where a sentence named them."""


_FORBIDDEN = "may not be read by this process: it lies outside server.storage_roots, or the store's rights forbid it."


@contextmanager
def decoding(kind: str) -> Iterator[None]:
    """Turn any error of a decoder on bad bytes into DamagedFile, of that ``kind``."""
    try:
        yield
    except (OSError, FederationError, DamagedFile, UnreadableFiles):
        raise
    except Exception as error:
        raise DamagedFile(kind) from error


@contextmanager
def file_errors(what: str, *, gone: type[FederationError], **facts: object) -> Iterator[None]:
    """Translate errors of reading a manifest or data file; ``gone`` is raised when it is not there.

    Raises:
        ColdStoreUnavailable: the store does not answer, or the file is damaged. Retryable.
        UnsupportedFile: files are of a format, codec or encryption that is not read.
    """
    try:
        yield
    except FederationError:
        raise
    except UnreadableFiles as error:
        raise UnsupportedFile(f"{what} {error}", **facts) from error
    except DamagedFile as error:
        raise ColdStoreUnavailable(
            f"{what}: one of its {error.kind} is damaged; roll the table back, or restore the file.",
            **facts,
        ) from error
    except FileNotFoundError as error:
        why = "is not in the store; look whether files of the table were removed."
        if gone is SnapshotExpired:
            why = "is gone: it was expired or removed; plan the statement again."
        raise gone(f"{what} {why}", **facts) from error
    except PermissionError as error:
        raise ColdStoreUnavailable(f"{what} {_FORBIDDEN}", **facts) from error
    except (OSError, EOFError) as error:
        raise ColdStoreUnavailable(f"{what} {_unread(error)}", **facts) from error


def pinned_errors(
    pinned: Pin | PinReference | ColdSlice, what: str
) -> AbstractContextManager[None]:
    """As ``file_errors``, of a file that a pinned snapshot needs: SnapshotExpired where it is gone."""
    table = str(pinned.table)
    facts = {"table": table, "snapshot_id": pinned.snapshot_id}
    return file_errors(f"{table}: {what}", gone=SnapshotExpired, **facts)


def _of_catalog(
    error: Exception, catalog: str, table: TableName | None
) -> FederationError | None:
    where = str(table) if table is not None else f"catalog {catalog}"
    facts = {"catalog": catalog} if table is None else {"catalog": catalog, "table": str(table)}
    if isinstance(error, _MISSING):
        return UnknownTable(f"{where}: there is no such table.", **facts)
    why = _unavailable(error)
    if why is not None:
        return CatalogUnavailable(f"{where}: {why}", **facts)
    if isinstance(error, pydantic.ValidationError | iceberg.ValidationError):
        match = _UNSUPPORTED_TYPE.search(str(error))
        if match is not None:
            kind = match[1] or match[2]
            return UnsupportedType(
                f"{where}: a column holds {kind}, which this program cannot read; drop the column or leave "
                f"the table out.",
                **facts,
                type=kind,
            )
        return ColdStoreUnavailable(
            f"{where}: its metadata file is damaged or of a format version this program does not read.",
            **facts,
        )
    if isinstance(error, FileNotFoundError):
        return ColdStoreUnavailable(
            f"{where}: the metadata file the catalog points at is not in the store; look whether files of the "
            f"table, or its bucket, were removed.",
            **facts,
        )
    if isinstance(error, PermissionError):
        return ColdStoreUnavailable(f"{where}: its metadata file {_FORBIDDEN}", **facts)
    client = type(error).__module__.partition(".")[0]
    if client in _CATALOG_CLIENTS or isinstance(
        error, iceberg.RESTError | ConnectionError | TimeoutError
    ):
        named = "" if table is None else f"{table}: "
        return CatalogUnavailable(
            f"{named}catalog {catalog} does not answer; try again.", **facts
        )
    if isinstance(error, OSError):
        return ColdStoreUnavailable(f"{where}: its metadata file {_unread(error)}", **facts)
    return None


def _unavailable(error: Exception) -> str | None:
    """Return why a catalog does not let us in, and what to do."""
    if isinstance(error, _REFUSED_CREDENTIALS):
        return "the catalog refuses our credentials; check token, or credential, scope and oauth2-server-uri."
    if isinstance(error, DBAPIError):
        text = str(error.orig)[:_MAX_READ]
        if _NO_DATABASE.search(text):
            return "the catalog's server has no such database; check its uri."
        refused = any(words in text for words in _REFUSED_BY_DATABASE)
        if refused or getattr(error.orig, "pgcode", None) in _REFUSED_CODES:
            return (
                "the catalog's database refuses our login or a right; check user and password in its uri, and what that "
                "user may do."
            )
    if (type(error).__module__, type(error).__name__) == ("requests.exceptions", "SSLError"):
        return (
            "TLS with the catalog fails; set ssl.cabundle to the certificate of the authority that signed its own, and "
            "reach it by the name in its certificate."
        )
    return None


def _unread(error: Exception) -> str:
    reason = cause(error)
    return (
        f"could not be read: {reason}." if reason else "could not be read just now; try again."
    )
