"""Users and static tokens in one TOML file, read again when it changes.

::

    [users.ada]
    password = "$argon2id$v=19$..."     # thermocline password
    groups = ["analysts"]

    [tokens.dashboards]                  # the name is the user that statements run as
    sha256 = "9f86d081..."               # of the token; thermocline token
    groups = ["viewers"]

No secret is in the file: a password's hash is slow to guess at, a token is random and too long to guess.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import secrets
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from planner.errors import BadConfig
from proxy.access.authentication.callers import Caller
from proxy.access.authentication.hashes import Passwords, is_hash

_log = logging.getLogger(__name__)

#: How soon a change of the file is seen.
CHECKED_EVERY_S = 1.0
_MAX_FILE_BYTES = 16 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")


class User(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    password: str
    groups: frozenset[str] = frozenset()


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sha256: str
    groups: frozenset[str] = frozenset()


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    users: dict[str, User] = {}
    tokens: dict[str, Token] = {}


class Credentials:
    """The file's users and tokens as they are now. Thread-safe.

    A file that cannot be read or is wrong leaves what was last known in force, and says so in the log: a typing
    error must not lock users out. What was removed ends at its next call, sessions included.

    Raises:
        BadConfig: at the start, where there is nothing to fall back to.
    """

    def __init__(self, path: Path, *, clock_s: Callable[[], float]) -> None:
        self._path = path
        self._clock_s = clock_s
        self._passwords = Passwords(clock_s)
        self._lock = threading.Lock()
        self._stamp = _stamp(path)
        self._checked_s = clock_s()
        self._file, self._by_digest = _load(path)

    def verify(self, user: str, password: str) -> Caller | None:
        user_entry = self._current().users.get(user)
        stored = None if user_entry is None else user_entry.password
        if not self._passwords.matches(stored, password) or user_entry is None:
            return None
        return self._identity(user, user_entry)

    def recall(self, user: str) -> Caller | None:
        """Return the user without asking for the password: another replica did."""
        stored = self._current().users.get(user)
        return None if stored is None else self._identity(user, stored)

    def _identity(self, user: str, stored: User) -> Caller:
        return Caller(
            user,
            stored.groups,
            lambda: self._current().users.get(user) == stored,
            stored=stored.password.encode(),
        )

    def token(self, token: str) -> Caller | None:
        """Return who a static token was given to; None if it is not one."""
        self._current()
        digest = hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
        name = self._by_digest.get(digest, "")
        stored = self._current().tokens.get(name)
        if stored is None or stored.sha256 != digest:
            return None
        return Caller(name, stored.groups, lambda: self._current().tokens.get(name) == stored)

    def _current(self) -> _File:
        now_s = self._clock_s()
        with self._lock:
            if now_s - self._checked_s >= CHECKED_EVERY_S:
                self._checked_s = now_s
                self._reload()
            return self._file

    def _reload(self) -> None:
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        # Noted before it is read, so that one bad state of the file is reported once.
        self._stamp = stamp
        try:
            self._file, self._by_digest = _load(self._path)
        except BadConfig as error:
            _log.error("the former credentials stay in force: %s", error)
        else:
            users, tokens = len(self._file.users), len(self._file.tokens)
            _log.info("credentials read: %d users, %d tokens", users, tokens)


def make_token() -> tuple[str, str]:
    """Return a random token and the digest that stands for it in the file."""
    token = secrets.token_urlsafe(32)
    return token, hashlib.sha256(token.encode()).hexdigest()


def entry(section: str, name: str, key: str, value: str, groups: Sequence[str] = ()) -> str:
    """Return one entry of the file, as text to append."""
    text = partial(json.dumps, ensure_ascii=False)
    listed = f"groups = {text(list(groups))}\n" if groups else ""
    return f"[{section}.{text(name)}]\n{key} = {text(value)}\n{listed}\n"


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file does, replaced files and moved symbolic links included; None: no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _load(path: Path) -> tuple[_File, dict[str, str]]:
    """Read the file; tokens also by their digest."""

    def wrong(what: str) -> BadConfig:
        return BadConfig(f"{path}: {what}", file=str(path))

    try:
        with path.open("rb") as opened:
            data = opened.read(_MAX_FILE_BYTES + 1)
        if len(data) > _MAX_FILE_BYTES:
            raise wrong(f"larger than {_MAX_FILE_BYTES:,} bytes.")
        file = msgspec.toml.decode(data, type=_File)
    except OSError as error:
        raise wrong(
            f"the credentials cannot be read ({error.strerror}); see server.credentials_file."
        ) from error
    except RecursionError:
        raise wrong(
            "nested too deeply for a file of [users.<name>] and [tokens.<name>]; correct it."
        ) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise wrong(f"not a file of [users.<name>] and [tokens.<name>]: {error}.") from error
    for name, user in file.users.items():
        if not is_hash(user.password):
            raise wrong(
                f"users.{name}.password is not an argon2 hash; make one with `thermocline password`."
            )
    for name, token in file.tokens.items():
        if not _SHA256.fullmatch(token.sha256):
            raise wrong(
                f"tokens.{name}.sha256 is not the SHA-256 of a token in lower-case hexadecimal digits; make a token "
                f"with `thermocline token`."
            )
    by_digest = {token.sha256: name for name, token in file.tokens.items()}
    if len(by_digest) < len(file.tokens) or file.users.keys() & file.tokens.keys():
        raise wrong("two entries have the same name or the same token.")
    return file, by_digest
