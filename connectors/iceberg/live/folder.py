"""The folder that one replica writes live files to, and the removal of those whose replica is gone.

A replica owns one folder with a heartbeat in it. Anyone may remove a folder whose last beat is older than twice the time
that answers are good for; both times are the store's, so no clock of ours decides. Paths are never used again.

A replica that stood still for so long, and goes on, leaves its folder: two beats of one folder are at most that time apart,
by the store's clock, so no replica removes what has one more beat.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

from pyarrow import fs
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

from connectors.iceberg.errors import file_errors
from connectors.store.errors import cause
from connectors.store.locations import local_path
from planner.errors import BadConfig, ColdStoreUnavailable
from planner.names import TableName

_log = logging.getLogger(__name__)

_NAME = re.compile(r"thermocline-live-[0-9a-f]{32}")
_HEARTBEAT = "heartbeat"
#: How the name of a metadata file ends.
METADATA = ".metadata.json"
_SETTING = "iceberg_rest.live_location"
#: Goes on while the machine sleeps, where there is such a clock.
_BOOT_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
#: How long a load waits for a beat that another thread is at.
_BEATING_S = 5.0


def _now_s() -> tuple[float, ...]:
    """By several clocks: what makes one stand still (a stopped machine, say) another one notices."""
    return time.clock_gettime(_BOOT_CLOCK), time.time()


class LostFolder(Exception):
    """Other replicas may have removed the folder, or did: nothing in it may be answered any more."""


class LiveFolder:
    """One replica's folder below ``location``, made with the first file. Thread-safe."""

    def __init__(
        self,
        io: FileIO,
        location: str,
        ttl_s: float,
        clocks: Callable[[], tuple[float, ...]] = _now_s,
    ) -> None:
        """``ttl_s``: how long an answer is good for."""
        self.io = io
        self._ttl_s = ttl_s
        self._clocks = clocks
        self._beating = threading.Lock()
        #: Of the last beat: the store's time, and ours before it.
        self._last: tuple[datetime, tuple[float, ...]] | None = None
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
        # ClickHouse takes a metadata file for one by the number before a hyphen, as Iceberg's catalogs write it.
        number = "00000-" if ending == METADATA else ""
        return self.io.new_output(f"{self.location}/{table}/{number}{uuid.uuid4().hex}{ending}")

    def make(self) -> None:
        """Make the folder once, for its owner alone where it is a local one, and beat."""
        if self.is_made:
            return
        local = local_path(self.location)
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

    def check(self) -> None:
        """Make sure that no replica may have removed the folder: beat where its last beat is old by a clock of ours.

        Raises LostFolder, ColdStoreUnavailable: as ``beat``; or another thread waits for the store already.
        """
        if not self._is_late():
            return
        if not self._beating.acquire(timeout=_BEATING_S):
            raise ColdStoreUnavailable(
                "iceberg_rest.live_location: the store does not answer; try again."
            )
        try:
            if self._is_late():
                self._beat()
        finally:
            self._beating.release()

    def beat(self) -> datetime:
        """Say that this replica lives; return the store's time.

        Raises:
            ColdStoreUnavailable: the store does not take it.
            LostFolder: the beat before is gone, or so old that another replica may be removing the folder.
        """
        with self._beating:
            return self._beat()

    def _is_late(self) -> bool:
        if self._last is None:
            return False
        passed = (now - then for now, then in zip(self._clocks(), self._last[1], strict=True))
        return max(passed) > self._ttl_s

    def _beat(self) -> datetime:
        began_s = self._clocks()
        path = f"{self.location}/{_HEARTBEAT}"
        before = None if self._last is None else self._last[0]
        with writing_errors():
            filesystem, name = self._filesystem(path)
            if before and filesystem.get_file_info(name).type == fs.FileType.NotFound:
                raise LostFolder
            with self.io.new_output(path).create(overwrite=True) as stream:
                stream.write(b"alive")
            beat: datetime = filesystem.get_file_info(name).mtime
        if before is not None and beat - before > timedelta(seconds=2 * self._ttl_s):
            raise LostFolder
        self._last = beat, began_s
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
            selector = fs.FileSelector(parent, allow_not_found=True)
            for entry in filesystem.get_file_info(selector):
                if entry.base_name == self._name or not _NAME.fullmatch(entry.base_name):
                    continue
                # One that holds nothing was made just now, or its replica died before it wrote.
                last = _last_beat(filesystem, entry.path) or entry.mtime
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


@contextlib.contextmanager
def writing_errors(table: TableName | None = None) -> Iterator[None]:
    """Translate errors of writing live files.

    Raises:
        ColdStoreUnavailable: the store does not take a file: the disk is full, may not be written, or does not answer.
    """
    facts = {} if table is None else {"table": str(table)}
    with file_errors(_SETTING, gone=ColdStoreUnavailable, **facts):
        try:
            yield
        except OSError as error:
            reason = cause(error)
            if reason is None and error.errno is not None:
                reason = f"{os.strerror(error.errno)}; make room there, or let the server write there"
            where = _SETTING if table is None else f"{table}: {_SETTING}"
            raise ColdStoreUnavailable(
                f"{where} cannot be written: {reason or 'the store does not take files; try again'}.",
                **facts,
            ) from error
