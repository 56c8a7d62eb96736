"""Translates errors of Spark, Iceberg's Java side and the executors to ``planner.errors``.

An executor's error reaches the driver only as text inside Spark's own, so ``pack`` puts the typed error there
as one line of JSON, and ``unpack`` finds it again.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from connectors.store.errors import cause
from planner import errors
from planner.errors import (
    BadBinding,
    BadConfig,
    BadStatement,
    CatalogUnavailable,
    ColdStoreUnavailable,
    FederationError,
    InternalError,
    LogUnavailable,
    Unavailable,
    UnknownTable,
)
from planner.names import TableName

_PACKED = re.compile(r"thermocline-error (\{.*\})")
_BY_NAME: dict[str, type[FederationError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, FederationError)
}
_ICEBERG = "org.apache.iceberg.exceptions."
#: Where the errors of Amazon's library for S3 are.
_STORE = "software.amazon.awssdk.services.s3.model."

#: Errors before a task's first row: a number, a class or a path in a table property.
_REFUSED_BY_WRITER = re.compile(
    r"most recent failure: [^\n]*\): java\.lang\.(?:IllegalArgument|NumberFormat)Exception"
)

#: Iceberg writes the values of partitions into manifests, in the type of their field.
_TOO_LARGE = re.compile(r"Cannot write value as decimal\((\d+), ?(\d+)\), too large")
#: What Hadoop and Java say where a file system refuses a folder's name; and the folder of a partition.
_REFUSED_NAME = ("Mkdirs failed to create", "(File name too long)")
_LONG_FOLDER = re.compile(r"/([^/\s=]{1,200}=[^/\s]{240,})")
#: Its writer closes a partition's file when the next partition begins. Fields as the spec prints them: ``1000: d: identity(4)``.
_APART = re.compile(
    r"Incoming records violate the writer assumption.*?in spec \[(.*?)\n\]", re.DOTALL
)
_FIELD = re.compile(r"^\s*\d+: (.+): \w+(?:\[\d+\])?\(\d+\)$", re.MULTILINE)

#: A worker that cannot import what our code needs, or is of another version than the driver's.
_NOT_INSTALLED = re.compile(r"(?:ModuleNotFoundError|ImportError): No module named '([\w.]+)'")
_OTHER_PYTHON = "PYTHON_VERSION_MISMATCH"

#: By the Java class of any exception in the chain of causes, outermost first.
_KINDS: dict[str, type[FederationError]] = {
    f"{package}{name}": kind
    for kind, package, names in (
        (UnknownTable, _ICEBERG, "NoSuchTable NoSuchNamespace NoSuchIcebergTable"),
        (
            UnknownTable,
            "org.apache.spark.sql.catalyst.analysis.",
            "NoSuchTable NoSuchNamespace",
        ),
        (ColdStoreUnavailable, _ICEBERG, "NotFound RuntimeIO"),
        (ColdStoreUnavailable, "java.io.", "UncheckedIO IO"),
        (
            CatalogUnavailable,
            _ICEBERG,
            "CommitFailed CommitStateUnknown REST ServiceUnavailable",
        ),
        (CatalogUnavailable, _ICEBERG, "ServiceFailure NotAuthorized Forbidden"),
        (CatalogUnavailable, "org.apache.iceberg.jdbc.", "UncheckedSQL"),
        (CatalogUnavailable, "org.apache.iceberg.hive.", "RuntimeMeta"),
    )
    for name in (f"{word}Exception" for word in names.split())
}
#: More than the kind tells, by the class of any exception in the chain.
_REASONS = {
    _ICEBERG
    + "NotAuthorizedException": "the catalog refuses the tierer's credentials; check token, or credential, scope "
    "and oauth2-server-uri.",
    "javax.net.ssl.SSLHandshakeException": "TLS with the catalog or the store fails; set ssl.cabundle or "
    "s3.cabundle to the certificate of the authority that signed its own, and reach it by the name in its certificate.",
}
_SENTENCES: dict[type[FederationError], str] = {
    UnknownTable: "the catalog has no such table.",
    ColdStoreUnavailable: "a metadata or data file could not be read or written; try again.",
    CatalogUnavailable: "the catalog did not take the commit or did not answer; try again.",
    LogUnavailable: "an executor was lost while it read the log; try again.",
    InternalError: "tiering failed inside Spark; its log has the rest.",
}

_MAX_PRECISION = 38
_NO_RUNTIME = "Cannot find catalog plugin class"
_log = logging.getLogger(__name__)
_MAX_LOGGED = 4_000


class SparkLost(Unavailable):
    """The JVM does not answer. ``session.check_alive`` tells whether it has ended."""


def pack(error: FederationError) -> RuntimeError:
    """Return an error whose text carries ``error`` from an executor to the driver."""
    kind = next(each.__name__ for each in type(error).__mro__ if each.__name__ in _BY_NAME)
    document = {"kind": kind, "message": error.message, "facts": error.facts}
    return RuntimeError(f"thermocline-error {json.dumps(document, default=str)}")


@contextmanager
def packing() -> Iterator[None]:
    """Raise errors of ours as ``pack`` has them."""
    try:
        yield
    except FederationError as error:
        raise pack(error) from error


def unpack(text: str) -> FederationError | None:
    """Return the packed error inside ``text``, if any."""
    match = _PACKED.search(text)
    if match is None:
        return None
    document = json.loads(match[1])
    kind = _BY_NAME.get(document["kind"], InternalError)
    return kind(document["message"], **document["facts"])


@contextmanager
def statement_errors() -> Iterator[None]:
    """Translate what Spark raises about a statement of a user's.

    Raises:
        FederationError: of ours, packed within Spark's.
        BadStatement: Spark refuses it, with the first line of its words.
        InternalError: all else; the log has it.
    """
    try:
        yield
    except (Py4JError, PySparkException) as error:
        packed = unpack(str(error))
        if packed is not None:
            raise packed from error
        if lacking := _lacking(str(error)):
            raise BadConfig(lacking) from error
        if isinstance(error, PySparkException) and error.getCondition() is not None:
            words = str(error).strip().partition("\n")[0]
            raise BadStatement(f"Spark: {words.rstrip(';')}") from error
        _log.error("%s", str(error)[:_MAX_LOGGED])
        raise InternalError(
            "the statement failed inside Spark; its log has the rest."
        ) from error


@contextmanager
def java_errors(table: TableName) -> Iterator[None]:
    """Translate what Spark, Iceberg or the gateway raise about ``table``."""
    try:
        yield
    except (Py4JError, PySparkException, OSError) as error:
        raise translated(table, error) from error


def translated(table: TableName, error: Exception) -> FederationError:
    if isinstance(error, Py4JNetworkError | OSError):
        # Files are read on Java's side: the one socket here is the gateway's.
        return SparkLost(f"{table}: Spark does not answer; try again.", table=str(table))
    packed = unpack(str(error))
    if packed is not None:
        return packed
    if lacking := _lacking(str(error)):
        return BadConfig(f"{table}: {lacking}", table=str(table), key="tier.environment")
    if refused := _refused(str(error)):
        refusal_kind, words = refused
        return refusal_kind(f"{table}: {words}", table=str(table))
    classes = java_classes(error)
    kind = next((_KINDS[name] for name in classes if name in _KINDS), None)
    if kind is None:
        # The worker's own traceback names no planner error: a lost executor or a bug.
        kind = LogUnavailable if "ExecutorLostFailure" in str(error) else InternalError
    if kind is InternalError:
        _log.error("%s: %s", table, str(error)[:_MAX_LOGGED])
    reason = next((_REASONS[name] for name in classes if name in _REASONS), _SENTENCES[kind])
    return kind(f"{table}: {reason}", table=str(table))


def _lacking(text: str) -> str | None:
    """What executors' Python lacks to run our code, and what to do; None: nothing."""
    missing = _NOT_INSTALLED.search(text)
    if missing is None and _OTHER_PYTHON not in text:
        return None
    what = (
        f"has no module {missing[1]}" if missing else "is of another version than the driver's"
    )
    return (
        f"the executors' Python {what}; install it there, or have the job bring a packed environment (tier.environment, "
        f"or spark.archives in a session of your own)."
    )


def _refused(text: str) -> tuple[type[FederationError], str] | None:
    """What the words of an error alone tell, and what to do; None: nothing."""
    if _NO_RUNTIME in text:
        return BadConfig, (
            "this Spark session has no Iceberg; start it with the package "
            "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13."
        )
    if _REFUSED_BY_WRITER.search(text):
        return BadBinding, (
            "Iceberg's writer refuses a value of the table's write.* properties; Spark's log says which. Set it right, or "
            "unset it."
        )
    if any(words in text for words in _REFUSED_NAME) and (folder := _LONG_FOLDER.search(text)):
        return BadBinding, too_long(folder[1])
    if large := _TOO_LARGE.search(text):
        precision, scale = int(large[1]), large[2]
        widen = (
            ""
            if precision == _MAX_PRECISION
            else f"widen the column (ALTER TABLE ... ALTER COLUMN ... TYPE decimal({precision + 1},{scale})), or "
        )
        return BadBinding, (
            f"a value at the end of its type decimal({precision},{scale}) has a truncation that is not of that type, so "
            f"there is no partition for its row; {widen}drop the partition field (ALTER TABLE ... DROP PARTITION FIELD "
            f"...). Then the table is tiered again."
        )
    if apart := _APART.search(text):
        names = ", ".join(_FIELD.findall(apart[1]))
        return InternalError, (
            f"Iceberg's writer got the rows of a partition ({names}) apart, as it will again; report it, and drop the "
            f"partition field whose values Spark sorts in another way (ALTER TABLE ... DROP PARTITION FIELD ...). Then "
            f"the table is tiered again."
        )
    start = text.find(_STORE)
    # An executor's error comes as text.
    if start >= 0 and (refusal := cause(ValueError(text[start:]))):
        sentence = f"a metadata or data file could not be read or written: {refusal}."
        return ColdStoreUnavailable, sentence
    return None


def too_long(folder: str) -> str:
    """Say that a store takes no name as long as that of a partition's folder, ``field=value``."""
    return (
        f"a value of partition field {folder.partition('=')[0]} makes a folder's name of {len(folder)} characters, more than "
        f"the store takes, as it will again; partition by truncate or bucket of the column instead (ALTER TABLE ... REPLACE "
        f"PARTITION FIELD ... WITH truncate(16, ...)). Then the table is tiered again."
    )


def java_classes(error: Exception) -> tuple[str, ...]:
    """Class names of a Java exception and its causes, outermost first; empty when there is none."""
    thrown = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if not isinstance(error, Py4JJavaError | PySparkException):
        return ()
    names: list[str] = []
    while thrown is not None and len(names) < 20:
        names.append(str(thrown.getClass().getName()))
        thrown = thrown.getCause()
    return tuple(names)
