"""Who is logged in: sessions of browsers, in this process's memory, bounded in number and age."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.errors import Overloaded
from thermocline.console.person import Person
from thermocline.console.runs import AnswerRoom, Runs

#: A browser that asks nothing for so long is logged out.
IDLE_S = 1_800.0
#: A login is over after so long, busy or not.
AGE_S = 12 * 3_600.0
MAX_LOGINS = 500
_CLOSE_S = 2.0
#: Of one name: one more ends the oldest.
_MAX_OF_ONE = 20


@dataclass(slots=True)
class Login:
    """One browser's."""

    person: Person
    statements: Runs
    began_s: float
    used_s: float
    #: Requests of it on threads: counted by the event loop alone.
    at_work: int = 0

    def is_over(self, now_s: float) -> bool:
        return now_s - self.used_s > IDLE_S or now_s - self.began_s > AGE_S

    def close(self) -> None:
        self.statements.close()
        self.person.close()


class BrowserLogins:
    """By the value of a cookie. Thread-safe."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._logins: OrderedDict[str, Login] = OrderedDict()
        self._room = AnswerRoom()

    def enter(self, person: Person) -> str:
        """Return the new cookie of a person.

        Raises:
            Overloaded: there are ``MAX_LOGINS`` already.
        """
        cookie, now_s = secrets.token_urlsafe(32), self._now_s()
        with self._lock:
            ended = self._take_old(now_s)
            of_one = [
                key for key, each in self._logins.items() if each.person.name == person.name
            ]
            if len(of_one) >= _MAX_OF_ONE:
                ended.append(self._logins.pop(of_one[0]))
            is_full = len(self._logins) >= MAX_LOGINS
            if not is_full:
                self._logins[cookie] = Login(person, Runs(person, self._room), now_s, now_s)
        if ended:
            _end(ended)
        if is_full:
            _end([person])
            raise Overloaded(
                f"{MAX_LOGINS} browsers are logged in at this console; try again later."
            )
        return cookie

    def login(self, cookie: str | None) -> Login | None:
        """Return the login of a cookie, in use again; None: there is none, or it is over. Waits for nothing."""
        now_s = self._now_s()
        with self._lock:
            login = self._logins.get(cookie or "")
            if login is None or login.is_over(now_s):
                return None
            login.used_s = now_s
        return login

    def tidy(self) -> None:
        """End those that are over."""
        with self._lock:
            ended = self._take_old(self._now_s())
        if ended:
            _end(ended)

    def leave(self, cookie: str | None) -> None:
        with self._lock:
            login = self._logins.pop(cookie or "", None)
        if login is not None:
            _end([login])

    def close(self) -> None:
        """End all. A server that hangs is not waited for long."""
        with self._lock:
            ended = list(self._logins.values())
            self._logins.clear()
        _end(ended).join(_CLOSE_S)

    def _take_old(self, now_s: float) -> list[Login]:
        over = [key for key, each in self._logins.items() if each.is_over(now_s)]
        return [self._logins.pop(key) for key in over]


def _end(ended: Sequence[Login | Person]) -> threading.Thread:
    """Close them on a thread of its own: each waits for the server, which may hang."""

    def close() -> None:
        for each in ended:
            each.close()

    thread = threading.Thread(target=close, name="console-close", daemon=True)
    thread.start()
    return thread
