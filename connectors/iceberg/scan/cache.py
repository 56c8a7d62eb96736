"""Decoded manifests kept in memory and, where a directory is configured, on disk for the next process.

A manifest never changes, so its path and length are the key of an entry. Entries on disk have a digest: one that is
damaged, truncated or of another version of this program is removed, and its manifest decoded again.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
import threading
from collections import OrderedDict
from pathlib import Path

import pyarrow as pa

from connectors.iceberg.scan.metrics import Block

_log = logging.getLogger(__name__)

#: Changes when the columns of a block do.
_VERSION = b"thermocline block 2\n"
_DIGEST_BYTES = 32
_SUFFIX = ".block"


class BlockCache:
    """Blocks by manifest. Thread-safe; several processes may share the directory."""

    def __init__(
        self, folder: Path | None, *, max_memory_bytes: int, max_disk_bytes: int
    ) -> None:
        self._folder = folder
        self._max_memory_bytes = max_memory_bytes
        self._max_disk_bytes = max_disk_bytes
        self._lock = threading.Lock()
        self._blocks: OrderedDict[tuple[str, int], Block] = OrderedDict()
        self._blocks_bytes = 0
        self._disk_bytes = 0
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._evict_files()

    def get(self, path: str, length: int) -> Block | None:
        key = (path, length)
        with self._lock:
            block = self._blocks.get(key)
            if block is not None:
                self._blocks.move_to_end(key)
                return block
        block_read = self._read(key)
        if block_read is not None:
            self._hold(key, block_read)
        return block_read

    def put(self, path: str, length: int, block: Block) -> None:
        self._hold((path, length), block)
        self._write((path, length), block)

    def _hold(self, key: tuple[str, int], block: Block) -> None:
        with self._lock:
            before = self._blocks.pop(key, None)
            self._blocks[key] = block
            self._blocks_bytes += block.size_bytes - (before.size_bytes if before else 0)
            while self._blocks_bytes > self._max_memory_bytes and len(self._blocks) > 1:
                _, oldest = self._blocks.popitem(last=False)
                self._blocks_bytes -= oldest.size_bytes

    def _file(self, key: tuple[str, int]) -> Path | None:
        if self._folder is None:
            return None
        name = hashlib.blake2b(f"{key[0]}\n{key[1]}".encode(), digest_size=20).hexdigest()
        return self._folder / f"{name}{_SUFFIX}"

    def _read(self, key: tuple[str, int]) -> Block | None:
        file = self._file(key)
        if file is None:
            return None
        try:
            content = file.read_bytes()
        except OSError:
            return None
        start = len(_VERSION) + _DIGEST_BYTES
        digest = content[len(_VERSION) : start]
        if content[: len(_VERSION)] == _VERSION and digest == _digest(key, content[start:]):
            with contextlib.suppress(OSError):
                os.utime(file)
            # The digest has no key: who can write to the folder can make one.
            with contextlib.suppress(pa.ArrowException, OSError, ValueError, LookupError):
                with pa.ipc.open_stream(pa.py_buffer(content)[start:]) as reader:
                    table = reader.read_all()
                table.validate(full=True)
                return Block(table)
        _log.warning("a cached manifest is damaged; it is decoded again")
        with contextlib.suppress(OSError):
            file.unlink()
        return None

    def _write(self, key: tuple[str, int], block: Block) -> None:
        """Write a whole entry or none. A full or lost disk disables the cache and fails no statement."""
        file = self._file(key)
        if file is None:
            return
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, block.table.schema) as writer:
            writer.write_table(block.table)
        content = sink.getvalue().to_pybytes()
        try:
            handle, name = tempfile.mkstemp(dir=file.parent, suffix=".new")
            with os.fdopen(handle, "wb") as new:
                new.write(_VERSION + _digest(key, content) + content)
            Path(name).replace(file)
        except OSError:
            _log.warning("a decoded manifest could not be cached on disk", exc_info=True)
            return
        with self._lock:
            self._disk_bytes += len(content)
            is_full = self._disk_bytes > self._max_disk_bytes
        if is_full:
            self._evict_files()

    def _evict_files(self) -> None:
        """Remove the least recently used entries until three quarters of the bound are left."""
        files = []
        for file in self._folder.glob(f"*{_SUFFIX}") if self._folder else ():
            with contextlib.suppress(OSError):
                status = file.stat()
                files.append((status.st_mtime_ns, status.st_size, file))
        total = sum(size for _, size, _ in files)
        if total > self._max_disk_bytes:
            for _, size, file in sorted(files):
                if total <= self._max_disk_bytes * 3 // 4:
                    break
                with contextlib.suppress(OSError):
                    file.unlink()
                    total -= size
        with self._lock:
            self._disk_bytes = total


def _digest(key: tuple[str, int], content: bytes) -> bytes:
    """Cover the key too: a file that was moved to another name is not that entry."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    digest.update(f"{key[0]}\n{key[1]}\n".encode())
    digest.update(content)
    return digest.digest()
