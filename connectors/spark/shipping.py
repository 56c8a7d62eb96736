"""Ships our code to executors on other machines.

``planner``, ``connectors`` and the client they need go as an archive of sources, always: both sides of the seam must
decode with the same code. Their dependencies (pyarrow, confluent-kafka, msgspec) have native parts, which Python
does not load from an archive: executors have them installed, or the job brings a packed environment.

Readers on their way to executors, which may have another version of ours: compared before anything is unpacked.
"""

from __future__ import annotations

import importlib.util
import pickle
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from connectors.spark.errors import pack
from planner.errors import BadConfig

if TYPE_CHECKING:
    import pyarrow as pa

_ARCHIVE = "thermocline-executors.zip"

PACKAGES = ("planner", "connectors", "thermocline_client")

#: Where Spark unpacks the environment beside each executor, and its interpreter.
UNPACKED = "environment"

PACKED_PYTHON = f"./{UNPACKED}/bin/python"


def ship_sources(context: SparkContext) -> None:
    """Send our packages to every executor of a started application, ahead of what is installed there."""
    # Executors fetch it when their first task starts, so it stays as long as Spark's own files.
    archive = Path(context._temp_dir) / _ARCHIVE
    write_archive(archive)
    context.addPyFile(str(archive))


def is_local(session: SparkSession) -> bool:
    """Whether executors are in this process: what is imported here is there, and so are this machine's disks."""
    return (session.conf.get("spark.master", None) or "").startswith("local")


def ship_to(session: SparkSession) -> None:
    """Send our packages to executors of a user's session on other machines; it may be one of Spark Connect."""
    if is_local(session):
        return
    if hasattr(session, "_jsparkSession"):
        ship_sources(session.sparkContext)
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / _ARCHIVE
        write_archive(archive)
        session.addArtifacts(str(archive), pyfile=True)


def write_archive(file: Path) -> None:
    """Write the sources of our packages, as they are imported here. Equal sources give equal bytes."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            spec = importlib.util.find_spec(package)
            if spec is None or spec.submodule_search_locations is None:
                raise AssertionError(package)
            root = Path(next(iter(spec.submodule_search_locations)))
            for source in sorted(root.rglob("*.py")):
                name = f"{package}/{source.relative_to(root).as_posix()}"
                # A fixed time: the archive's own default is the file's.
                archive.writestr(zipfile.ZipInfo(name), source.read_bytes())


#: Of the whole distribution. Executors may have our sources without what pip says of them.
VERSION = "0.1.0"


class PlannedSource:
    """What executors get of a source whose reader travels beside it: PySpark names it in its own errors."""

    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        return self._name


def sent(reader: Any) -> tuple[Any, tuple[str, bytes]]:
    """Return what ``__reduce__`` returns for a reader that arrives as ``reader``."""
    return arrived, (VERSION, pickle.dumps(reader))


class SentReader:
    """A reader that arrives on executors as what reads there: they need no catalog, and none of its credentials."""

    _tasks: Any

    def __reduce__(self) -> tuple[object, ...]:
        return sent(self._tasks)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        rows: Iterator[pa.RecordBatch] = self._tasks.read(partition)
        return rows


def arrived(version: str, reader: bytes) -> Any:
    """Unpack a reader, in the process that reads.

    Raises:
        RuntimeError: it was sent by another version; with a BadConfig in its text.
    """
    if version != VERSION:
        raise pack(
            BadConfig(
                f"executors have version {VERSION} of Thermocline and the driver has {version}; install one version on both.",
                executor=VERSION,
                driver=version,
            )
        )
    return pickle.loads(reader)  # noqa: S301 - Spark's own, unpickled by it too
