"""The folder that one replica writes live files to, and the removal of those whose replica is gone.

A replica owns one folder with a heartbeat in it. Anyone may remove a folder whose last beat is older than twice the time
that answers are good for; both times are the store's, so no clock of ours decides. Paths are never used again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import uuid
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from pyarrow import fs
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

from connectors.iceberg.errors import file_errors
from planner.errors import BadConfig, ColdStoreUnavailable

_log = logging.getLogger(__name__)

_NAME = re.compile(r"thermocline-live-[0-9a-f]{32}")
_HEARTBEAT = "heartbeat"


class LiveFolder:
    """One replica's folder below ``location``, made with the first file. Thread-safe but for ``beat``."""

    def __init__(self, io: FileIO, location: str, ttl_s: float) -> None:
        """``ttl_s``: how long an answer is good for."""
        self.io = io
        self._ttl_s = ttl_s
        self._parent = location.rstrip("/")
        self.replica = uuid.uuid4().hex
        self._name = f"thermocline-live-{self.replica}"
        self.location = f"{self._parent}/{self._name}"
        #: Whether there is such a folder yet.
        self.is_made = False

    def output(self, table: str, ending: str) -> OutputFile:
        """Return a new file of one table, at a path of its own.

        Raises:
            BadConfig: the folder cannot be made.
            ColdStoreUnavailable: the store does not answer.
        """
        self.make()
        return self.io.new_output(f"{self.location}/{table}/{uuid.uuid4().hex}{ending}")

    def make(self) -> None:
        """Make the folder, for its owner alone where it is a local one, and beat once."""
        if self.is_made:
            return
        local = _local(self.location)
        if local is not None:
            try:
                local.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                local.mkdir(mode=0o700, exist_ok=True)
            except OSError as error:
                raise BadConfig(
                    f"iceberg_rest.live_location cannot be written ({error.strerror}); name a folder that the server "
                    f"may write to."
                ) from error
        self.beat()
        self.is_made = True

    @contextlib.contextmanager
    def undoing(self, paths: list[str]) -> Iterator[None]:
        """Remove the files whose paths were added to ``paths`` if the block does not end well."""
        try:
            yield
        except BaseException:
            self.remove(paths)
            raise

    def beat(self) -> datetime:
        """Say that this replica lives; return the store's time.

        Raises:
            ColdStoreUnavailable: the store does not take it.
        """
        path = f"{self.location}/{_HEARTBEAT}"
        with file_errors("iceberg_rest.live_location", gone=ColdStoreUnavailable):
            with self.io.new_output(path).create(overwrite=True) as stream:
                stream.write(b"alive")
            filesystem, name = self._filesystem(path)
            beat: datetime = filesystem.get_file_info(name).mtime
        return beat

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files; one that is gone already is no error."""
        for path in paths:
            try:
                self.io.delete(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                _log.warning("a live file could not be removed: %s", error)

    def sweep(self, now: datetime) -> int:
        """Remove folders of replicas that are gone; return how many. ``now`` is the store's (``beat``)."""
        removed = 0
        filesystem, parent = self._filesystem(self._parent)
        with contextlib.suppress(OSError):
            for entry in filesystem.get_file_info(
                fs.FileSelector(parent, allow_not_found=True)
            ):
                if entry.base_name == self._name or not _NAME.fullmatch(entry.base_name):
                    continue
                last = _last_beat(filesystem, entry.path)
                if last is None or (now - last).total_seconds() > 2 * self._ttl_s:
                    with contextlib.suppress(FileNotFoundError):
                        filesystem.delete_dir(entry.path)
                        removed += 1
        return removed

    def _filesystem(self, path: str) -> tuple[fs.FileSystem, str]:
        properties: dict[str, Any] = self.io.properties
        scheme, netloc, name = PyArrowFileIO.parse_location(path, properties)
        io = self.io if isinstance(self.io, PyArrowFileIO) else PyArrowFileIO(properties)
        return io.fs_by_scheme(scheme, netloc), name


def _last_beat(filesystem: fs.FileSystem, folder: str) -> datetime | None:
    """Return when a folder's replica beat last, or wrote last where it never beat; None: it holds nothing."""
    beat = filesystem.get_file_info(f"{folder}/{_HEARTBEAT}")
    if beat.type != fs.FileType.NotFound:
        mtime: datetime | None = beat.mtime
        return mtime
    selector = fs.FileSelector(folder, recursive=True, allow_not_found=True)
    return max((entry.mtime for entry in filesystem.get_file_info(selector)), default=None)


def _local(location: str) -> Path | None:
    if "://" not in location.removeprefix("file://"):
        return Path(os.path.abspath(location.removeprefix("file://")))  # noqa: PTH100  as it is written
    return None
