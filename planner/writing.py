"""Overrides or refuses table properties that would make the tierer's files unreadable. Pure.

Anybody who may alter the table sets its properties, and Iceberg's writer obeys them. Properties of the layout stay;
those that make files unreadable are overridden, or refused before anything is written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from planner.binding import bad_property
from planner.errors import UnsupportedFile
from planner.names import LEADING_COLUMNS, TableName

#: Parquet codecs that Spark writes and DuckDB reads. Not ``lz4``: that is Hadoop's own framing of it.
_CODECS = frozenset({"uncompressed", "snappy", "gzip", "zstd", "lz4_raw"})
_DEFAULT_CODEC = "zstd"
_ENCRYPTION_KEY = "encryption.key-id"
_METRICS = "write.metadata.metrics."
#: Properties that Iceberg's writer and commits read as numbers, and those that must be above 0.
_NUMBER = re.compile(
    r"write\.parquet\..*-(?:bytes|limit|count|level)|commit\..*-(?:retries|ms|bytes|merge)"
    r"|write\.metadata\.previous-versions-max"
)
_SIZE = re.compile(r"write\.parquet\..*-(?:bytes|limit|count)")
_WHOLE = re.compile(r"-?[0-9]{1,18}")


def write_options(table: TableName, properties: Mapping[str, str]) -> dict[str, str]:
    """Return the options of Iceberg's Spark writer that a table's properties must not decide.

    Raises:
        UnsupportedFile: the table asks for encrypted files.
        BadBinding: a property that the writer reads as a number is not one.
    """
    if properties.get(_ENCRYPTION_KEY):
        raise UnsupportedFile(
            f"{table}: property {_ENCRYPTION_KEY} asks for encrypted files, which Thermocline neither writes nor reads; "
            f"unset it, and the table is tiered again.",
            table=str(table),
            property=_ENCRYPTION_KEY,
        )
    for key, text in properties.items():
        if _NUMBER.fullmatch(key) and not _is_number(key, text):
            above = " above 0" if _SIZE.fullmatch(key) else ""
            what = f"property {key} is {text!r}; it must be a whole number{above}."
            raise bad_property(table, key, what)
    codec = properties.get("write.parquet.compression-codec", _DEFAULT_CODEC).lower()
    return {
        "write-format": "parquet",
        "compression-codec": codec if codec in _CODECS else _DEFAULT_CODEC,
    }


def leading_metrics() -> dict[str, str]:
    """Return the properties that make Iceberg write whole bounds of the leading columns, and of no other.

    The resolver, pruning and ``verify`` use these bounds; without them, each has to read the columns.
    """
    columns = {f"{_METRICS}column.{name}": "full" for name in LEADING_COLUMNS}
    return {f"{_METRICS}default": "none", **columns}


def _is_number(key: str, text: str) -> bool:
    return _WHOLE.fullmatch(text) is not None and (
        int(text) > 0 or _SIZE.fullmatch(key) is None
    )
