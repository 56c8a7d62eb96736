"""Noticing clients that leave: everyone gets his turn, however many wait."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Hashable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from planner.errors import Cancelled, Overloaded
from proxy.access.limits import FAILURES_PER_S, MAX_PAUSE_S, Failures
from proxy.flightsql.state import calls as calls_module
from proxy.flightsql.state.calls import Calls, hang_up
from proxy.ops.call_record import CallRecord


def test_one_that_leaves_is_noticed_among_many_and_all_are_asked_alike() -> None:
    calls = Calls(poll_s=0.002)
    request: Counter[int] = Counter()
    gone, observed = threading.Event(), threading.Event()

    def left(number: int) -> bool:
        request[number] += 1
        return number == 97 and gone.is_set()

    live = [calls.begin(CallRecord("DoGet")) for _ in range(100)]
    for number, call in enumerate(live):
        call.watch(partial(left, number))
    with live[97].cancellation.interrupting(observed.set):
        gone.set()
        assert observed.wait(60)
    # The one that left was asked again for as long as anybody: those before it in line had as many turns, or one less.
    counts = {request[number] for number in range(100)}
    assert max(counts) - min(counts) <= 2
    assert isinstance(live[97].cancellation.reason, Cancelled)
    assert all(call.cancellation.reason is None for call in live if call is not live[97])
    for call in live:
        calls.end(call)
    assert calls.close(10)


def test_clients_that_are_slow_to_be_asked_for_are_asked_for_less_often() -> None:
    """pyarrow keeps Python's lock while it asks gRPC, for 10 ms under load: nobody else would get on."""
    calls = Calls(poll_s=0.002)
    polls = []

    def left() -> bool:
        polls.append(time.monotonic())
        time.sleep(0.02)
        return False

    call = calls.begin(CallRecord("DoGet"))
    call.watch(left)
    until = time.monotonic() + 60.0
    while len(polls) < 4 and time.monotonic() < until:
        time.sleep(0.01)
    calls.end(call)
    assert calls.close(10)
    assert polls[3] - polls[0] > 3 * 0.02 * calls_module._PAUSES / 2


def test_a_look_that_fails_ends_no_watching() -> None:
    calls = Calls(poll_s=0.002)

    def failing() -> bool:
        raise OSError(errno.EMFILE, "no")

    broken, leaving = (calls.begin(CallRecord("DoGet")) for _ in range(2))
    broken.watch(failing)
    observed = threading.Event()
    with leaving.cancellation.interrupting(observed.set):
        leaving.watch(lambda: True)
        assert observed.wait(60)
    for call in (broken, leaving):
        calls.end(call)
    assert calls.close(10)


def test_who_hangs_up_leaves_no_file_open(tmp_path: Path) -> None:
    """Beside one connection that is ended: one that is not, a file, and a pipe."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        stack.enter_context((tmp_path / "file").open("w"))
        for end in os.pipe():
            stack.callback(os.close, end)
        clients = []
        for _ in range(2):
            client = stack.enter_context(socket.create_connection(listening.getsockname()))
            clients.append(client)
            stack.enter_context(listening.accept()[0])
        before = len(list(Path("/proc/self/fd").iterdir()))
        host, port = clients[0].getsockname()
        hang_up({f"ipv4:{host}:{port}"})
        assert len(list(Path("/proc/self/fd").iterdir())) == before
        assert clients[0].recv(1) == b""
        clients[1].setblocking(False)
        with pytest.raises(BlockingIOError):
            clients[1].recv(1)


def test_a_failure_that_waits_is_over_but_for_its_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paused = threading.Event()
    goes_on = threading.Event()

    def sleeping(seconds: float) -> None:
        if seconds == MAX_PAUSE_S:
            paused.set()
            assert goes_on.wait(10)

    monkeypatch.setattr(Failures, "pause_s", lambda *_: MAX_PAUSE_S)
    monkeypatch.setattr(time, "sleep", sleeping)
    lines: list[CallRecord] = []
    calls = Calls(journals=[lines.append], max_calls=1)
    call = calls.begin(CallRecord("DoGet"), "ada")
    call.record.failed(Cancelled("no"))
    ending = threading.Thread(target=calls.end, args=(call,))
    ending.start()
    assert paused.wait(10)
    assert calls.drain(10)
    assert lines == [call.record]
    with pytest.raises(Overloaded):
        calls.begin(CallRecord("DoGet"), "ada")
    goes_on.set()
    ending.join(10)
    calls.end(calls.begin(CallRecord("DoGet"), "ada"))
    assert calls.close(10)


def test_who_fails_before_his_limits_are_known_is_paced_as_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates: list[float | None] = []

    def noting(failures: Failures, owner: Hashable, per_s: float | None) -> float:
        rates.append(per_s)
        return 0.0

    monkeypatch.setattr(Failures, "pause_s", noting)
    calls = Calls()
    call = calls.begin(CallRecord("DoGet"), "ada")
    call.record.failed(Cancelled("no"))
    calls.end(call)
    assert calls.close(10)
    assert rates == [FAILURES_PER_S]
