"""Where the audit log goes: standard error, a file, or nowhere."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler

from planner.errors import BadConfig
from proxy.flightsql.record import Journal
from proxy.ops.audit import LOGGER, Audit
from thermocline.config import Settings


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
        yield Audit(logger, with_text=server.audit_text, now=lambda: datetime.now(UTC)).write
    finally:
        handler.close()


def _handler(target: str) -> logging.Handler:
    if target == "stderr":
        return logging.StreamHandler()
    try:
        # Follows logrotate: a file that was moved away is opened anew.
        return WatchedFileHandler(target, encoding="utf-8")
    except OSError as error:
        raise BadConfig(
            f"server.audit_log: {target} cannot be written ({error.strerror}); name another file, "
            f"stderr, or off.",
            file=target,
        ) from error
