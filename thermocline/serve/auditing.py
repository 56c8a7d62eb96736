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
from proxy.flightsql.state.call_record import Journal
from proxy.ops.audit_log import LOGGER, AuditLog
from thermocline.config.settings import Settings


@contextlib.contextmanager
def open_journal(settings: Settings) -> Iterator[Journal]:
    """What writes down the calls of one server.

    Raises:
        BadConfig: the file cannot be written.
    """
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
    """Follows logrotate: a file that was moved away is opened anew. It is read by its owner, and by its group if need be.

    Lines say who asked for what.
    """

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=_private)


def _private(path: str, flags: int) -> int:
    """Open a file that is made for its owner alone; of one that is there, take the rights of everybody away."""
    opened = os.open(path, flags, 0o600)
    mode = stat.S_IMODE(os.fstat(opened).st_mode)
    if stat.S_ISREG(os.fstat(opened).st_mode) and mode & stat.S_IRWXO:
        with contextlib.suppress(PermissionError):  # another user's, who lets us write
            os.fchmod(opened, mode & ~stat.S_IRWXO)
    return opened


def _handler(target: str) -> logging.Handler:
    if target == "stderr":
        return logging.StreamHandler()
    try:
        return _OwnFile(target, encoding="utf-8")
    except OSError as error:
        raise BadConfig(
            f"server.audit_log: {target} cannot be written ({error.strerror}); name another file, "
            f"stderr, or off.",
            file=target,
        ) from error
