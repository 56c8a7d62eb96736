"""The families of attacks: each is one act, drawn by a seed, of somebody who has an account and nothing else."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
from pyarrow import flight

from proxy.flightsql import uploads
from tests.harness.canned import CannedServer
from tests.harness.idle_callers import PHASES, Idler
from tests.harness.lying import LIES, ROWS, lying, row
from tests.harness.wire import command, nested, prepare
from tests.protocol.attacks import statements
from tests.protocol.attacks.attacker import Attacker
from tests.protocol.attacks.costly import costly
from tests.protocol.attacks.forgeries import forgeries
from tests.protocol.attacks.storms import storms

Act = Callable[[Attacker, random.Random], None]

#: How long idle calls are left so, and how many are begun at a time: more than all the server has.
IDLE_S = 20.0
MANY = 530
#: One of these phases takes a connection of the attacker's for each call.
_MANY_CONNECTIONS = 100


def lying_uploads(attacker: Attacker, rng: random.Random) -> None:
    """Parameters whose buffers lie, or that are too many, too deep, too wide, too large; then their answer."""
    batch, times = _upload(rng)
    sent = f"upload of {batch.num_columns} columns, {str(batch.schema.field(0).type)[:80]}"
    sql = rng.choice(
        (
            "SELECT $1 AS it",
            "SELECT hex($1::BLOB) AS it",
            "SELECT [$1, $1] AS it",
            "SELECT typeof($1)",
        )
    )
    attacker.attempt(sent, lambda: _bind_and_read(attacker, sql, batch, times))


def _bind_and_read(attacker: Attacker, sql: str, batch: pa.RecordBatch, times: int) -> None:
    options = attacker.options()
    handle = prepare(attacker.client, sql, options).prepared_statement_handle
    bound = command("CommandPreparedStatementQuery", prepared_statement_handle=handle)
    writer, answers = attacker.client.do_put(bound, batch.schema, options)
    with writer:
        for _ in range(times):
            writer.write_batch(batch)
        writer.done_writing()
        answers.read()
    info = attacker.client.get_flight_info(bound, options)
    attacker.read(info.endpoints[0].ticket, sql)


def _upload(rng: random.Random) -> tuple[pa.RecordBatch, int]:
    shape = rng.randrange(10)
    if shape < 7:
        return lying(rng.choice(LIES)), 1
    if shape == 7:
        return row("int64").slice(0, rng.randint(0, 1)), statements.count(
            rng, uploads.MAX_BATCHES
        )
    if shape == 8:
        columns = [ROWS[rng.choice(list(ROWS))]] * statements.count(rng, uploads.MAX_FIELDS)
        return pa.record_batch(
            columns, names=["n" * statements.count(rng, 100)] * len(columns)
        ), 1
    return rng.choice(
        (
            lambda: pa.record_batch([pa.nulls(1, nested(statements.count(rng, 60)))], names=["1"]),
            lambda: pa.record_batch([pa.array([b"x" * statements.count(rng, uploads.MAX_PARAMETER_BYTES)])], names=["1"]),
            lambda: pa.record_batch([pa.nulls(1)], names=["n" * statements.count(rng, uploads.MAX_SCHEMA_BYTES)]),
            lambda: pa.record_batch([pa.nulls(1, pa.timestamp("us", rng.choice(("../../etc/passwd", "x" * 1_000, "\0"))))], names=["1"]),
        )
    )(), 1  # fmt: skip


def long_texts(attacker: Attacker, rng: random.Random) -> None:
    _ask_or_prepare(attacker, rng, statements.long_text(rng))


def wide_statements(attacker: Attacker, rng: random.Random) -> None:
    _ask_or_prepare(attacker, rng, statements.wide(rng))


def costly_statements(attacker: Attacker, rng: random.Random) -> None:
    sql = costly(rng)
    attacker.attempt(sql, lambda: attacker.ask(sql))


def _ask_or_prepare(attacker: Attacker, rng: random.Random, sql: str) -> None:
    def plan() -> None:
        attacker.receive(
            prepare(attacker.client, sql, attacker.options()).SerializeToString(), sql
        )

    attacker.attempt(sql, (lambda: attacker.ask(sql)) if rng.random() < 0.7 else plan)


def idle_callers(
    attacker: Attacker, rng: random.Random, *, many: int = MANY, idle_s: float = IDLE_S
) -> None:
    """Calls that are begun and left, all in one phase."""
    phase = rng.choice(list(PHASES))
    count = (
        min(many, _MANY_CONNECTIONS) if "headers" in phase or "nobody reads" in phase else many
    )

    def leave() -> None:
        target = cast("CannedServer", SimpleNamespace(uri=attacker.uri, port=attacker.port))
        with contextlib.closing(Idler(target)) as idler:
            for _ in range(count):
                with contextlib.suppress(pa.ArrowException, flight.FlightError, OSError):
                    PHASES[phase](idler)
                    attacker.tally.left_idle(1)
            time.sleep(idle_s)

    attacker.attempt(f"{count} times {phase}", leave)


#: Name -> the act, and how many threads do it at the same time.
FAMILIES: dict[str, tuple[Any, int]] = {
    "lying uploads": (lying_uploads, 4),
    "long texts": (long_texts, 4),
    "idle callers": (idle_callers, 2),
    "wide statements": (wide_statements, 9),
    "costly statements, one at a time": (costly_statements, 1),
    "costly statements, 200 at once": (costly_statements, 200),
    "forgeries": (forgeries, 8),
    "storms": (storms, 8),
}
