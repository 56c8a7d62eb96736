"""Strangers who log in, many at once, or say nothing at all, keep no one else from the REST catalog."""

from __future__ import annotations

import base64
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import pyarrow as pa
import pytest

from planner.names import TableName
from proxy.access.authentication.callers import Access, Caller
from proxy.access.authentication.lockout import Lockout
from proxy.session import Deadline
from tests.fixtures.live_rest import Answer, Rest
from tests.fixtures.server import serving, settings_of, sqlite_catalog
from thermocline.config.settings import IcebergRest

STRANGERS = 150
Call = Callable[[Rest, str, str], Answer]


class SlowPasswords:
    """A check takes until ``go_on``, except that of the right one."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def __call__(self, user: str, password: str) -> Caller | None:
        if password == "right":
            return Caller(user)
        self.go_on.wait()
        return None


@pytest.fixture
def passwords() -> Iterator[SlowPasswords]:
    passwords = SlowPasswords()
    yield passwords
    passwords.go_on.set()


@pytest.fixture
def guarded(passwords: SlowPasswords, tmp_path: Path) -> Iterator[Rest]:
    settings = settings_of({"lake": sqlite_catalog(tmp_path)}, {})
    settings = settings.model_copy(update={"iceberg_rest": IcebergRest(port=0)})
    with serving(settings) as server:
        lockout = Lockout(passwords, time.monotonic)
        server.running.server.let_in(Access(verify=lockout, remembers=lockout.remembers))
        yield Rest(server)


@pytest.fixture
def plain(guarded: Rest) -> TableName:
    return guarded.server.create_plain(pa.table({"id": [1, 2, 3]}))


def log_in(rest: Rest, user: str, password: str) -> Answer:
    form = {"grant_type": "client_credentials", "client_id": user, "client_secret": password}
    return rest.ask("/v1/oauth/tokens", "POST", urlencode(form).encode())


def as_basic(rest: Rest, user: str, password: str) -> Answer:
    pair = base64.b64encode(f"{user}:{password}".encode()).decode()
    return rest.ask("/v1/config", authorization=f"Basic {pair}")


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = Deadline(60)
    while not is_so():
        deadline.check("it was not so in {:g} s.")
        time.sleep(0.01)


@pytest.mark.parametrize("call", [log_in, as_basic])
def test_strangers_who_log_in_hold_nobody_up(
    guarded: Rest, plain: TableName, passwords: SlowPasswords, call: Call
) -> None:
    token = log_in(guarded, "ada", "right").body["access_token"]
    answered: Counter[int] = Counter()

    def load() -> Answer:
        return guarded.ask(guarded.table(plain), authorization=f"Bearer {token}")

    def stranger(number: int) -> Answer:
        answer = call(guarded, f"stranger {number}", "wrong")
        answered[answer.status] += 1
        return answer

    with ThreadPoolExecutor(STRANGERS) as asking:
        calls = [asking.submit(stranger, number) for number in range(STRANGERS)]
        try:
            wait_for(lambda: answered[503] == STRANGERS - 64)
            for _ in range(5):
                assert load().status == 200
            # So is who logged in before, by either way.
            assert log_in(guarded, "ada", "right").status == 200
            assert as_basic(guarded, "ada", "right").status == 200
            assert answered == {
                503: STRANGERS - 64
            }  # the others' passwords are not checked yet
        finally:
            passwords.go_on.set()
        refused = [each.result() for each in calls if each.result().status == 503]
    assert answered == {503: STRANGERS - 64, 401: 64}
    for answer in refused:
        assert answer.body["error"]["message"] == (
            "The server answers too many logins at once. Retry later."
        )
        assert int(answer.headers["retry-after"]) > 0


def test_a_user_who_tries_many_passwords_leaves_room_for_others(
    guarded: Rest, passwords: SlowPasswords
) -> None:
    """Of the queue one user's logins have a share, so the first login of another user is let in."""
    answered: Counter[int] = Counter()

    def guess(number: int) -> None:
        answered[log_in(guarded, "eve", f"guess {number}").status] += 1

    with ThreadPoolExecutor(STRANGERS) as asking:
        for number in range(STRANGERS):
            asking.submit(guess, number)
        try:
            wait_for(lambda: answered[503] == STRANGERS - 49)
            first = asking.submit(log_in, guarded, "bob", "right")
        finally:
            passwords.go_on.set()
        assert first.result().status == 200
    assert answered[503] == STRANGERS - 49
