"""A server without Flight, put together as ``thermocline.serve.assembly`` does, over any store and log."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pyarrow as pa

from connectors.bounds_cache import BoundsCache
from connectors.decoding.registry import decoder_for
from connectors.iceberg.pin_cache import PinCache
from planner.ports import ColdStore, Log
from planner.ticket import Ticket, unseal
from proxy.engine.engine import Engine
from proxy.query.executor import Statements
from proxy.query.relations import Sources
from proxy.session import Deadline, Session
from proxy.tail.budget import TailLimits
from proxy.tail.followed_table import FollowSettings
from proxy.tail.follower import Follower
from proxy.tail.pacing import Pacing
from proxy.tail.reader.readers import local_readers
from proxy.tail.tails import Tails
from tests.doubles.followers import SteppedFollowers, stepped_readers

SECRET = b"only a test"
NOW_US = 1_790_000_000_000_000
SESSION = Session("test")
#: The board never refreshes by itself: examples must not depend on the clock.
NEVER_S = 1e6
LIMITS = TailLimits(max_rows=100_000, max_bytes=1 << 30, fetch_timeout_s=5)
#: Followers go on when they are told to, or when a statement needs them: no example depends on threads.
PACING = Pacing(gather_s=0.001)
FOLLOWING = FollowSettings(keep_s=0)


@cache
def engine() -> Engine:
    """One for all examples: opening it takes longer than an example."""
    spill = Path(tempfile.mkdtemp(prefix="thermocline-test-"))
    return Engine(storage_roots=["/nowhere/at-all"], spill_dir=spill, threads=2)


def serve(
    store: ColdStore,
    log: Log,
    limits: TailLimits = LIMITS,
    *,
    following: FollowSettings = FOLLOWING,
    followers: SteppedFollowers | None = None,
    threads: bool = False,
    refresh_s: float = NEVER_S,
    runs_in: Engine | None = None,
    pacing: Pacing = PACING,
    delete_retention: Callable[[str, float], float | None] = lambda *_: math.inf,
    now_s: Callable[[], float] = time.time,
) -> tuple[PinCache, Tails, Statements]:
    runs_in = runs_in or engine()
    board = PinCache(store, refresh_s=refresh_s)
    readers = (
        local_readers(log, decoder_for, pacing=pacing)
        if threads
        else stepped_readers(log, decoder_for)
    )
    tails = Tails(
        *(readers, runs_in.segments, limits),
        following=following,
        is_serving=lambda: runs_in.watch.idle_s < pacing.serving_s,
        pacing=pacing,
        delete_retention=delete_retention,
        now_s=now_s,
        make_follower=Follower if threads else followers or SteppedFollowers(),
    )
    statements = Statements(
        Sources(board, store, BoundsCache(log), tails, runs_in),
        ticket_ttl_s=3600,
        secrets=[SECRET],
        now_us=lambda: NOW_US,
        default_path=("lake", "net"),
    )
    return board, tails, statements


def plan(
    statements: Statements,
    sql: str,
    parameters: pa.RecordBatch | None = None,
    session: Session = SESSION,
) -> tuple[bytes, Ticket]:
    """Plan a statement; return its ticket, and what that says."""
    planned = statements.plan(session, sql, parameters, Deadline(60))
    return planned.ticket, unseal(planned.ticket, [SECRET], user="", now_us=NOW_US)


def answer_of(statements: Statements, ticket: bytes) -> pa.Table:
    stream = statements.open(SESSION, ticket, Deadline(60))
    try:
        return pa.Table.from_batches(list(stream), stream.schema)
    finally:
        stream.close()


def forget(board: PinCache, tails: Tails) -> None:
    """Stop what ``serve`` started and free what it holds in the engine all tests share."""
    board.stop()
    tails.close()
