"""What one user may take, and that it costs no other user anything."""

from __future__ import annotations

import queue
import re
import threading
import time
from collections import Counter
from contextlib import closing

import pyarrow as pa
import pytest
from pyarrow import flight

from planner.errors import Cancelled, Overloaded
from proxy.access.authentication.callers import Access, FixedUsers
from proxy.access.limits import MAX_PAUSE_S, Blame, Failures, Rate, UserLimits
from proxy.flightsql.state.calls import Call, Calls
from proxy.flightsql.state.streams import StreamQueue
from proxy.ops.call_record import CallRecord
from tests.harness.canned import USERS, CannedBackend, CannedServer, serve
from tests.harness.wire import fetched, get_options, login, select

SOON_S = 30


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def limited(backend: CannedBackend, **limits: float) -> CannedServer:
    """Each user has these limits, but for bob."""
    value = UserLimits(**limits)  # type: ignore[arg-type]

    def limits_of(user: str | None, groups: frozenset[str]) -> UserLimits:
        return UserLimits() if user == "bob" else value

    access = Access(FixedUsers(USERS).verify)
    return CannedServer(serve(backend, access, limits_of=limits_of, stream_wait_s=0.1), backend)


def test_one_user_s_streams_leave_the_places_of_others(backend: CannedBackend) -> None:
    canned_server = limited(backend, max_streams=1)
    with closing(flight.connect(canned_server.uri)) as client:
        ada, bob = login(client, "ada"), login(client, "bob")
        info = client.get_flight_info(select("trick slow"), ada)
        reader = client.do_get(info.endpoints[0].ticket, ada)
        assert reader.read_chunk().data.num_rows == 1
        another = login(client, "ada")
        with pytest.raises(flight.FlightUnavailableError, match="max_streams_per_user"):
            fetched(client, "SELECT 1", another)
        assert fetched(client, "SELECT 1 AS a", bob) == [{"a": 1}]
        reader.cancel()
    assert canned_server.server.stop(10)


def test_a_user_s_oldest_idle_session_makes_room_for_their_next(backend: CannedBackend) -> None:
    canned_server = limited(backend, max_sessions=2)
    with closing(flight.connect(canned_server.uri)) as client:
        bob = login(client, "bob")
        tokens = [login(client, "ada") for _ in range(3)]
        assert get_options(client, bob)
        assert get_options(client, tokens[1])
        assert get_options(client, tokens[2])
        with pytest.raises(flight.FlightUnauthenticatedError):
            get_options(client, tokens[0])
    assert canned_server.server.stop(10)


def test_sessions_at_work_are_not_ended_for_another(backend: CannedBackend) -> None:
    canned_server = limited(backend, max_sessions=1)
    with closing(flight.connect(canned_server.uri)) as client:
        ada = login(client, "ada")
        info = client.get_flight_info(select("trick slow"), ada)
        reader = client.do_get(info.endpoints[0].ticket, ada)
        assert reader.read_chunk().data.num_rows == 1
        with pytest.raises(flight.FlightUnavailableError, match="max_sessions_per_user"):
            login(client, "ada")
        login(client, "bob")
        reader.cancel()
    assert canned_server.server.stop(10)


def _often(client: flight.FlightClient, options: flight.FlightCallOptions) -> None:
    for _ in range(50):
        get_options(client, options)


def test_calls_of_one_user_are_counted_alone(backend: CannedBackend) -> None:
    canned_server = limited(backend, max_calls_per_s=2)
    with closing(flight.connect(canned_server.uri)) as client:
        ada, bob = login(client, "ada"), login(client, "bob")
        with pytest.raises(flight.FlightUnavailableError, match="max_calls_per_s_per_user"):
            _often(client, ada)
        assert get_options(client, bob)
    assert canned_server.server.stop(10)


def _fail(client: flight.FlightClient, options: flight.FlightCallOptions) -> float:
    began_s = time.monotonic()
    with pytest.raises(pa.ArrowInvalid):
        client.get_flight_info(select("trick fail BadStatement"), options)
    return time.monotonic() - began_s


def take_all_failures_for_one_moment(canned_server: CannedServer) -> None:
    """A slow machine would let the rate recover between two of them."""
    canned_server.server.gate.calls._failures = Failures(lambda: 0.0)


def test_failures_beyond_a_rate_wait_and_nothing_else_does(backend: CannedBackend) -> None:
    canned_server = limited(backend, max_failures_per_s=1)
    take_all_failures_for_one_moment(canned_server)
    with closing(flight.connect(canned_server.uri)) as client:
        ada, bob = login(client, "ada"), login(client, "bob")
        took_s = [_fail(client, ada) for _ in range(8)]
        # Five seconds' worth are told at once, each of the others after the longest pause.
        assert min(took_s[-2:]) >= MAX_PAUSE_S
        assert min(_fail(client, bob) for _ in range(3)) < 0.5
        assert get_options(client, ada)
    assert canned_server.server.stop(10)


def test_callers_nobody_knows_have_one_rate_of_failures(backend: CannedBackend) -> None:
    canned_server = limited(backend, max_failures_per_s=1)
    take_all_failures_for_one_moment(canned_server)
    took_s = []
    with closing(flight.connect(canned_server.uri)) as client:
        for number in range(8):
            began_s = time.monotonic()
            with pytest.raises(flight.FlightUnauthenticatedError):
                client.authenticate_basic_token(f"eve {number}", "wrong")
            took_s.append(time.monotonic() - began_s)
        assert min(took_s[-2:]) >= MAX_PAUSE_S
        assert login(client, "ada")
    assert canned_server.server.stop(10)


def test_a_rate_fills_up_again_and_holds_two_seconds_worth() -> None:
    clock = Clock()
    rate = Rate(clock)

    def spent() -> int:
        count = 0
        try:
            while count < 100:
                rate.spend("ada", 2)
                count += 1
        except Overloaded:
            pass
        return count

    assert spent() == 4
    clock.now_s += 0.5
    assert spent() == 1
    clock.now_s += 3_600
    assert spent() == 4


def test_a_slow_rate_lets_one_call_through() -> None:
    rate = Rate(Clock())
    rate.spend("ada", 0.1)
    with pytest.raises(Overloaded):
        rate.spend("ada", 0.1)


def test_users_seen_once_are_forgotten() -> None:
    clock = Clock()
    rate = Rate(clock)
    for number in range(12_000):
        rate.spend(f"user {number}", 1)
        clock.now_s += 0.01
    assert len(rate._due_s) < 10_001


def test_calls_in_all_are_bounded() -> None:
    calls = Calls(max_calls=2)
    items = [calls.begin(CallRecord("DO_GET")), calls.begin(CallRecord("DO_GET"))]
    with pytest.raises(Overloaded, match="too many calls"):
        calls.begin(CallRecord("DO_GET"))
    calls.end(items[0])
    calls.end(calls.begin(CallRecord("DO_GET")))
    calls.end(items[1])
    assert calls.close(1)


def test_an_answer_of_too_many_rows_or_bytes_ends_as_an_error(backend: CannedBackend) -> None:
    for what in ("rows", "bytes"):
        canned_server = limited(backend, **{f"max_{what}": 1_000})
        with closing(flight.connect(canned_server.uri)) as client:
            ada, bob = login(client, "ada"), login(client, "bob")
            fits, large = "SELECT * FROM range(10)", "SELECT * FROM range(1001)"
            assert len(fetched(client, fits, ada)) == 10
            with pytest.raises(
                pa.ArrowInvalid, match=f"more than 1,000 {what}.*max_result_{what}"
            ):
                fetched(client, large, ada)
            assert len(fetched(client, large, bob)) == 1_001
        assert canned_server.server.stop(10)


def test_an_answer_nobody_reads_is_given_up_and_its_place_is_free(
    backend: CannedBackend,
) -> None:
    canned_server = limited(backend, max_streams=1, answer_timeout_s=0.2)
    with closing(flight.connect(canned_server.uri)) as client:
        ada = login(client, "ada")
        info = client.get_flight_info(select("trick slow"), ada)
        reader = client.do_get(info.endpoints[0].ticket, ada)
        assert reader.read_chunk().data.num_rows == 1
        with pytest.raises(flight.FlightTimedOutError, match="answer_timeout_s"):
            reader.read_all()
    assert canned_server.server.stop(10)


class Streams:
    """Statements that take places and hold them until they are told to leave."""

    def __init__(self, streams: StreamQueue) -> None:
        self.queue = streams
        self.began: queue.Queue[str] = queue.Queue()
        self.refused: queue.Queue[Exception] = queue.Queue()
        self.calls: dict[str, Call] = {}
        self.threads: list[threading.Thread] = []

    def ask(self, name: str, user: str, most: int | None = None) -> None:
        """Start a statement, and wait until it has its place, waits for one, or is refused."""
        call = self.calls[name] = Call(CallRecord("DO_GET"))
        before = self.queue.waiting, self.began.qsize(), self.refused.qsize()

        def run() -> None:
            try:
                self.queue.take(call, user, most)
            except Exception as error:
                self.refused.put(error)
            else:
                self.began.put(name)

        self.threads.append(threading.Thread(target=run, daemon=True))
        self.threads[-1].start()
        until = time.monotonic() + SOON_S
        while (self.queue.waiting, self.began.qsize(), self.refused.qsize()) == before:
            assert time.monotonic() < until
            time.sleep(0.001)

    def next(self) -> str:
        return self.began.get(timeout=SOON_S)

    def leave(self, name: str) -> None:
        self.calls[name].end()


def test_places_go_to_who_has_fewest_and_then_to_who_waits_longest() -> None:
    request = Streams(StreamQueue(2, wait_s=SOON_S))
    for name in ("a1", "a2", "a3", "a4", "b1", "c1", "b2"):
        request.ask(name, name[0])
    assert {request.next(), request.next()} == {"a1", "a2"}
    order = []
    for leaving in ("a1", "b1", "a2", "c1", "a3"):
        request.leave(leaving)
        order.append(request.next())
    assert order == ["b1", "c1", "a3", "b2", "a4"]


def test_a_user_at_his_limit_lets_others_pass() -> None:
    request = Streams(StreamQueue(2, wait_s=SOON_S))
    for name in ("a1", "a2", "b1"):
        request.ask(name, name[0], most=1)
    assert [request.next(), request.next()] == ["a1", "b1"]
    request.leave("b1")
    assert request.queue.waiting == 1
    request.leave("a1")
    assert request.next() == "a2"


def test_the_queue_is_bounded_and_who_finds_it_full_is_told_when_to_retry() -> None:
    request = Streams(StreamQueue(1, wait_s=SOON_S, max_waiting=2))
    for name in ("a1", "a2", "b1", "c1"):
        request.ask(name, name[0])
    refused = request.refused.get(timeout=SOON_S)
    assert isinstance(refused, Overloaded)
    assert re.search(r"2 statements wait .*max_queued.* Retry in about \d+ s\.", str(refused))
    assert refused.facts["retry_after_s"] == 1
    assert request.queue.waiting == 2


def test_who_leaves_the_queue_takes_no_place() -> None:
    request = Streams(StreamQueue(1, wait_s=SOON_S))
    for name in ("a1", "b1", "c1"):
        request.ask(name, name[0])
    request.calls["b1"].cancellation.request()
    assert isinstance(request.refused.get(timeout=SOON_S), Cancelled)
    request.leave("a1")
    assert {request.next(), request.next()} == {"a1", "c1"}
    # A call that is given up frees its place before it ends, and once.
    request.ask("d1", "d")
    request.calls["c1"].cancellation.request()
    request.leave("c1")
    assert request.next() == "d1"
    request.ask("e1", "e")
    assert request.queue.waiting == 1


def test_a_wait_ends_with_an_error_that_names_the_limit() -> None:
    streams = StreamQueue(1, wait_s=0.05)
    streams.take(Call(CallRecord("DO_GET")), "ada", 1)
    for user, reply in (("ada", "max_streams_per_user"), ("bob", r"max_streams\)")):
        with pytest.raises(Overloaded, match=reply):
            streams.take(Call(CallRecord("DO_GET")), user, 1)
    assert streams.waiting == 0


def test_a_user_alone_leaves_a_place_for_who_comes_next() -> None:
    request = Streams(StreamQueue(8, wait_s=SOON_S))
    for number in range(10):
        request.ask(f"a{number}", "a")
    request.ask("b", "b")
    assert sorted(request.next() for _ in range(8)) == [
        *(f"a{number}" for number in range(7)),
        "b",
    ]
    assert request.queue.waiting == 3


def test_a_full_queue_makes_room_for_who_has_less_in_it() -> None:
    streams = StreamQueue(1, wait_s=SOON_S, max_waiting=2)
    value = Call(CallRecord("DO_GET"))
    streams.take(value, "ada", None)
    refused: queue.SimpleQueue[str] = queue.SimpleQueue()

    def wait(user: str, waiting: Call) -> None:
        try:
            streams.take(waiting, user, None)
        except Overloaded as error:
            refused.put(f"{user}: {error}")
        except Cancelled:
            pass

    calls, threads = [], []
    for user in ("ada", "ada", "bob"):
        calls.append(Call(CallRecord("DO_GET")))
        threads.append(threading.Thread(target=wait, args=(user, calls[-1])))
        threads[-1].start()
        until = time.monotonic() + SOON_S
        while streams.waiting < min(len(calls), 2):
            assert time.monotonic() < until
            time.sleep(0.005)
    said = refused.get(timeout=SOON_S)
    assert said.startswith("ada: The queue for a place (max_queued) is full, and most of what")
    assert streams.waiting == 2
    for call in calls:
        call.cancellation.request()
    for thread in threads:
        thread.join(SOON_S)
    value.end()


def test_whose_statements_ended_the_process_is_refused_by_name_and_others_are_not(
    backend: CannedBackend,
) -> None:
    blame = Blame()
    canned_server = CannedServer(
        serve(backend, Access(FixedUsers(USERS).verify), blame=blame), backend
    )
    with closing(flight.connect(canned_server.uri)) as client:
        ada, bob = login(client, "ada"), login(client, "bob")
        info = client.get_flight_info(select("SELECT 1 AS a"), ada)
        blame.assign("ada")
        assert fetched(client, "SELECT 1 AS a", ada) == [{"a": 1}]
        blame.assign("ada")
        with pytest.raises(
            flight.FlightUnavailableError, match=r"user 'ada' ended .* 2 times.*UTC"
        ):
            fetched(client, "SELECT 1 AS a", ada)
        with pytest.raises(flight.FlightUnavailableError, match="user 'ada' ended"):
            client.do_get(info.endpoints[0].ticket, ada).read_all()
        assert fetched(client, "SELECT 1 AS a", bob) == [{"a": 1}]
    assert canned_server.server.stop(10)


def test_who_waits_when_the_process_ends_reads_that_it_may_be_tried_again(
    backend: CannedBackend,
) -> None:
    canned_server = CannedServer(serve(backend, Access(FixedUsers(USERS).verify)), backend)
    with closing(flight.connect(canned_server.uri)) as client:
        ada = login(client, "ada")
        info = client.get_flight_info(select("trick slow"), ada)
        reader = client.do_get(info.endpoints[0].ticket, ada)
        assert reader.read_chunk().data.num_rows == 1
        canned_server.server.give_up("the process holds 3 bytes")
        with pytest.raises(
            flight.FlightUnavailableError, match=r"lost: .* Retry in a few seconds"
        ):
            reader.read_all()
    assert canned_server.server.stop(10)


def test_beside_others_a_user_s_costly_statements_are_at_work_a_few_at_a_time() -> None:
    request = Streams(StreamQueue(32, wait_s=SOON_S, first=4))
    request.ask("b", "bob")
    for number in range(8):
        request.ask(f"a{number}", "ada")
    assert request.queue.waiting == 4
    running = {request.next() for _ in range(5)}
    assert running == {"b", "a0", "a1", "a2", "a3"}
    request.calls["a0"].await_reader(SOON_S)  # it does not work, its client reads
    assert request.next() == "a4"
    # One that was short lets in one more than it leaves behind.
    request.leave("a1")
    assert {request.next(), request.next()} == {"a5", "a6"}


def test_when_the_first_who_waits_leaves_the_next_looks_for_room() -> None:
    request = Streams(StreamQueue(32, wait_s=SOON_S, first=4))
    request.ask("b", "bob")
    for number in range(7):
        request.ask(f"a{number}", "ada")
    running = {request.next() for _ in range(5)}
    for name in ("a4", "a5"):
        request.calls[name].cancellation.request()
        assert isinstance(request.refused.get(timeout=SOON_S), Cancelled)
    request.calls["a0"].await_reader(SOON_S)
    assert request.next() not in running


def test_those_who_wait_behind_the_first_do_not_wake_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searches: Counter[str] = Counter()
    request = Streams(StreamQueue(1, wait_s=SOON_S))
    admit = request.queue._admit

    def counting() -> None:
        searches[threading.current_thread().name] += 1
        admit()

    for number in range(5):
        request.ask(f"a{number}", "ada")
    monkeypatch.setattr(request.queue, "_admit", counting)
    monkeypatch.setattr(request.queue, "_look_s", 0.01)
    request.calls["a1"].cancellation.request()
    until = time.monotonic() + SOON_S
    while max(searches.values(), default=0) < 5:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert len(searches) <= 2  # the first, and who was it before


def test_a_user_alone_has_all_but_what_is_left_for_others_at_work() -> None:
    request = Streams(StreamQueue(32, wait_s=SOON_S, first=4))
    for number in range(25):
        request.ask(str(number), "ada")
    assert request.queue.waiting == 0
