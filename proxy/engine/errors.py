"""DuckDB's errors as planner errors, in words a client may read: no paths, no internal names."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import duckdb

from connectors.store.errors import cause
from planner.errors import (
    BadConfig,
    BadStatement,
    Cancelled,
    ColdStoreUnavailable,
    FederationError,
    InternalError,
    LimitExceeded,
    SnapshotExpired,
    UnsupportedFile,
    UnsupportedStatement,
    in_two_partitions,
)
from planner.names import TableName
from proxy.engine.macros import IN_TWO_PARTITIONS, REFUSED

#: Tables that an error names at most.
_MAX_LISTED = 5
#: By the first words of DuckDB's message, which also survive where Arrow wraps the error of a stream.
_KINDS: Mapping[str, type[FederationError]] = {
    **dict.fromkeys(
        (
            *(
                "Parser Error",
                "Syntax Error",
                "Binder Error",
                "Catalog Error",
                "Conversion Error",
            ),
            *(
                "Invalid Input Error",
                "Invalid Error",
                "Invalid type Error",
                "Mismatch Type Error",
            ),
            *("Out of Range Error", "Constraint Error", "Expression Error"),
            *("Parameter Not Resolved Error", "Parameter Not Allowed Error"),
        ),
        BadStatement,
    ),
    **dict.fromkeys(("Not implemented Error", "Permission Error"), UnsupportedStatement),
    "INTERRUPT Error": Cancelled,
}
_STORAGE = ("IO Error", "HTTP Error", "Connection Error", "Network Error", "Dependency Error")
_MISSING = re.compile(
    r"No such file|No files found|does not exist|404|NoSuchKey", re.IGNORECASE
)
_DAMAGED = re.compile(r"/[^\s'/]+\.(parquet|avro|json)'", re.IGNORECASE)
#: Arrow's own words, of a type that it does not take over from the engine.
_DEEP = "Recursion level in ArrowSchema"
#: DuckDB 1.5 counts aggregates that are alike once, from 20 values on.
_PIVOT = "INTERNAL Error: Pivot aggregate mismatch"
_CODEC = "Unsupported compression codec"
#: What DuckDB says of a text in words of its own source (1.5.5), by the message's beginning, and what a caller can do.
_SENTENCES: Mapping[str, str] = {
    "NameListToString": "a name of a table could not be read; write its namespace in double quotes, as in "
    'catalog."level.level".table.',
    "Qualified column name must have": "a column of EXCLUDE, REPLACE and RENAME has a catalog, a schema and a table "
    "before it at most; write a namespace of several levels as one name in double quotes.",
    "TransformFuncCall": "a function's name has a catalog and a schema before it at most.",
    "ROWS FROM()": "ROWS FROM is not supported; name its functions in FROM.",
    "Custom escape in SIMILAR TO": "SIMILAR TO takes no ESCAPE; use regexp_full_match, whose escape is the "
    "backslash.",
    "Unimplemented order by type": "ORDER BY takes no USING; write ASC or DESC.",
}
#: Words of DuckDB's source in what it has not implemented: names of functions, types and classes.
_SOURCE = re.compile(r"(?i:unimplemented|not.implemented)|[a-z](?!Zone\b)[A-Z]|::")
_NAMES_IN_QUOTES = re.compile(r"\"[^\"]*\"|'[^']*'")
#: A path or address: at least two levels, from the root or after a scheme.
_PATH = re.compile(
    r"(?:(?<![a-z0-9+.-])[a-z][a-z0-9+.-]{0,30}:/{0,2})?(?:/[^\s/'\":,;()]+){2,}/?",
    re.IGNORECASE,
)
_MAX_LENGTH = 500
#: A message quotes what the caller sent, up to a megabyte: no pattern reads more of it than this.
_MAX_READ = 4_000


def translate(error: BaseException) -> FederationError:
    """Return the planner error for what DuckDB, or Arrow on its behalf, raised."""
    if isinstance(error, FederationError):
        return error
    # A message that quotes part of a character is not text to Python.
    torn = error.object if isinstance(error, UnicodeDecodeError) else None
    text = (str(error) if torn is None else torn.decode(errors="replace"))[:_MAX_READ]
    if not text and isinstance(error, duckdb.DataError | duckdb.InvalidInputException):
        # Python 3.11.2 makes no UnicodeDecodeError of it: the class alone is left.
        return BadStatement(
            "a value cannot be converted as the statement says; the engine's message quotes part of a character."
        )
    if REFUSED in text:
        reason = text.split(REFUSED, 1)[1].split("\n", 1)[0]
        return UnsupportedStatement(f"{reason}.")
    if IN_TWO_PARTITIONS in text:
        rest = text.split(IN_TWO_PARTITIONS, 1)[1].split("\n", 1)[0]
        table, one, _, other = rest.rsplit(" ", 3)
        what = f"a key has a row in partition {one} and a change in partition {other}, so which is the newer"
        return in_two_partitions(table, what)
    if text.startswith("Out of Memory Error"):
        return LimitExceeded(
            "the statement needs more memory than the engine may use; narrow it, or raise memory_limit."
        )
    if text.startswith(_STORAGE):
        if _MISSING.search(text):
            return SnapshotExpired(
                "a file of the pinned snapshot is gone; run the statement again."
            )
        store_reason = cause(error)
        why = f": {store_reason}" if store_reason else "; try again"
        return ColdStoreUnavailable(f"a file of the table could not be read{why}.")
    if text.startswith("Invalid Input Error") and _CODEC in text:
        return UnsupportedFile(
            "a Parquet file of the table is compressed with a codec that is not read (Hadoop's LZ4, or LZO); set "
            "write.parquet.compression-codec to zstd and rewrite the data files."
        )
    if text.startswith("Invalid Input Error") and _DAMAGED.search(text):
        return ColdStoreUnavailable("a file of the table is damaged.")
    if text.startswith("Permission Error: Cannot access"):
        return BadConfig(
            "a file of the table lies outside the storage roots of this server; add its root, and restart."
        )
    if text.startswith(_DEEP):
        return UnsupportedStatement(
            "a column of the answer is nested deeper than the 64 levels that Arrow carries; unnest it."
        )
    if text.startswith(_PIVOT):
        return UnsupportedStatement(
            "a PIVOT of more than 20 columns takes each aggregate once; leave out the one that is repeated."
        )
    for prefix, kind in _KINDS.items():
        if text.startswith(prefix):
            reason = text.removeprefix(prefix).lstrip(": ")
            return kind(
                unsupported(reason) if kind is UnsupportedStatement else readable(reason)
            )
    return InternalError("the engine failed; the server's log has the details.")


def unsupported(text: str) -> str:
    """Return ``readable``, or a sentence of ours where DuckDB names what its source has not implemented."""
    sentence = readable(text)
    if _SOURCE.search(_NAMES_IN_QUOTES.sub("", sentence)):
        return "the engine has no way to run a part of this statement; write it another way."
    return sentence


def readable(text: str) -> str:
    """Return the first line of a message as a sentence, without paths."""
    for beginning, sentence in _SENTENCES.items():
        if text.startswith(beginning):
            return sentence
    line = text[:_MAX_READ].strip().split("\n", 1)[0]
    line = _PATH.sub("<path>", line)[:_MAX_LENGTH].strip()
    # What DuckDB calls a relation that is a WITH clause inside.
    line = line.replace('Values list "', 'Table "')
    return line if line.endswith((".", "!", "?")) else f"{line}."


def with_tables(error: FederationError, names: Collection[TableName]) -> FederationError:
    """Return the error with the table that a statement reads, or those it may be about; as it is where it names one."""
    if not names or error.facts.keys() & {"table", "topic"}:
        return error
    listed = sorted(map(str, names))
    if len(listed) == 1:
        return type(error)(f"{listed[0]}: {error.message}", **error.facts, table=listed[0])
    return type(error)(
        f"one of {', '.join(listed[:_MAX_LISTED])}: {error.message}", **error.facts
    )
