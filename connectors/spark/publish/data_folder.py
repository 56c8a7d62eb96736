"""Where the tasks of a publish write a table's data files, and through which file system of Arrow's.

What Java's FileIO does that Arrow's file systems do not (encryption, ACLs, tags, keys of a provider's own) is left to
Iceberg's Spark writer: only properties that change nothing of what is written, or that both obey, are known here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyarrow.fs import AwsStandardS3RetryStrategy, FileSystem, LocalFileSystem
from pyspark.sql import SparkSession

from connectors.store.object_store import UNSUMMED, is_object_store
from planner.tiering.write_plan import SparkWriter

#: Files that a task has open at once: in a file system, and in a store, for which each holds a part of 10 MiB in memory.
_OPEN_LOCAL, _OPEN_STORED = 64, 16
#: Of one request to a store. Arrow's own are 3; a store that says to slow down does so for seconds.
_ATTEMPTS = 8
_ICEBERG_IO = frozenset(
    f"org.apache.iceberg.{name}"
    for name in ("aws.s3.S3FileIO", "hadoop.HadoopFileIO", "io.ResolvingFileIO")
)
_KEYS = ("access-key-id", "secret-access-key", "session-token", "region")
_S3_KEYS = (
    *(
        "endpoint",
        "session-token-expires-at-ms",
        "path-style-access",
        "force-virtual-addressing",
    ),
    *("connect-timeout", "request-timeout", "cabundle", "remote-signing-enabled"),
)
#: Of Iceberg's "S3FileIOProperties" and "AwsClientProperties": who asks, and where. Arrow's side has them from pyiceberg.
_SAME = frozenset(
    [*(f"s3.{key}" for key in (*_KEYS, *_S3_KEYS)), *(f"client.{key}" for key in _KEYS)]
)
#: How Java's client uploads, retries and renews keys: irrelevant to a task of half a minute.
_JAVAS = (
    "s3.multipart.",
    "s3.staging-dir",
    "s3.retry.",
    "s3.preload-client-enabled",
    "s3.delete.",
    "client.refresh-credentials-",
)
_WATCHED = ("s3.", "client.", "encryption.")


@dataclass(frozen=True, slots=True)
class TableFolder:
    """Where a table's data files go: ``location`` as Iceberg names it, ``path`` as the file system does.

    Pickled to executors, which connect when they write: ``connect`` is called there.
    """

    location: str
    path: str
    connect: Callable[[], FileSystem]
    max_open_files: int = _OPEN_LOCAL


@dataclass(frozen=True, slots=True)
class StoreConnection:
    """Makes Arrow's file system of a store anew: ``build`` and ``options`` are what it pickles to."""

    build: Callable[[Mapping[str, Any]], FileSystem]
    options: Mapping[str, Any]

    @classmethod
    def to(cls, files: FileSystem) -> StoreConnection:
        # The one public way to all its options. It is not made here: who unpickles must set the environment before.
        build, (options,) = files.__reduce__()
        return cls(build, options)

    def __call__(self) -> FileSystem:
        if self.options.get("endpoint_override"):
            for variable in UNSUMMED:
                os.environ.setdefault(variable, "when_required")
        retries = AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS)
        # A small file is one request with delayed opening; else each is uploaded in parts.
        own = {"allow_delayed_open": True, "retry_strategy": retries}
        return self.build({**self.options, **own})


def data_folder(
    session: SparkSession, table: Any, store: Callable[[str], FileSystem | None]
) -> TableFolder | SparkWriter:
    """Return where a Java table's unpartitioned files go, under ``write.data.path`` and such, or why tasks cannot write there.

    ``store`` returns Arrow's file system for a location in an object store, with the keys of the table's catalog.
    """
    io = table.io()
    if io.getClass().getName() not in _ICEBERG_IO:
        return SparkWriter("files of a FileIO that is not Iceberg's own")
    for key in _properties(io):
        if key.startswith(_WATCHED) and key not in _SAME and not key.startswith(_JAVAS):
            return SparkWriter(f"property {key} of the catalog")
    location = str(table.locationProvider().newDataLocation("x")).removesuffix("/x")
    if is_object_store(location):
        files = store(location)
        if files is None:
            return SparkWriter("files in an object store that Arrow has no keys for")
        path = location.partition("://")[2]
        return TableFolder(location, path, StoreConnection.to(files), _OPEN_STORED)
    if location.startswith("/") and _default_scheme(session) != "file":
        return SparkWriter("files in another kind of store")
    for prefix in ("file://", "file:", ""):
        path = location.removeprefix(prefix)
        if path.startswith("/") and location.startswith(prefix):
            return TableFolder(location, path, LocalFileSystem)
    return SparkWriter("files in another kind of store")


def _properties(io: Any) -> list[str]:
    try:
        return [str(key) for key in io.properties()]
    except Py4JError:
        # One that keeps none throws UnsupportedOperationException.
        return []


def _default_scheme(session: SparkSession) -> str:
    """Return where Hadoop looks for a path without a scheme."""
    context: Any = session.sparkContext._jsc
    return str(context.hadoopConfiguration().get("fs.defaultFS", "file:///")).partition(":")[0]
