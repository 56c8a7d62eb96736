"""Where the audit log goes: standard error, a file, or nowhere."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from planner.errors import BadConfig
from proxy.ops.audit_log import AuditLog, LineWriter
from proxy.ops.call_record import Journal
from thermocline.config.settings import Settings


@contextlib.contextmanager
def open_journal(settings: Settings) -> Iterator[Journal]:
    """Return the audit log of one server; what it was given is written when it is left.

    Raises:
        BadConfig: the file cannot be written.
    """
    server = settings.server
    if server.audit_log == "off":
        yield lambda _record: None
        return
    with contextlib.ExitStack() as stack:
        write = _to_standard_error
        if server.audit_log != "stderr":
            file = _opened(server.audit_log)
            stack.callback(file.close)
            write = file.write
        writer = LineWriter(write, server.audit_log)
        stack.callback(writer.close)
        log = AuditLog(writer.put, with_text=server.audit_text, now=lambda: datetime.now(UTC))
        yield log.write


def _to_standard_error(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


class _File:
    """A file that lines are added to, opened anew after logrotate moved it away. Not thread-safe; the caller closes it.

    Only its owner, and if need be its group, may read it: lines name users and statements.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_torn = False
        self._file = _open(path)

    def write(self, text: str) -> None:
        """Add whole lines. Raises OSError: some of them may be in the file, and the last of these may be torn."""
        if not self._is_in_use():
            file = _open(self._path)
            self.close()
            self._file, self._is_torn = file, False
        rest = memoryview((f"\n{text}" if self._is_torn else text).encode())
        self._is_torn = True
        while rest:
            rest = rest[os.write(self._file, rest) :]
        self._is_torn = False

    def close(self) -> None:
        os.close(self._file)

    def _is_in_use(self) -> bool:
        try:
            return os.path.samestat(Path(self._path).stat(), os.fstat(self._file))
        except FileNotFoundError:
            return False


def _open(path: str) -> int:
    """Open the file: a new one for its owner alone; an existing one loses the rights of everybody."""
    opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    mode = os.fstat(opened).st_mode
    if stat.S_ISREG(mode) and mode & stat.S_IRWXO:
        with contextlib.suppress(PermissionError):  # another user's file that we may write to
            os.fchmod(opened, stat.S_IMODE(mode) & ~stat.S_IRWXO)
    return opened


def _opened(path: str) -> _File:
    try:
        return _File(path)
    except OSError as error:
        what = f"server.audit_log: {path} cannot be written ({error.strerror})"
        raise BadConfig(f"{what}; name another file, stderr, or off.", file=path) from error
