"""Readers on their way to executors, which may have another version of ours: compared before anything is unpacked."""

from __future__ import annotations

import pickle
from typing import Any

from connectors.spark.errors import pack
from planner.errors import BadConfig

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
