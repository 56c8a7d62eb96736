"""Where the audit log goes: standard error, a file, or nowhere."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler

from planner.errors import BadConfig
from proxy.ops.audit_log import LOGGER, AuditLog
from proxy.ops.call_record import Journal
from thermocline.config.settings import Settings


@contextlib.contextmanager
def open_journal(settings: Settings) -> Iterator[Journal]:
    """Return the audit log of one server. Raises BadConfig: the file cannot be written."""
    server = settings.server
    if server.audit_log == "off":
        yield lambda _record: None
        return
    handler = _handler(server.audit_log)
    # The line is the record: no prefix, and no other logger's handlers.
    logger = logging.Logger(LOGGER, logging.INFO)
    logger.addHandler(handler)
    try:
        yield AuditLog(logger, with_text=server.audit_text, now=lambda: datetime.now(UTC)).write
    finally:
        handler.close()


class _OwnFile(WatchedFileHandler):
    """Follows logrotate: opens a new file after the old one was moved away.

    Only its owner, and if need be its group, may read it: lines name users and statements.
    """

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=_private)


def _private(path: str, flags: int) -> int:
    """Open the file: a new one for its owner alone; an existing one loses the rights of everybody."""
    opened = os.open(path, flags, 0o600)
    mode = os.fstat(opened).st_mode
    if stat.S_ISREG(mode) and mode & stat.S_IRWXO:
        with contextlib.suppress(PermissionError):  # another user's file that we may write to
            os.fchmod(opened, stat.S_IMODE(mode) & ~stat.S_IRWXO)
    return opened


def _handler(target: str) -> logging.Handler:
    if target == "stderr":
        return logging.StreamHandler()
    try:
        return _OwnFile(target, encoding="utf-8")
    except OSError as error:
        what = f"server.audit_log: {target} cannot be written ({error.strerror})"
        raise BadConfig(f"{what}; name another file, stderr, or off.", file=target) from error
