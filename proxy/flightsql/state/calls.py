"""Client calls in progress: who still waits for an answer, and how to give one up.

Neither ADBC nor JDBC sends a cancel message: a client that lost interest ends its gRPC call, and only
``is_cancelled`` of that call shows it. One thread polls all calls.

A synchronous gRPC server reads and writes with no time limit, and pyarrow gives no way to cancel a call from here. So
the connection of one that waits for its client is shut down: reads find the end of the upload, writes fail.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import unquote

from planner.errors import Cancelled, DeadlineExceeded, FederationError, Unavailable
from proxy.access.fairness import Slots
from proxy.access.limits import FAILURES_PER_S, Failures
from proxy.ops.call_record import CallRecord, Journal
from proxy.session import Cancellation, Deadline

_log = logging.getLogger(__name__)

#: How often to look for clients that left. With more than _POLLS calls they take turns, so it takes longer.
POLL_S = 0.05
#: Asking gRPC whether a client left is a system call with Python's lock held: 50 us, on a busy machine 1 ms. So the pause
#: is this many times as long as the asking took, up to so many seconds.
_POLLS, _PAUSES, _MAX_PAUSE_S = 10, 20, 0.5
#: It goes on looking for so long after the last call: a wake for each small statement would take Python's lock from it.
_AWAKE_S = 1.0
#: gRPC gives every call a thread of its own, 80 KB each, and knows no limit. One user alone gets 529 of these.
MAX_CALLS = 704
#: The one owner under which failures of unknown callers count.
_UNKNOWN = ("unknown",)
_READ_LONGER = (
    "The answer was not read to its end within {:g} s. Read faster, or raise answer_timeout_s."
)
#: Close the connection of a cancelled call that is still inside gRPC after this time.
_HANG_UP_S = 1.0


class Call:
    """One client call, from its first byte to the last of its answer.

    ``resources`` are released when the call ends, however it ends.
    """

    def __init__(self, record: CallRecord) -> None:
        self.record = record
        self.cancellation = Cancellation()
        self.resources = ExitStack()
        #: What the call streams, for CancelFlightInfo; None until it streams a statement.
        self.ticket: bytes | None = None
        #: What the caller has seen before, of a call that follows a statement (``planner.seam.incremental``).
        self.after: str | None = None
        #: Among how many readers the client would share the answer out, as it says.
        self.max_endpoints: str | None = None
        #: Whether its tables must be open to it as a whole, as the client says.
        self.whole: str | None = None
        #: Settings for this call only, by name.
        self.settings: Mapping[str, str] = {}
        self.polled_s = time.monotonic()
        self._lock = threading.Lock()
        self._left: Callable[[], bool] | None = None
        self._answer: Deadline | None = None
        #: Of its statement.
        self.deadline: Deadline | None = None
        #: Whose share the call counts in.
        self.owner: Hashable = None
        #: Until when its client has to read or to send, and what is said if not; None: nothing is waited for.
        self._awaits: tuple[float, FederationError] | None = None
        self._abandoned_s: float | None = None
        self.max_failures_per_s: float | None = FAILURES_PER_S

    def await_upload(self, limit_s: float) -> None:
        """Have the call given up when its client sends nothing within ``limit_s``; ``proceed`` ends the wait."""
        self._await(
            limit_s,
            f"Nothing was uploaded for {limit_s:g} s. Send all of an upload at once and try again, or raise "
            f"upload_idle_s.",
        )

    def await_reader(self, limit_s: float | None) -> None:
        """Have the call given up when its client reads nothing within ``limit_s``; ``proceed`` ends the wait."""
        if limit_s is not None:
            self._await(
                limit_s,
                f"Nothing of the answer was read for {limit_s:g} s. Ask again and read faster, or raise "
                f"reader_idle_s.",
            )

    def _await(self, limit_s: float, why: str) -> None:
        self._awaits = (time.monotonic() + limit_s, DeadlineExceeded(why, timeout_s=limit_s))

    def proceed(self) -> None:
        """End the wait: the client read or sent."""
        self._awaits = None

    @property
    def awaits_client(self) -> bool:
        """Whether it is its client's turn, to send or to read."""
        return self._awaits is not None

    @property
    def waits_for(self) -> str | None:
        """What its statement waits for, in a word for people."""
        if self.awaits_client:
            return "client"
        return None if self.deadline is None else self.deadline.waits_for

    def hangs(self) -> bool:
        """Whether the call was given up a while ago, and its client is still waited for."""
        if self._awaits is None or self.cancellation.reason is None:
            return False
        if self._abandoned_s is None:
            self._abandoned_s = time.monotonic()
        return time.monotonic() >= self._abandoned_s + _HANG_UP_S

    def expire(self, limit_s: float) -> None:
        """Have the call given up when it is not over within ``limit_s``, a slow reader's time included."""
        self._answer = Deadline(limit_s)

    def watch(self, left: Callable[[], bool]) -> None:
        """Have ``left`` polled until the call ends: whether the client is gone."""
        with self._lock:
            self._left = left

    def poll(self) -> None:
        self.polled_s = time.monotonic()
        # The lock keeps the call's context alive: pyarrow's is a bare pointer into the call.
        with self._lock:
            gone = self._left is not None and self._left()
        if gone:
            self.cancellation.request(Cancelled("The client ended the call."))

    def check_time(self) -> None:
        """Give the call up if it takes too long, or its client does."""
        awaits = self._awaits
        if awaits is not None and time.monotonic() >= awaits[0]:
            self.cancellation.request(awaits[1])
        if self._answer is not None and self._answer.is_over:
            self.cancellation.request(self._answer.exceeded(_READ_LONGER))

    def end(self) -> None:
        with self._lock:
            self._left = None
        try:
            self.resources.close()
        except Exception:  # noqa: BLE001  the call is over: no client is left to tell
            _log.exception("a statement's resources were not released cleanly")


class Calls:
    """All calls of a server. Thread-safe."""

    def __init__(
        self,
        *,
        journals: Sequence[Journal] = (),
        max_calls: int = MAX_CALLS,
        poll_s: float = POLL_S,
    ) -> None:
        """``journals`` get the record of every call when it is over, on the call's own thread."""
        self._slots = Slots(max_calls, "calls")
        self._failures = Failures()
        self._journals = journals
        self._poll_s = poll_s
        self._changed = threading.Condition()
        self._live: set[Call] = set()
        self._draining = False
        self._closed = False
        #: The watcher waits for a call, however long. Else it looks again soon, and waking it is for nothing.
        self._is_asleep = False
        self._watcher = threading.Thread(target=self._watch, name="flight-watch", daemon=True)
        self._watcher.start()

    def begin(self, record: CallRecord, owner: Hashable = None) -> Call:
        """Register a call of ``owner``, a user as far as is known yet; the caller ends it.

        Raises:
            Unavailable: the server is shutting down.
            Overloaded: there are too many calls at once, in all or of this owner.
        """
        call = Call(record)
        call.owner = owner
        with self._changed:
            if self._closed:
                raise _shutting_down()
            self._slots.take(owner)
            self._live.add(call)
            if self._is_asleep:
                self._is_asleep = False
                self._changed.notify_all()
        return call

    def assign(self, call: Call, owner: Hashable) -> None:
        """Count a call in another owner's share from now on.

        Raises:
            Overloaded: as ``begin``.
        """
        if call.owner == owner:
            return
        with self._changed:
            if call in self._live:
                self._slots.take(owner)
                self._slots.leave(call.owner)
                call.owner = owner

    def end(self, call: Call) -> None:
        """Release what the call holds, and wait where its owner failed too often: in his share still. Idempotent."""
        call.end()
        call.record.over()
        with self._changed:
            if call not in self._live:
                return
            self._live.remove(call)
            if self._draining or self._closed:
                self._changed.notify_all()
        self.write_down(call.record)
        if call.record.has_failed:
            time.sleep(self._failures.pause_s(call.owner, call.max_failures_per_s))
        self._slots.leave(call.owner)

    def refuse(self, record: CallRecord, per_s: float | None) -> None:
        """Write down a call that was not let in. All of those have one share of failures."""
        self.write_down(record)
        time.sleep(self._failures.pause_s(_UNKNOWN, per_s))

    def write_down(self, record: CallRecord) -> None:
        for journal in self._journals:
            try:
                journal(record)
            except Exception:  # noqa: BLE001  the client has its answer; only the line is lost
                _log.exception("call %s was not written down", record.id)

    def live(self) -> tuple[Call, ...]:
        with self._changed:
            return tuple(self._live)

    @property
    def streaming(self) -> int:
        with self._changed:
            return sum(call.record.is_streaming for call in self._live)

    def waiting_for(self, what: str) -> int:
        """Count the statements that wait for one of ``proxy.session.WAITS`` just now."""
        return sum(call.waits_for == what and call.record.is_statement for call in self.live())

    def check_open(self) -> None:
        """Refuse what begins something new once the server is about to stop.

        Raises:
            Unavailable: it is.
        """
        if self._draining:
            raise _shutting_down()

    def drain(self, deadline_s: float) -> bool:
        """Let nothing new begin and wait for what runs; False if a call still ran at the deadline."""
        self._draining = True
        return self._wait_until_idle(deadline_s)

    def give_up(self, reason: FederationError) -> None:
        """Refuse new calls and give up the running ones; nothing is waited for."""
        with self._changed:
            self._closed = True
            live = tuple(self._live)
            self._changed.notify_all()
        for call in live:
            call.cancellation.request(reason)

    def close(self, deadline_s: float) -> bool:
        """Refuse new calls, give up the running ones; False if one ignored it until the deadline."""
        self.give_up(_shutting_down())
        return self._wait_until_idle(deadline_s)

    def _wait_until_idle(self, deadline_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._live, deadline_s)

    def _end_hanging(self, live: tuple[Call, ...]) -> None:
        """End the connections of calls that do not end, unless calls of others come over them, as by a proxy."""
        peers = {call.record.peer for call in live if call.hangs()}
        alone = {
            peer
            for peer in peers
            if peer is not None and len({c.owner for c in live if c.record.peer == peer}) == 1
        }
        if alone:
            hang_up(alone)

    def _watch(self) -> None:
        busy_s = -math.inf
        while True:
            with self._changed:
                if self._closed and not self._live:
                    return
                live = tuple(self._live)
                now_s = time.monotonic()
                if live:
                    busy_s = now_s
                elif now_s > busy_s + _AWAKE_S:
                    self._is_asleep = True
                    self._changed.wait()
            try:
                took_s = self._look(live)
            except Exception:  # noqa: BLE001  without this thread no call is given up any more
                _log.exception("calls were not looked at")
                took_s = _MAX_PAUSE_S
            time.sleep(min(max(self._poll_s, _PAUSES * took_s), _MAX_PAUSE_S))

    def _look(self, live: tuple[Call, ...]) -> float:
        """Give up calls that take too long or whose clients left; return the seconds that asking gRPC took."""
        for call in live:
            call.check_time()
        # Those not asked for longest; none in its first moment: most are over before a second one.
        before_s = time.monotonic() - self._poll_s / 2
        waiting = [call for call in live if call.polled_s < before_s]
        began_s = time.monotonic()
        for call in sorted(waiting, key=lambda call: call.polled_s)[:_POLLS]:
            call.poll()
        took_s = time.monotonic() - began_s
        self._end_hanging(live)
        return took_s


def _shutting_down() -> FederationError:
    return Unavailable("The server is shutting down. Retry on another server, or later.")


_OWN_FILES = Path("/proc/self/fd")


def hang_up(peers: AbstractSet[str]) -> None:
    """Shut down the connections whose other ends these are, as gRPC names them."""
    addresses = {_address(peer) for peer in peers}
    for name in os.listdir(_OWN_FILES):  # noqa: PTH208 - numbers, and one may be gone by now
        try:
            # A duplicate: the number may be another file a moment later.
            number = os.dup(int(name))
        except OSError:
            continue
        try:
            duplicate = socket.socket(fileno=number)
        except OSError:  # another kind of file
            os.close(number)
            continue
        with duplicate:
            try:
                host, port = duplicate.getpeername()[:2]
                if (str(host).removeprefix("::ffff:"), port) in addresses:
                    duplicate.shutdown(socket.SHUT_RDWR)
            except (OSError, ValueError):
                continue


def _address(peer: str) -> tuple[str, int] | None:
    """``ipv4:127.0.0.1:4321`` or ``ipv6:%5B::1%5D:4321``; None: not an address of a network."""
    kind, _, rest = unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdecimal():
        return None
    return host.strip("[]").removeprefix("::ffff:"), int(port)
