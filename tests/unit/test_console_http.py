"""The console's HTTP by itself: who is let in, what a browser is told, what is refused, over a person of fixed answers."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from typing import cast

import pyarrow as pa
import pytest

from connectors.flight_server import NoServer, NotLetIn
from planner.errors import BadParameter, LimitExceeded, Overloaded, StalePlan, UnknownTable
from tests.harness.console_browser import ConsoleBrowser, console_over
from thermocline.console import logins
from thermocline.console.identity_provider import IdentityProvider, RegisteredClient
from thermocline.console.logins import BrowserLogins
from thermocline.console.person import ConsoleTarget, LoginForm, Person, Poll
from thermocline.console.routes import ROUTES
from thermocline.console.runs import AnswerRoom, Run

URI = "grpc://127.0.0.1:1"
PASSWORD = "secret-of-anna"


class FixedPerson(Person):
    """Answers each of a page's statements with the same rows, or fails."""

    def __init__(self, credentials: LoginForm, state: dict[str, object]) -> None:
        self.state = state
        super().__init__(ConsoleTarget(URI), credentials)
        self.statements: list[str] = []

    def _ask(self, sql: str, cut: str | None, parameters: Sequence[str] | None) -> pa.Table:
        if sql.startswith("SELECT current_user"):
            if self._credentials.password != PASSWORD and self._credentials.user:
                raise NotLetIn("the password is wrong.")
            return pa.table({"name": [self._credentials.user]})
        self.statements.append(sql)
        gate = self.state.get("gate")
        if isinstance(gate, threading.Event):
            gate.wait()
        error = self.state.get("error")
        if isinstance(error, Exception):
            raise error
        if names := re.findall(r"SELECT (\w+) FROM \(", sql):
            return pa.table({name: [{"state": "ok"}] for name in names})
        return pa.table({"state": ["ok"], "n": [2**60]})


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[int, dict[str, object]]]:
    """One for all tests: to stop it takes longer than most of them."""
    state: dict[str, object] = {}
    with console_over(URI, lambda credentials: FixedPerson(credentials, state)) as browser:
        yield browser.port, state


@pytest.fixture
def state(site: tuple[int, dict[str, object]]) -> dict[str, object]:
    site[1].clear()
    return site[1]


@pytest.fixture
def browser(site: tuple[int, dict[str, object]], state: dict[str, object]) -> ConsoleBrowser:
    return ConsoleBrowser(site[0])


@pytest.fixture
def anna(browser: ConsoleBrowser) -> ConsoleBrowser:
    assert browser.log_in("anna", PASSWORD).status == 200
    return browser


def test_no_route_answers_without_a_login(browser: ConsoleBrowser) -> None:
    for method, pattern in ROUTES:
        path = f"/api/{pattern.replace('{id}', 'x')}"
        reply = browser.send(method, path, b"{}" if method == "POST" else None)
        assert (reply.status, reply.sentence) == (401, "log in first."), path
    assert browser.send("GET", "/api/nothing").status == 401


def test_a_login_gives_a_cookie_that_no_script_and_no_other_site_has(
    browser: ConsoleBrowser,
) -> None:
    reply = browser.log_in("anna", PASSWORD)
    cookie = reply.headers["set-cookie"]
    assert cookie.startswith(f"thermocline_{browser.port}=")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert browser.get("session").document["name"] == "anna"
    assert PASSWORD not in reply.body.decode()


def test_over_https_the_cookie_goes_nowhere_else(state: dict[str, object]) -> None:
    with console_over(URI, lambda c: FixedPerson(c, state), is_secure=True) as browser:
        cookie = browser.log_in("anna", PASSWORD).headers["set-cookie"]
    assert cookie.startswith("__Host-thermocline_")
    assert "Secure" in cookie.split("; ")


def test_a_wrong_password_is_the_servers_sentence_and_no_login(browser: ConsoleBrowser) -> None:
    reply = browser.log_in("anna", "wrong")
    assert (reply.status, reply.sentence) == (401, "the password is wrong.")
    assert browser.get("session").status == 401


def test_logout_ends_the_login_also_for_who_kept_the_cookie(anna: ConsoleBrowser) -> None:
    cookie = anna.cookie
    assert anna.post("logout").status == 200
    anna.cookie = cookie
    assert anna.get("tables").status == 401


def test_every_answer_forbids_scripts_of_others_and_inline_ones(anna: ConsoleBrowser) -> None:
    for path in ("/", "/static/main.js", "/nothing", "/api/session", "/api/nothing"):
        headers = anna.send("GET", path).headers
        policy = dict(
            line.split(" ", 1) for line in headers["content-security-policy"].split("; ")
        )
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] in ("no-store", "no-cache")


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://elsewhere.example"},
        {"origin": "null"},
        {"origin": None},
        {"origin": "http://127.0.0.1"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"host": "elsewhere.example"},
    ],
)
def test_a_request_of_another_site_changes_nothing(
    anna: ConsoleBrowser, headers: dict[str, str | None]
) -> None:
    reply = anna.send("POST", "/api/logout", b"{}", **headers)
    assert (reply.status, reply.sentence) == (403, "this request comes from another site.")
    assert anna.get("session").status == 200


def test_another_site_reads_nothing(anna: ConsoleBrowser) -> None:
    assert anna.send("GET", "/api/session", sec_fetch_site="cross-site").status == 403


def test_a_link_of_another_site_opens_the_page(browser: ConsoleBrowser) -> None:
    """Links to statements are sent around; the page has nothing of a person until it asks with the cookie."""
    reply = browser.send("GET", "/", sec_fetch_site="cross-site")
    assert (reply.status, reply.headers["x-frame-options"]) == (200, "DENY")
    assert reply.headers["cross-origin-resource-policy"] == "same-origin"


def test_behind_a_proxy_with_tls_the_cookie_is_for_https_alone(browser: ConsoleBrowser) -> None:
    body = json.dumps({"user": "anna", "password": PASSWORD}).encode()
    reply = browser.send("POST", "/api/login", body, origin=f"https://{browser.host}")
    assert "Secure" in reply.headers["set-cookie"].split("; ")
    assert browser.get("session").document["name"] == "anna"


@pytest.mark.parametrize("host", ["[", "a/static/main.js#"])
def test_a_host_that_is_none_changes_no_address(browser: ConsoleBrowser, host: str) -> None:
    assert browser.send("GET", "/api/session", host=host).status == 401


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "application/json"),
        (b"[]", "application/json"),
        (b"{", "application/json"),
        (b"\xff", "application/json"),
        (b"[" * 100_000, "application/json"),
        (b'{"user": 1}', "application/json"),
        (b'{"user": ["a"], "password": {}}', "application/json"),
        (b'{"user": "a\\u0000", "password": "b"}', "application/json"),
        (b'{"user": "a\\ud800", "password": "b"}', "application/json"),
        (b'{"user": "a", "token": "b"}', "application/json"),
        (b"user=anna", "application/x-www-form-urlencoded"),
        (b"{}", "text/plain"),
    ],
)
def test_a_login_that_is_none_is_refused(
    browser: ConsoleBrowser, body: bytes, kind: str
) -> None:
    reply = browser.send("POST", "/api/login", body, content_type=kind)
    assert reply.status == 400
    assert reply.document["error"]["class"] == "BadParameter"


def test_a_body_is_bounded(browser: ConsoleBrowser) -> None:
    reply = browser.send("POST", "/api/login", b" " * ((1 << 20) + 1))
    assert (reply.status, reply.document["error"]["class"]) == (413, "LimitExceeded")


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py", "/static/%2e%2e/app.py", "/static/", "/static/index.html", "/index.html", "//", "/etc/passwd",
        "/static/main.js/", "/static/..%2fapp.py", "/%00", "/static/main.js%00",
    ],
)  # fmt: skip
def test_only_the_consoles_own_files_are_served(browser: ConsoleBrowser, path: str) -> None:
    assert browser.send("GET", path).status == 404


def test_files_are_asked_again_by_their_tag_and_only_read(browser: ConsoleBrowser) -> None:
    first = browser.send("GET", "/static/main.js")
    assert (first.status, first.headers["content-type"]) == (
        200,
        "text/javascript; charset=utf-8",
    )
    again = browser.send("GET", "/static/main.js", if_none_match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    assert browser.send("HEAD", "/").body == b""
    assert browser.send("POST", "/static/main.js", b"{}").status == 405


@pytest.mark.parametrize(
    ("error", "status", "sentence"),
    [
        (UnknownTable("no such table."), 404, "no such table."),
        (BadParameter("wrong."), 400, "wrong."),
        (
            NoServer("dial tcp"),
            503,
            "the server does not answer; the page goes on once it does.",
        ),
        (StalePlan("gone."), 409, "gone."),
        (LimitExceeded("too large."), 413, "too large."),
        (ValueError("/secret/path"), 500, "the console met ValueError; report it."),
    ],
)
def test_an_error_is_a_sentence_by_its_family(
    anna: ConsoleBrowser, state: dict[str, object], error: Exception, status: int, sentence: str
) -> None:
    state["error"] = error
    reply = anna.get("tables")
    assert (reply.status, reply.sentence) == (status, sentence)
    assert anna.get("session").status == 200


def test_a_login_that_the_server_ended_is_over_here(
    anna: ConsoleBrowser, state: dict[str, object]
) -> None:
    state["error"] = NotLetIn("log in again.")
    assert anna.get("tables").status == 401
    del state["error"]
    assert anna.get("session").status == 401


def test_tabs_of_one_person_share_an_answer_of_a_second(state: dict[str, object]) -> None:
    persons: list[FixedPerson] = []

    def log_in(credentials: LoginForm) -> FixedPerson:
        persons.append(FixedPerson(credentials, state))
        return persons[-1]

    with console_over(URI, log_in) as anna:
        anna.log_in("anna", PASSWORD)
        gate = state["gate"] = threading.Event()
        replies: list[int] = []
        tabs = [
            threading.Thread(target=lambda: replies.append(anna.get("tables").status))
            for _ in range(10)
        ]
        for tab in tabs:
            tab.start()
        while not persons[0].statements:
            time.sleep(0.01)
        gate.set()
        for tab in tabs:
            tab.join()
    assert replies == [200] * 10
    assert len(persons[0].statements) == 1


def test_a_busy_server_is_asked_less_often() -> None:
    """By two answers in a row: the first of a page opens connections."""

    def polled(*took_s: float) -> Poll:
        previous_s, last_s = took_s
        return Poll(began_s=time.monotonic(), previous_s=previous_s, took_s=last_s)

    assert polled(0.0, 3.0).due_s == pytest.approx(1, abs=0.1)
    assert polled(0.02, 0.03).due_s == pytest.approx(1, abs=0.1)
    assert polled(0.4, 0.2).due_s == pytest.approx(4, abs=0.1)
    assert polled(3.0, 2.0).due_s == pytest.approx(10, abs=0.1)


def test_an_answer_says_when_it_is_due_again(anna: ConsoleBrowser) -> None:
    first = anna.get("tables")
    assert 0 < int(first.headers["x-due-ms"]) <= 1_000


def test_one_login_asks_for_so_much_at_once(
    anna: ConsoleBrowser, state: dict[str, object]
) -> None:
    """However many pages it names: the threads are for all."""
    gate = state["gate"] = threading.Event()
    statuses: list[int] = []

    def look(number: int) -> None:
        statuses.append(anna.get("seam", catalog="a", schema="b", table=f"t{number}").status)

    pages = [threading.Thread(target=look, args=(number,)) for number in range(20)]
    try:
        for page in pages:
            page.start()
        deadline_s = time.monotonic() + 20
        while len(statuses) < 8 and time.monotonic() < deadline_s:
            time.sleep(0.01)
    finally:
        gate.set()
        for page in pages:
            page.join()
    assert sorted(statuses) == [200] * 12 + [503] * 8


def test_a_server_that_hangs_at_logout_holds_up_no_one(state: dict[str, object]) -> None:
    gate = threading.Event()

    class Hanging(FixedPerson):
        def close(self) -> None:
            gate.wait(20)

    with console_over(URI, lambda credentials: Hanging(credentials, state)) as browser:
        for end in (lambda: browser.post("logout"), lambda: browser.log_in("anna", PASSWORD)):
            browser.log_in("anna", PASSWORD)
            answer = threading.Thread(target=end)
            answer.start()
            answer.join(10)
            is_answered = not answer.is_alive()
            assert ConsoleBrowser(browser.port).get("session").status == 401
            assert is_answered
        gate.set()


def test_what_stays_the_same_is_not_sent_again(anna: ConsoleBrowser) -> None:
    first = anna.get("tables")
    assert json.loads(first.body)["tables"][0]["n"] == str(2**60)
    again = anna.send("GET", "/api/tables", if_none_match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize("at", ["1 OR 1", "-1", "1" * 20, "c:x", "'"])
def test_a_snapshot_is_a_number(anna: ConsoleBrowser, at: str) -> None:
    reply = anna.get("seam", catalog="lake", schema="net", table="flows", at=at)
    assert (reply.status, reply.sentence) == (400, "at is the id of a snapshot.")


def test_a_table_needs_its_three_names(anna: ConsoleBrowser) -> None:
    reply = anna.get("seam", catalog="lake", schema="net")
    assert (reply.status, reply.sentence) == (400, "table is missing.")


def test_names_go_into_sql_quoted(state: dict[str, object]) -> None:
    persons: list[FixedPerson] = []

    def log_in(credentials: LoginForm) -> FixedPerson:
        persons.append(FixedPerson(credentials, state))
        return persons[-1]

    with console_over(URI, log_in) as anna:
        anna.log_in("anna", PASSWORD)
        anna.get("seam", catalog="la'ke", schema='n"et', table="fl;ows")
    [sql] = persons[0].statements
    assert (
        "table_catalog = 'la''ke' AND table_schema = 'n\"et' AND table_name = 'fl;ows'" in sql
    )
    assert 'SELECT seam FROM (FROM "la\'ke"."n""et"."fl;ows$seam" ORDER BY' in sql


def test_a_login_without_a_name_is_for_addresses(browser: ConsoleBrowser) -> None:
    """A name of another site may come to mean this machine: what needs no login would answer that site."""
    name = f"elsewhere.example:{browser.port}"
    reply = browser.send("POST", "/api/login", b"{}", host=name, origin=f"http://{name}")
    assert reply.status == 400
    assert reply.sentence == (
        "without a user the console is open under its address alone; name it by its IP address, or as localhost."
    )
    for host in (
        f"localhost:{browser.port}",
        f"[::1]:{browser.port}",
        f"127.0.0.1:{browser.port}",
    ):
        let_in = browser.send("POST", "/api/login", b"{}", host=host, origin=f"http://{host}")
        assert let_in.status == 200
    body = json.dumps({"user": "anna", "password": PASSWORD}).encode()
    assert (
        browser.send("POST", "/api/login", body, host=name, origin=f"http://{name}").status
        == 200
    )


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def person(name: str) -> Person:
    return FixedPerson(LoginForm(name, PASSWORD), {})


def test_a_login_ends_when_it_is_idle_and_when_it_is_old() -> None:
    clock = Clock()
    entered = BrowserLogins(clock)
    idle, busy = entered.enter(person("anna")), entered.enter(person("anna"))
    while clock.now_s < logins.AGE_S - 1:
        clock.now_s += logins.IDLE_S - 1
        assert (entered.login(busy) is not None) == (clock.now_s <= logins.AGE_S)
    assert entered.login(idle) is None
    assert entered.login(busy) is None
    assert entered.login(None) is None


def test_logins_that_are_over_are_closed_by_themselves() -> None:
    clock, closed = Clock(), threading.Event()
    entered, anna = BrowserLogins(clock), person("anna")
    anna.close = closed.set  # type: ignore[method-assign]
    cookie = entered.enter(anna)
    entered.tidy()
    assert entered.login(cookie) is not None
    assert not closed.is_set()
    clock.now_s += logins.IDLE_S + 1
    entered.tidy()
    assert closed.wait(30)


def test_logins_are_bounded_for_one_and_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    entered = BrowserLogins()
    cookies = [entered.enter(person("anna")) for _ in range(21)]
    assert [entered.login(cookie) is None for cookie in cookies] == [True] + [False] * 20
    monkeypatch.setattr(logins, "MAX_LOGINS", 20)
    with pytest.raises(
        Overloaded, match=r"^20 browsers are logged in at this console; try again later\.$"
    ):
        entered.enter(person("bob"))


class Ended:
    """Stands for a run of another login that has ended."""

    state = "finished"
    is_dropped = False

    def drop(self) -> None:
        self.is_dropped = True


def test_answers_of_all_logins_have_so_much_room_and_the_oldest_go() -> None:
    room, answers = AnswerRoom(max_running=2, max_bytes=100), [Ended() for _ in range(3)]
    answers[1].state = "running"
    for answer in answers:
        room.grow(cast("Run", answer), 45)
    assert [answer.is_dropped for answer in answers] == [True, False, False]
    room.grow(cast("Run", answers[1]), 60)
    assert [answer.is_dropped for answer in answers] == [True, False, True]


def test_so_many_statements_run_at_once() -> None:
    room = AnswerRoom(max_running=1)
    room.enter()
    with pytest.raises(
        LimitExceeded,
        match=r"^1 statements run from this console; try again when one of them has ended\.$",
    ):
        room.enter()
    room.leave()
    room.enter()


def test_a_provider_that_does_not_answer_is_a_sentence() -> None:
    client = RegisteredClient("http://127.0.0.1:1/oidc", "console", "openid", "of-a-test")
    assert "of-a-test" not in repr(client)
    with console_over(URI, _no_login, provider=IdentityProvider(client)) as browser:
        assert browser.send("POST", "/api/login/provider", b"{}", origin=None).status == 403
        reply = browser.post("login/provider")
        assert (reply.status, reply.sentence, browser.cookie) == (
            503,
            "the identity provider at 127.0.0.1:1 does not answer as one; try again.",
            "",
        )
        for cookie in ("", f"thermocline_{browser.port}_begun=state.verifier"):
            browser.cookie = cookie
            reply = browser.post("login", code="code", state="another")
            assert (reply.status, reply.sentence) == (
                401,
                "this login was begun in another browser, or long ago; log in again.",
            )


def test_a_console_without_a_provider_knows_none() -> None:
    with console_over(URI, _no_login) as browser:
        for reply in (browser.post("login/provider"), browser.post("login", code="x")):
            assert (reply.status, reply.sentence) == (
                400,
                "this console knows no identity provider.",
            )


def _no_login(_: LoginForm) -> Person:
    pytest.fail("it asks the server")
