"""The watchdog ends its process and says why, and leaves a healthy one alone."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from proxy.process.watchdog import EXIT_MEMORY, EXIT_SICK, EXIT_STUCK

SCRIPT = """
import logging, time
from proxy.process.watchdog import Watchdog
logging.basicConfig()
watchdog = Watchdog(grace_s=0.3, max_process_bytes={limit}, healthy=lambda: {healthy})
watchdog.start()
for _ in range(5):
    with watchdog.expecting({timeout}):
        time.sleep({work})
time.sleep(1.5)
watchdog.stop()
print("alive")
"""


def run(**values: object) -> subprocess.CompletedProcess[str]:
    facts = {"limit": 8 * 1024**3, "healthy": True, "timeout": 0.1, "work": 0.05} | values
    return subprocess.run(
        [sys.executable, "-c", SCRIPT.format(**facts)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


RELIEVED = """
import time
from types import SimpleNamespace
from proxy.process.watchdog import Watchdog, resident_bytes
held = [bytearray(64 << 20)]
asked = []
statements = SimpleNamespace(
    cancel_newest_statement=lambda: asked.append(resident_bytes()) or True,
    cancel_largest_owner=lambda: False, long=dict)
watchdog = Watchdog(grace_s=1, max_process_bytes=int(resident_bytes() * 1.05 + (64 << 20)),
                    statements=statements)
watchdog.start()
time.sleep(1)
calm = len(asked)
held.append(bytearray(64 << 20))
until = time.monotonic() + 30
while not asked and time.monotonic() < until:
    time.sleep(0.05)
time.sleep(1)
watchdog.stop()
print(calm, len(asked))
"""


def test_where_memory_is_short_a_statement_is_stopped_once_and_the_process_lives() -> None:
    done = subprocess.run(
        [sys.executable, "-c", RELIEVED],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout.split()[:1]) == (0, ["0"]), done.stderr
    assert 1 <= int(done.stdout.split()[1]) <= 2  # the interpreter may have grown a page


STOPPED = """
import logging, time
from proxy.process import watchdog
logging.basicConfig()
watchdog._MAX_SILENCE_S, watchdog._STOOD_STILL_S = 4.0, 1.5
held = watchdog.Watchdog(grace_s=3, max_process_bytes=None)
held.start()
with held.expecting(1.0):
    print("at work", flush=True)
    input()
time.sleep(1)
held.stop()
print("alive")
"""


def test_time_in_which_the_process_stood_still_is_not_held_against_anybody() -> None:
    """As a paused virtual machine, or a debugger, has it."""
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "at work\n"
    process.send_signal(signal.SIGSTOP)
    time.sleep(8)
    process.send_signal(signal.SIGCONT)
    reply, log = process.communicate("\n", timeout=60)
    assert (process.returncode, reply) == (0, "alive\n"), log
    assert "this process stood still for" in log


def test_work_within_its_deadline_and_grace_is_left_alone() -> None:
    done = run(work=0.2)
    assert (done.returncode, done.stdout) == (0, "alive\n")


@pytest.mark.parametrize(
    ("values", "code", "why"),
    [
        ({"work": 30}, EXIT_STUCK, "ignored its interrupt past its deadline"),
        ({"limit": 1024}, EXIT_MEMORY, "over max_process_bytes"),
        ({"healthy": False}, EXIT_SICK, "the engine refuses all work"),
    ],
)
def test_what_cannot_be_mended_ends_the_process(
    values: dict[str, object], code: int, why: str
) -> None:
    done = run(**values)
    assert done.returncode == code
    assert why in done.stderr
    assert "alive" not in done.stdout
