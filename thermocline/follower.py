"""Following a statement: rounds over what is new, each handed on once and only when it was read to its end."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import IO

import pyarrow as pa

from connectors.flight_server import NotLetIn
from planner.errors import FederationError, StalePlan, Unavailable
from thermocline.client import Client

#: A round is held here until it is whole; larger ones go to a file of the system's temporary folder.
MAX_ROUND_BYTES = 64 << 20
#: A server that was started again answers within seconds; waits double up to this.
MAX_RETRY_S = 5.0

Connect = Callable[[], contextlib.AbstractContextManager[Client]]


@dataclass(frozen=True, slots=True)
class FollowedRows:
    """The whole of one round. ``position`` is where the next one starts: keep it after the rows, never before."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    rows: int
    position: str


def rounds(
    connect: Connect,
    sql: str,
    after: str,
    *,
    wait: Callable[[float], None],
    interval_s: float,
    report: Callable[[FederationError], None],
) -> Generator[FollowedRows, None, None]:
    """Yield round after round, without end, also those without rows.

    An outage, a server's restart and a stale plan are waited for; ``report`` gets the first failure in a row.
    A round that failed halfway is asked again from where it began: nothing of it was yielded.

    Raises:
        FederationError: what waiting does not mend.
    """
    retry_s = 0.0
    was_let_in = False
    while True:
        try:
            with connect() as client:
                while True:
                    with follow_round(client, sql, after) as increment:
                        yield increment
                    after = increment.position
                    retry_s, was_let_in = 0.0, True
                    wait(interval_s)
        except (Unavailable, StalePlan, NotLetIn) as error:
            if isinstance(error, NotLetIn) and not was_let_in:
                raise
            was_let_in = False
            if not retry_s:
                report(error)
            retry_s = min(MAX_RETRY_S, retry_s * 2 or 0.2)
            wait(retry_s)


@contextlib.contextmanager
def follow_round(client: Client, sql: str, after: str) -> Iterator[FollowedRows]:
    """Read one round to its end, then give it out."""
    planned = client.follow(sql, after)
    with tempfile.SpooledTemporaryFile(max_size=MAX_ROUND_BYTES) as spool:
        with planned.read() as answer:
            rows = _spooled(answer.schema, answer.batches(), spool)
        spool.seek(0)
        with pa.ipc.open_stream(spool) as reader:
            yield FollowedRows(answer.schema, iter(reader), rows, planned.position)


def _spooled(schema: pa.Schema, batches: Iterator[pa.RecordBatch], spool: IO[bytes]) -> int:
    rows = 0
    with pa.ipc.new_stream(spool, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows
