"""What the watchdog excuses: the time in which threads waited for a processor."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from proxy.engine.running import give_way
from proxy.process.watchdog import Watchdog, starved_fraction, thread_times


def test_only_what_threads_waited_for_a_processor_is_starved() -> None:
    before = {"1": (0, 0), "2": (50, 10), "9": (7, 7)}
    assert starved_fraction(before, {"1": (10, 0), "2": (50, 10)}) == 0
    assert starved_fraction(before, {"1": (10, 0), "2": (60, 70), "3": (5, 900)}) == 0.75
    assert starved_fraction(before, before) == starved_fraction({}, before) == 0


def test_threads_are_read_and_what_is_no_number_is_left_out(tmp_path: Path) -> None:
    for thread, text in {"1": "5 6 7\n", "2": "", "3": "a b c\n"}.items():
        (tmp_path / thread).mkdir()
        (tmp_path / thread / "schedstat").write_text(text)
    assert thread_times(tmp_path) == {"1": (5, 6)}
    assert thread_times(tmp_path / "none") == {}
    assert str(threading.get_native_id()) in thread_times()


@pytest.mark.skipif(
    os.getpriority(os.PRIO_PROCESS, 0) >= 10, reason="has little priority to give way with"
)
def test_a_thread_that_gives_way_to_a_busy_process_is_excused() -> None:
    """On one processor: a process without pause, and a thread of ours with the priority of long statements."""
    processor = {min(os.sched_getaffinity(0))}
    stopped = threading.Event()

    def work() -> None:
        thread = threading.get_native_id()
        os.sched_setaffinity(thread, processor)
        give_way(thread)
        while not stopped.is_set():
            pass

    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    late = threading.Thread(target=work)
    watchdog = Watchdog(grace_s=1.0, max_process_bytes=None)
    try:
        os.sched_setaffinity(busy.pid, processor)
        late.start()
        before_s = watchdog._lost_s
        for _ in range(5):
            watchdog._excuse(is_late=True)
            time.sleep(0.25)
        excused = (watchdog._lost_s - before_s) / (4 * 0.25)
    finally:
        stopped.set()
        busy.kill()
        busy.wait()
        late.join()
    assert 0.5 < excused <= 0.9


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_late_call_of_a_starved_process_gets_more_time(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.process.watchdog.starved_fraction", lambda *_: share)
    watchdog = Watchdog(grace_s=1.0, max_process_bytes=None)
    before_s = watchdog._lost_s
    for _ in range(40):
        watchdog._excuse(is_late=True)
    assert watchdog._lost_s - before_s == pytest.approx(10 * min(share, 0.9))
    watchdog._excuse(is_late=False)
    assert watchdog._lost_s - before_s == pytest.approx(10 * min(share, 0.9))
