"""Landlock: a process gives up rights to files for good, where the kernel can take them (Linux 5.13 or newer).

A few folders stay readable, fewer writable; programs cannot be executed. It applies to the calling thread and those
it starts, so call it before any other thread exists. Source: the kernel's documentation, userspace-api/landlock.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# System call numbers, the same on all architectures with CPython wheels.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_BENEATH_PATH = 1
_NO_NEW_PRIVILEGES = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (
    1 << n for n in range(6)
)
_MAKE_DIR, _MAKE_REG = 1 << 7, 1 << 8
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
#: Rights that each version of Landlock can take away.
_SINCE = {1: (1 << 13) - 1, 2: _REFER, 3: _TRUNCATE, 5: _IOCTL_DEV}
#: Signals and abstract Unix sockets to processes outside.
_SCOPES_SINCE, _SCOPES = 6, 0b11
#: The only rights that the kernel accepts in a rule on a single file.
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READ = _READ_FILE | _READ_DIR
_WRITE = (
    _READ | _WRITE_FILE | _TRUNCATE | _MAKE_REG | _MAKE_DIR | _REMOVE_FILE | _REMOVE_DIR | _REFER
)  # fmt: skip


class NoLandlock(Exception):
    """This process cannot be restricted; the text says why."""


@dataclass(frozen=True, slots=True)
class Rights:
    """Folders that stay usable, with all below them. Paths that do not exist are skipped.

    In ``emptied``, empty folders may be removed.
    """

    readable: frozenset[Path]
    writable: frozenset[Path]
    emptied: frozenset[Path] = frozenset()


@dataclass(frozen=True, slots=True)
class FileSystemLock:
    """Whether the sandbox is in force in this process. ``why_not`` is empty if so; ``abi`` is the kernel's.

    It is in force only as long as the calling thread's own attempts are refused.
    """

    why_not: str = "nobody asked for it"
    rights: Rights | None = None
    abi: int | None = None

    @property
    def holds(self) -> bool:
        return not self.why_not and self.rights is not None and not possible(self.rights)

    def __str__(self) -> str:
        if self.holds:
            return f"file system locked: Landlock ABI {self.abi}"
        why = self.why_not or "what it should keep from this process was possible when tried"
        return f"file system not locked: {why}"


#: Files that a process may open of itself otherwise, and that a server never needs.
_READ_BY_NOBODY, _WRITTEN_BY_NOBODY = Path("/proc/self/environ"), Path("/proc/self/comm")


def possible(rights: Rights) -> tuple[str, ...]:
    """Try, on this thread, to read and to write files that ``rights`` forbid; return what worked."""
    worked = []
    if not any(map(_READ_BY_NOBODY.is_relative_to, rights.readable | rights.writable)):
        worked += _opened(_READ_BY_NOBODY, os.O_RDONLY, "reading")
    return (*worked, *_opened(_WRITTEN_BY_NOBODY, os.O_WRONLY, "writing"))


def programs_run() -> bool:
    """Try to start a program: the interpreter, which ends at once."""
    command = [sys.executable, "-I", "-S", "-c", ""]
    try:
        child = os.posix_spawn(command[0], command, {})
    except OSError:
        return False
    os.waitpid(child, 0)
    return True


def _opened(path: Path, flags: int, what: str) -> list[str]:
    try:
        os.close(os.open(path, flags))
    except OSError:
        return []
    return [f"{what} {path}"]


def version() -> int:
    """Return the version of Landlock's ABI that the kernel has.

    Raises:
        NoLandlock
    """
    if sys.platform != "linux":
        raise NoLandlock(f"{sys.platform} has no Landlock")
    try:
        return _call(_CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION)
    except OSError as error:
        raise NoLandlock(_WHY.get(error.errno or 0, f"the kernel says {error}")) from error


def restrict(rights: Rights) -> int:
    """Give up every other right to files, and return the version of Landlock's ABI that took them.

    Raises:
        NoLandlock: nothing was given up.
    """
    abi = version()
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        raise NoLandlock("other threads run already, which it would not hold for")
    handled = sum(bits for since, bits in _SINCE.items() if abi >= since)
    scopes = _SCOPES if abi >= _SCOPES_SINCE else 0
    try:
        ruleset = _call(
            _CREATE_RULESET, struct.pack("=QQQ", handled, 0, scopes), ctypes.c_size_t(24), 0
        )
        try:
            _allow(ruleset, rights.readable, _READ & handled)
            _allow(ruleset, rights.writable, _WRITE & handled)
            _allow(ruleset, rights.emptied, _REMOVE_DIR)
            _checked(_libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
            _call(_RESTRICT_SELF, ruleset, 0)
        finally:
            os.close(ruleset)
    except OSError as error:
        raise NoLandlock(f"the kernel refused it: {error}") from error
    return abi


def _allow(ruleset: int, paths: Iterable[Path], rights: int) -> None:
    for path in sorted(paths):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            # Never closed: what /proc shows is forgotten under memory pressure, and what is found there later is
            # another file that no rule names (Linux 6.18: /proc/self/statm after drop_caches).
            descriptor = os.open(path, os.O_PATH)
            allowed = rights if path.is_dir() else rights & _OF_FILES
            _call(_ADD_RULE, ruleset, _BENEATH_PATH, struct.pack("=Qi", allowed, descriptor), 0)


_WHY = {
    errno.ENOSYS: "the kernel has no Landlock (Linux 5.13 or newer has), or a container's seccomp filter hides it",
    errno.EPERM: "a container's seccomp filter forbids Landlock",
    errno.EOPNOTSUPP: "the kernel was started without Landlock (lsm=landlock,… on its command line)",
}


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    return _checked(_libc().syscall(number, *arguments))


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
