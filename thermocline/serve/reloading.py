"""Changes a running server: settings on SIGHUP, certificates also when their files change.

Users and tokens of ``access.credentials_file`` are read again by themselves (``proxy.access.authentication.credentials``).
Settings that cannot be taken over leave the former state in force, and the log says so: a typing error must not end a
server, and a server must not pretend.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path

from planner.errors import BadConfig, Unavailable
from proxy.flightsql.server import FlightSqlServer
from proxy.query.executor import Statements
from thermocline.config.settings import AccessSettings, Settings, own_sections
from thermocline.serve.access import access, admins, limits_of, tls
from thermocline.serve.permissions import policy

_log = logging.getLogger(__name__)

#: How often certificates are checked. They are loaded when two checks in a row see the same files: certificate and
#: key are replaced one after the other.
WATCH_S = 1.0
#: Settings that a running server takes over: who may call, limits, and files that are watched.
_IDENTITY = {"server.users", "access.credentials_file", "access.allow_insecure_public"} | {
    f"access.{name}" for name in AccessSettings.model_fields if name.startswith("jwt_")
}
_LIMITS = {
    "limits",
    "access.admins",
    "server.max_streams",
    "server.max_queued",
    "server.queue_wait_s",
    "server.answer_timeout_s",
    "server.upload_idle_s",
    "server.reader_idle_s",
    "server.max_result_rows",
    "server.max_result_bytes",
    "server.statement_timeout_s",
    "server.ticket_ttl_s",
} | {f"access.{name}" for name in AccessSettings.model_fields if name.endswith("_per_user")}
_WATCHED = {"access.tls_certificate", "access.tls_key", "access.tls_client_ca"}
_Stamp = tuple[tuple[int, int, int] | None, ...]


class Reloader:
    """Keeps one server's settings and certificates up to date.

    ``read`` reads the settings anew. ``renew`` has other listeners show the certificate that the settings name.
    """

    def __init__(
        self,
        settings: Settings,
        server: FlightSqlServer,
        statements: Statements,
        *,
        read: Callable[[], Settings],
        renew: Callable[[Settings], None] = lambda _: None,
    ) -> None:
        self._renew_others = renew
        self._settings = settings
        self._server = server
        self._statements = statements
        self._read = read
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._in_force = self._last_stamp = _stamp(settings)
        self._thread = threading.Thread(target=self._watch, name="reload", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def reload(self) -> None:
        """Read the settings again and take over what a running server can."""
        try:
            settings = self._read()
            with self._lock:
                changed = _changed(self._settings, settings)
                self._take_over(settings, changed)
                self._settings = settings
        except BadConfig as error:
            _log.error("the former settings stay in force: %s", error)
            return
        later = sorted(changed - _LIMITS - _IDENTITY - _WATCHED - {"permissions"})
        if later:
            _log.warning("changed, but taken over by a restart only: %s", ", ".join(later))
        _log.info(
            "settings read again; taken over: %s",
            ", ".join(sorted(changed - set(later))) or "nothing",
        )

    def _take_over(self, settings: Settings, changed: set[str]) -> None:
        # Checks come first: all settings are taken over, or none.
        limits, server = limits_of(settings), settings.server
        callers = access(settings) if changed & _IDENTITY else None
        grants = self._statements.access
        if "permissions" in changed:
            grants.policy = policy(settings, grants.expression)
        if callers is not None:
            self._server.let_in(callers)
        self._server.limit(
            limits,
            max_streams=server.max_streams,
            max_queued=server.max_queued,
            stream_wait_s=server.queue_wait_s,
        )
        self._server.gate.policy.admins = admins(settings)
        self._statements.ticket_maker.ttl_s = server.ticket_ttl_s

    def _watch(self) -> None:
        while not self._stop.wait(WATCH_S):
            with self._lock:
                stamp = _stamp(self._settings)
                settled, self._last_stamp = stamp == self._last_stamp, stamp
                if settled and stamp != self._in_force:
                    # Noted before reading: each state of the files is reported once.
                    self._in_force = stamp
                    self._renew()

    def _renew(self) -> None:
        try:
            self._server.listen_again(tls(self._settings))
            self._renew_others(self._settings)
        except BadConfig as error:
            _log.error("the former certificate stays in force: %s", error)
        except Unavailable:
            _log.critical(
                "the port was lost while the certificate was replaced; ending the process"
            )
            logging.shutdown()
            os._exit(1)
        else:
            _log.info("the certificate was replaced")


def _stamp(settings: Settings) -> _Stamp:
    """Return a value that changes with the certificate's files, moved symbolic links included; None: no file."""
    return tuple(_file_stamp(Path(name)) for name in settings.access.tls_files)


def _file_stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _changed(before: Settings, now: Settings) -> set[str]:
    """Return the dotted names of changed settings: keys of our own sections, other sections as a whole."""
    own = own_sections()
    keys = {name for name in Settings.model_fields if name not in own} | {
        f"{section}.{name}" for section, model in own.items() for name in model.model_fields
    }
    return {key for key in keys if attrgetter(key)(before) != attrgetter(key)(now)}
