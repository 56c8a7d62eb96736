"""How often the engine's watch looks: seldom while all is well, since each look takes Python's lock from a statement."""

import threading
import time
from typing import Any

from planner.errors import Cancelled, FederationError
from proxy.engine.running import Watch

_SECONDS = 0.5
_SOON_S = 30.0


class FakeCall:
    """A running call that notes when it is looked at, and interrupted."""

    def __init__(self) -> None:
        self.reason: FederationError | None = None
        self.checks = 0
        self.interrupts = 0
        self.enough = threading.Event()

    def stopped(self) -> FederationError | None:
        self.checks += 1
        return self.reason

    def interrupt(self) -> None:
        self.interrupts += 1
        if self.interrupts >= 5:
            self.enough.set()

    def give_way(self) -> None:
        pass


def test_it_looks_seldom_and_interrupts_until_the_call_returns() -> None:
    watch, call = Watch(), FakeCall()
    running: Any = call
    watch.enter(running)
    try:
        time.sleep(_SECONDS)
        # Each 50 ms, and at once: on a busy machine less often.
        assert 1 <= call.checks <= 20 * _SECONDS + 2
        assert not call.interrupts
        call.reason = Cancelled("given up")
        assert call.enough.wait(_SOON_S)
    finally:
        watch.leave(running)
        watch.close()


def test_it_sleeps_once_nothing_runs() -> None:
    watch, call = Watch(), FakeCall()
    running: Any = call
    watch.enter(running)
    watch.leave(running)
    time.sleep(0.2)
    checks = call.checks
    time.sleep(0.2)
    assert call.checks == checks
    watch.close()
