"""The REST catalog's HTTP by itself: callers, paths and answers, over fixed tables."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import threading
import time
from collections.abc import Iterator
from typing import Any, cast
from urllib.parse import urlencode

import pytest

from planner.errors import LogUnavailable, NotAllowed, TailGap, Unavailable, UnknownTable
from planner.live.client_answers import DUCKDB_SKEW_MS
from planner.names import TableName
from proxy.access.authentication.callers import Unauthenticated
from proxy.access.limits import UserLimits
from proxy.flightsql.middleware import CallGate
from proxy.live.tables import LiveTables, LoadedTable
from proxy.ops.call_record import CallRecord
from proxy.rest.app import RestApplication
from proxy.rest.catalog import HandOut, LiveCatalog
from proxy.session import Deadline, Session
from tests.harness.builders import FLOWS

METADATA = {
    "location": "file:///lake/net/flows",
    "refs": {}, "last-updated-ms": 1, "snapshots": [{"snapshot-id": 1}],
    "snapshot-log": [{"snapshot-id": 1}],
}  # fmt: skip


class FixedTables:
    """Stands for ``LiveTables``: one table, answered as it is."""

    clock = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.sessions: list[Session] = []
        #: Loads of anna wait for it.
        self.is_open = threading.Event()
        self.is_open.set()
        #: Listings at work, which wait for it.
        self.listing = 0
        self.lists = threading.Event()
        self.lists.set()

    def visible(self, session: Session, *, is_new: bool = False) -> list[TableName]:
        self.listing += 1
        self.lists.wait()
        return [FLOWS]

    def check(self, session: Session, table: TableName) -> None:
        if table != FLOWS:
            raise UnknownTable("there is no such table.")

    def load(
        self,
        session: Session,
        table: TableName,
        deadline: Deadline,
        arrival_s: float | None = None,
    ) -> LoadedTable:
        assert arrival_s is not None
        assert arrival_s <= time.monotonic()
        self.sessions.append(session)
        self.check(session, table)
        while session.user == "anna" and not self.is_open.wait(0.01):
            deadline.cancellation.check()
        if self.error is not None:
            raise self.error
        return LoadedTable(
            "file:///live/00000-a.metadata.json", json.dumps(METADATA).encode(), '"tag"'
        )


class OpenGate:
    """Stands for ``CallGate``: anna may come in, and whoever says nothing. A password is checked once ``checks`` is set."""

    policy = None

    def __init__(self) -> None:
        self.policy = self
        self.is_draining = False
        self.timeout_s = 60.0
        self.is_remembered = False
        self.reminded = 0
        self.checks = threading.Event()
        self.checks.set()

    def limits_of(self, user: str | None, groups: frozenset[str]) -> UserLimits:
        return UserLimits(timeout_s=self.timeout_s)

    def admitted(self, authorization: str | None) -> Session:
        if self.is_draining:
            raise Unavailable("the server is about to stop.")
        if authorization == basic("anna:pass word"):
            self.checks.wait()
        elif authorization not in (None, "Bearer token of anna"):
            raise Unauthenticated("nobody knows you.")
        return Session("s", "anna" if authorization else None)

    def remembers(self, user: str, password: str) -> bool:
        self.reminded += 1
        return self.is_remembered

    def log_in(self, user: str, password: str) -> str:
        if (user, password) != ("anna", "pass word"):
            raise Unauthenticated("Unknown user or wrong password.")
        return "token of anna"


class Site:
    def __init__(self) -> None:
        self.tables, self.gate = FixedTables(), OpenGate()
        self.records: list[CallRecord] = []
        self.credentials: dict[str, str] = {}
        self.by_prefix: list[tuple[str, dict[str, str]]] = []
        self.now_s = 119.9
        catalog = LiveCatalog(
            cast("LiveTables", self.tables),
            lambda _: ("lake",),
            lambda _: HandOut(self.credentials, self.by_prefix),
            lambda: self.now_s,
        )
        self.app = RestApplication(catalog, cast("CallGate", self.gate), [self.records.append])

    def ask(
        self, path: str, method: str = "GET", body: bytes = b"", **headers: Any
    ) -> tuple[int, dict[str, str], Any]:
        return asyncio.run(self.answer_to(path, method, body, **headers))

    async def answer_to(
        self,
        path: str,
        method: str = "GET",
        body: bytes = b"",
        until: asyncio.Event | None = None,
        **headers: Any,
    ) -> tuple[int, dict[str, str], Any]:
        """``until``: when the client leaves, if it does."""
        plain, _, query = path.partition("?")
        named = [
            (name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()
        ]
        scope: dict[str, Any] = {
            "type": "http", "method": method, "path": plain, "raw_path": plain.encode(),
            "query_string": query.encode(), "headers": named, "client": ("127.0.0.1", 1),
        }  # fmt: skip
        sent: list[Any] = []
        bodies = [body]

        async def receive() -> dict[str, Any]:
            if bodies:
                return {"type": "http.request", "body": bodies.pop(), "more_body": False}
            await (until or asyncio.Event()).wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        text = b"".join(part.get("body", b"") for part in sent[1:])
        answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], answered, json.loads(text) if text else None


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.app.close()


LOAD = "/v1/lake/namespaces/net/tables/flows"


def kind(answer: tuple[int, dict[str, str], Any]) -> tuple[int, str]:
    return answer[0], answer[2]["error"]["type"]


def test_a_load_has_metadata_location_and_configuration(site: Site) -> None:
    status, headers, body = site.ask(LOAD)
    assert (status, headers["etag"], headers["cache-control"]) == (200, '"tag"', "no-store")
    assert body == {
        "metadata-location": "file:///live/00000-a.metadata.json",
        "metadata": METADATA,
        "config": {},
    }
    (record,) = site.records
    assert (record.method, record.table, record.outcome) == ("LoadTable", str(FLOWS), "ok")


DUCKDB = "duckdb/v1.5.5(linux_amd64) python"
CLICKHOUSE = "ClickHouse/26.9.2.1"


@pytest.mark.parametrize(
    ("path", "headers", "etag", "snapshots", "log"),
    [
        ("?snapshots=all", {}, '"tag"', 1, 1),
        ("?snapshots=refs", {}, '"tag-refs"', 0, 1),
        ("", {"user_agent": DUCKDB}, '"tag-duckdb-60000"', 0, 0),
        ("?snapshots=refs", {"user_agent": DUCKDB}, '"tag-refs-duckdb-60000"', 0, 0),
        ("", {"user_agent": CLICKHOUSE}, '"tag-clickhouse"', 1, 1),
    ],
)
def test_variants_of_an_answer_have_etags_of_their_own(
    site: Site, path: str, headers: dict[str, Any], etag: str, snapshots: int, log: int
) -> None:
    _, answered, body = site.ask(LOAD + path, **headers)
    metadata = body["metadata"]
    assert answered["etag"] == etag
    assert (len(metadata["snapshots"]), len(metadata["snapshot-log"])) == (snapshots, log)
    assert site.ask(LOAD + path, if_none_match=f'"other", W/{etag}', **headers)[0] == 304


def test_an_answer_that_depends_on_the_time_is_another_one_each_minute(site: Site) -> None:
    def answer(**headers: Any) -> tuple[int, str, Any]:
        status, named, body = site.ask(LOAD, user_agent=DUCKDB, **headers)
        return status, named["etag"], body and body["metadata"]["last-updated-ms"]

    assert answer() == (200, '"tag-duckdb-60000"', 60_000 - DUCKDB_SKEW_MS)
    site.now_s = 120.0
    second = answer(if_none_match='"tag-duckdb-60000"')
    assert second == (200, '"tag-duckdb-120000"', 120_000 - DUCKDB_SKEW_MS)
    site.now_s = 179.9
    assert answer() == second
    assert answer(if_none_match=second[1]) == (304, second[1], None)
    # Others have one answer, whatever the time.
    assert site.ask(LOAD, if_none_match='"tag"')[0] == 304


@pytest.mark.parametrize(
    ("agent", "location", "status"),
    [("PyIceberg/0.12.0", METADATA["location"], 422), (CLICKHOUSE, "file:///live", 400)],
)
def test_clickhouse_opens_a_table_below_its_location_and_asks_once_for_one_that_is_refused(
    site: Site, agent: str, location: str, status: int
) -> None:
    _, _, body = site.ask(LOAD, user_agent=agent)
    assert body["metadata"] == METADATA | {"location": location}
    site.tables.error = TailGap("net.flows: records are missing.")
    error = {"message": "net.flows: records are missing.", "type": "TailGap", "code": status}
    answered, _, body = site.ask(LOAD, user_agent=agent)
    assert (answered, body) == (status, {"error": error})


def test_keys_are_handed_out_where_there_are_some_and_new_ones_are_another_answer(
    site: Site,
) -> None:
    site.credentials = {"s3.access-key-id": "first"}
    _, first, body = site.ask(LOAD)
    assert body["config"] == site.credentials
    assert site.ask(LOAD, if_none_match=first["etag"])[0] == 304
    site.credentials = {"s3.access-key-id": "second"}
    status, second, body = site.ask(LOAD, if_none_match=first["etag"])
    assert (status, body["config"]) == (200, site.credentials)
    assert len({'"tag"', first["etag"], second["etag"]}) == 3
    site.by_prefix = [("s3://old/", {"s3.access-key-id": "third"})]
    _, third, body = site.ask(LOAD, if_none_match=second["etag"])
    assert body["storage-credentials"] == [
        {"prefix": "s3://old/", "config": {"s3.access-key-id": "third"}}
    ]
    assert (body["config"], third["etag"] == second["etag"]) == (site.credentials, False)


def test_headers_say_how_new(site: Site) -> None:
    site.ask(LOAD, thermocline_freshness="MAX_STALENESS 5s", thermocline_wait_for="flows/0:7")
    (session,) = site.tables.sessions
    assert (session.freshness, session.wait_for) == ("max_staleness 5s", "flows/0:7")


@pytest.mark.parametrize(
    ("contract", "freshness", "wait_for"),
    [
        ("cold", "cold", None),
        ("MAX_STALENESS 5s", "max_staleness 5s", None),
        ("wait_for flows/0:7, flows/1:9", None, "flows/0:7, flows/1:9"),
        ("max_staleness 5s; wait_for flows/0:7", "max_staleness 5s", "flows/0:7"),
    ],
)
def test_a_warehouse_says_how_new(
    site: Site, contract: str, freshness: str | None, wait_for: str | None
) -> None:
    query = urlencode({"warehouse": f"lake@{contract}"})
    prefix = site.ask(f"/v1/config?{query}")[2]["overrides"]["prefix"]
    # No client encodes any of these, and each may stand in a path as it is.
    assert re.fullmatch(r"lake@f:[\w-]+", prefix)
    path = f"/v1/{prefix}/namespaces/net/tables/flows"
    assert site.ask(path)[0] == 200
    assert site.ask(path, thermocline_freshness="live")[0] == 200
    by_warehouse, by_header = site.tables.sessions
    assert (by_warehouse.freshness, by_warehouse.wait_for) == (freshness, wait_for)
    assert (by_header.freshness, by_header.wait_for) == ("live", wait_for)
    assert site.ask(f"/v1/{prefix}/namespaces")[2] == {"namespaces": [["net"]]}


@pytest.mark.parametrize(
    "contract", ["soon", "wait_for flows", "cold;live", "f:%%%", "f:_w", "", "max_staleness"]
)
def test_what_no_contract_is_is_refused_before_a_table_is_loaded(
    site: Site, contract: str
) -> None:
    query = urlencode({"warehouse": f"lake@{contract}"})
    assert kind(site.ask(f"/v1/config?{query}")) == (400, "BadRequestException")


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/v1/lake/namespaces/net/tables/no", 404, "NoSuchTableException"),
        ("/v1/lake/namespaces/net/views/no", 404, "NoSuchViewException"),
        ("/v1/lake/namespaces/no/views", 404, "NoSuchNamespaceException"),
        ("/v1/sea/namespaces", 404, "NoSuchWarehouseException"),
        ("/v1/lake/functions", 404, "NoSuchEndpointException"),
        ("/v2/config", 404, "NoSuchEndpointException"),
        ("/", 404, "NoSuchEndpointException"),
        (LOAD + "?snapshots=few", 400, "BadRequestException"),
        ("/v1/lake/namespaces?pageSize=many", 400, "BadRequestException"),
    ],
)
def test_what_is_not_there_is_told_as_the_specification_has_it(
    site: Site, path: str, status: int, error: str
) -> None:
    assert kind(site.ask(path)) == (status, error)


@pytest.mark.parametrize("prefix", ["/v1/lake", "/v1"])
def test_listings_work_with_and_without_a_prefix(site: Site, prefix: str) -> None:
    assert site.ask(f"{prefix}/namespaces")[2] == {"namespaces": [["net"]]}
    assert site.ask(f"{prefix}/namespaces/net")[2] == {"namespace": ["net"], "properties": {}}
    assert site.ask(f"{prefix}/namespaces/net", "HEAD")[0] == 204
    tables = site.ask(f"{prefix}/namespaces/net/tables?pageSize=5")[2]
    assert tables == {"identifiers": [{"namespace": ["net"], "name": "flows"}]}
    assert site.ask(f"{prefix}/namespaces/net/tables/flows", "HEAD")[0] == 204
    assert site.ask(f"{prefix}/namespaces/net/tables/no", "HEAD")[0] == 404
    assert site.ask(f"{prefix}/namespaces/net/tables/flows/metrics", "POST")[0] == 204
    assert site.ask(f"{prefix}/namespaces/net/views")[2] == {"identifiers": []}


def test_a_write_is_forbidden(site: Site) -> None:
    answer = site.ask(LOAD, "POST", b"{}")
    assert kind(answer) == (403, "ForbiddenException")
    assert "write to catalog lake itself" in answer[2]["error"]["message"]


def test_when_to_ask_again_is_told(site: Site) -> None:
    site.tables.error = LogUnavailable("no broker answers.")
    answer = site.ask(LOAD)
    assert kind(answer) == (503, "ServiceUnavailableException")
    assert answer[1]["retry-after"] == "2"
    site.gate.is_draining = True
    assert kind(site.ask(LOAD)) == (503, "ServiceUnavailableException")


def test_who_is_not_known_is_told_how_to_say(site: Site) -> None:
    answer = site.ask(LOAD, authorization="Bearer other")
    assert kind(answer) == (401, "NotAuthorizedException")
    assert answer[1]["www-authenticate"].startswith("Bearer")
    site.tables.error = NotAllowed("a part of it only.")
    assert kind(site.ask(LOAD)) == (403, "ForbiddenException")


def form(**fields: str) -> bytes:
    return urlencode({"grant_type": "client_credentials", **fields}).encode()


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


def test_a_user_gets_a_sessions_token(site: Site) -> None:
    tokens = "/v1/oauth/tokens"
    in_form = site.ask(tokens, "POST", form(client_id="anna", client_secret="pass word"))
    in_header = site.ask(tokens, "POST", form(), authorization=basic("anna:pass+word"))
    assert in_form[2] == in_header[2]
    assert (in_form[2]["access_token"], in_form[2]["token_type"]) == ("token of anna", "bearer")
    answered = [
        site.ask(tokens, "POST", form(client_id="anna", client_secret="no")),
        site.ask(tokens, "POST", form(client_id="anna")),
        site.ask(tokens, "POST", form(), authorization="Basic %%%"),
        site.ask(tokens, "POST", form(), authorization=basic("no colon")),
        site.ask(tokens, "POST", b"grant_type=refresh_token"),
    ]
    assert [(status, body["error"]) for status, _, body in answered] == [
        (401, "invalid_client"),
        (400, "invalid_request"),
        (400, "invalid_request"),
        (400, "invalid_request"),
        (400, "unsupported_grant_type"),
    ]
    assert kind(site.ask(tokens)) == (404, "NoSuchEndpointException")


def test_a_large_body_is_refused_unread(site: Site) -> None:
    assert kind(site.ask("/v1/oauth/tokens", "POST", b"x" * (1 << 21)))[0] == 413
    assert kind(site.ask("/v1/oauth/tokens", "POST", b"x" * (1 << 17)))[0] == 413
    assert site.ask(f"{LOAD}/metrics", "POST", b"x" * (1 << 17))[0] == 204


def test_a_form_of_many_fields_is_refused(site: Site) -> None:
    status, _, body = site.ask("/v1/oauth/tokens", "POST", b"a=1&" * 200)
    assert (status, body["error"]) == (400, "invalid_request")


def test_loads_of_one_user_leave_places_for_others(site: Site) -> None:
    site.tables.is_open.clear()

    async def story() -> None:
        token = "Bearer token of anna"
        loads = [
            asyncio.create_task(site.answer_to(LOAD, authorization=token)) for _ in range(200)
        ]
        deadline = time.monotonic() + 30
        while len(site.tables.sessions) < 19:  # three times what is free of 24 places, and one
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        status, _, _ = await asyncio.wait_for(site.answer_to(LOAD), 10)
        assert status == 200
        # What is no load has threads of its own.
        status, _, _ = await asyncio.wait_for(
            site.answer_to("/v1/config", authorization=token), 10
        )
        assert status == 200
        assert len(site.tables.sessions) == 20
        site.tables.is_open.set()
        assert {answer[0] for answer in await asyncio.gather(*loads)} == {200}

    asyncio.run(story())
    assert len(site.records) == 202


def test_a_load_waits_for_a_place_no_longer_than_it_may(site: Site) -> None:
    site.tables.is_open.clear()
    site.gate.timeout_s = 0.2

    async def story() -> None:
        token = "Bearer token of anna"
        loads = [
            asyncio.create_task(site.answer_to(LOAD, authorization=token)) for _ in range(40)
        ]
        deadline = time.monotonic() + 30
        while sum(load.done() for load in loads) < 21:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        late, working = await asyncio.wait(loads, timeout=0)
        assert (len(late), len(working)) == (21, 19)
        for load in late:
            status, headers, body = load.result()
            assert (status, headers["retry-after"]) == (503, "2")
            assert "longer than the 0.2 s this one may wait" in body["error"]["message"]
        site.tables.is_open.set()
        assert {answer[0] for answer in await asyncio.gather(*working)} == {200}

    asyncio.run(story())
    assert len(site.records) == 40


def test_a_client_that_leaves_makes_room_at_once(site: Site) -> None:
    """Also one that waits for a place, while all that are at work go on."""
    site.tables.is_open.clear()
    token = "Bearer token of anna"

    async def story() -> None:
        ends = [asyncio.Event() for _ in range(2)]
        at_work, waiting = (
            [
                asyncio.create_task(site.answer_to(LOAD, until=end, authorization=token))
                for _ in range(number)
            ]
            for end, number in zip(ends, (19, 21), strict=True)
        )
        deadline = time.monotonic() + 30
        while len(site.tables.sessions) < 19:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        left = []
        for end, loads in ((ends[1], waiting), (ends[0], at_work)):
            end.set()
            done, _ = await asyncio.wait(loads, timeout=10)
            left.append((len(done), {load.result()[0] for load in done}))
        site.tables.is_open.set()
        assert left == [(21, {503}), (19, {503})]
        assert (await site.answer_to(LOAD, authorization=token))[0] == 200

    asyncio.run(story())
    outcomes = [record.outcome for record in site.records]
    assert outcomes == ["Cancelled"] * 40 + ["ok"]


def test_more_loads_than_may_wait_are_told_to_come_again(site: Site) -> None:
    site.tables.is_open.clear()

    async def story() -> list[int]:
        token = "Bearer token of anna"
        loads = [
            asyncio.create_task(site.answer_to(LOAD, authorization=token)) for _ in range(900)
        ]
        first, _ = await asyncio.wait(loads, return_when=asyncio.FIRST_COMPLETED)
        status, headers, body = next(iter(first)).result()
        assert (status, headers["retry-after"]) == (503, "2")
        assert "what is left is for others" in body["error"]["message"]
        site.tables.is_open.set()
        return [answer[0] for answer in await asyncio.gather(*loads)]

    statuses = asyncio.run(story())
    assert (statuses.count(200), statuses.count(503)) == (769, 131)


def test_who_logs_in_does_not_wait_for_a_catalog_that_hangs(site: Site) -> None:
    """Not even while callers whose passwords were new wait for it."""
    site.tables.lists.clear()

    async def story() -> None:
        listings = [
            asyncio.create_task(
                site.answer_to("/v1/lake/namespaces", authorization=basic("anna:pass word"))
            )
            for _ in range(4)
        ]
        try:
            deadline = time.monotonic() + 30
            while site.tables.listing < 2:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            login = form(client_id="anna", client_secret="pass word")
            status, _, _ = await asyncio.wait_for(
                site.answer_to("/v1/oauth/tokens", "POST", login), 10
            )
            assert status == 200
            assert not any(listing.done() for listing in listings)
        finally:
            site.tables.lists.set()
        assert {answer[0] for answer in await asyncio.gather(*listings)} == {200}

    asyncio.run(story())
    assert len(site.records) == 5


def test_a_password_that_is_checked_again_holds_no_other_request_up(site: Site) -> None:
    site.gate.is_remembered = True
    site.gate.checks.clear()

    async def story() -> None:
        checking = [
            asyncio.create_task(
                site.answer_to("/v1/config", authorization=basic("anna:pass word"))
            )
            for _ in range(40)
        ]
        try:
            await asyncio.sleep(0)
            status, _, _ = await asyncio.wait_for(site.answer_to("/v1/config"), 10)
            assert status == 200
            assert not any(check.done() for check in checking)
        finally:
            site.gate.checks.set()
        assert {answer[0] for answer in await asyncio.gather(*checking)} == {200}

    asyncio.run(story())
    assert site.gate.reminded == 40
