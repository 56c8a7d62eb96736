"""Clients in a closed loop: each sends a statement, checks its answer, and sends the next one.

They are stock ADBC connections, one a client, on threads of a few processes of their own: the driver is Go and works
outside Python's lock, so a process holds dozens. What they ask is given as questions with their answers.
"""

from __future__ import annotations

import itertools
import multiprocessing
import queue
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from multiprocessing.synchronize import Barrier, Event
from typing import Any

import adbc_driver_flightsql.dbapi as flight_sql
import adbc_driver_manager
import pyarrow as pa

#: A client that connects while all others do, on a machine with nothing left.
_START_TIMEOUT_S = 300.0
_STATEMENT_TIMEOUT_S = 300.0
_MAX_ERRORS = 5
_PAUSE_S = 0.05
#: In a statement's text: a number that no other statement has, of 14 digits.
NEW_NUMBER = "{new}"
_LEAST_NUMBER = 10**13
#: Of every user that a benchmark's server knows.
PASSWORD = "benchmark"

Rows = list[tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Question:
    """A statement of some ``kind``, and its rows in any order; None: those are not compared. ``parameters`` are bound.

    ``is_new``: its text is never sent twice, so that nothing about it is remembered; ``NEW_NUMBER`` in it becomes a number that
    no other has, a comment does where that is missing. ``text_alone``: sent by the driver's lower layer, which prepares nothing.
    ``has_cursor``: prepared once by each client, and executed again by the same cursor.
    """

    kind: str
    sql: str
    rows: Rows | None
    parameters: tuple[int, ...] = ()
    is_new: bool = False
    text_alone: bool = False
    has_cursor: bool = False

    def text(self, number: int) -> str:
        """Return what is sent as a statement of this ``number``."""
        if NEW_NUMBER in self.sql:
            return self.sql.replace(NEW_NUMBER, str(number))
        return f"{self.sql} /* {number} */" if self.is_new else self.sql


@dataclass
class Load:
    """What the clients saw: when each statement ended and how long it took, by kind, in seconds.

    ``late_s``: by how much a pause of the clients' process was late at most. Seconds: it waited for a processor, and what it saw
    says nothing of the server.
    """

    spans: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    late_s: float = 0.0

    def add(self, other: Load) -> None:
        for kind, batch in other.spans.items():
            self.spans.setdefault(kind, []).extend(batch)
        self.wrong += other.wrong
        self.late_s = max(self.late_s, other.late_s)


class Clients:
    """``count`` connected clients in ``processes`` processes; ``run`` sets them going once.

    They log in as ``users`` in turn; without, they do not log in.
    """

    def __init__(
        self,
        uri: str,
        questions: Sequence[Question],
        *,
        count: int,
        processes: int,
        seed: int,
        users: Sequence[str] = (),
    ) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._loads: multiprocessing.Queue[Load] = spawn.Queue()
        self._stop = spawn.Event()
        self._ready = spawn.Barrier(min(processes, count) + 1)
        self._processes = [
            spawn.Process(
                target=_process,
                args=(
                    uri,
                    list(questions),
                    [_login(users, client) for client in range(number, count, processes)],
                    seed * 1000 + number,
                    self._loads,
                    self._ready,
                    self._stop,
                ),
                daemon=True,
            )
            for number in range(min(processes, count))
        ]

    def run(self, seconds: float) -> Load:
        """Connect all, let them ask for ``seconds``, and return what they saw."""
        for process in self._processes:
            process.start()
        try:
            self._ready.wait(_START_TIMEOUT_S)
            time.sleep(seconds)
            self._stop.set()
            load = Load()
            for _ in self._processes:
                load.add(self._loads.get(timeout=_STATEMENT_TIMEOUT_S))
        except (threading.BrokenBarrierError, queue.Empty) as error:
            raise RuntimeError("a load process ended, or its clients hang") from error
        finally:
            self._stop.set()
            for process in self._processes:
                process.join(_STATEMENT_TIMEOUT_S)
        return load


def _process(
    uri: str,
    questions: list[Question],
    logins: list[dict[str, str]],
    seed: int,
    queue: multiprocessing.Queue[Load],
    ready: Barrier,
    stop: Event,
) -> None:
    load, lock = Load(), threading.Lock()
    connected = threading.Barrier(len(logins) + 1)

    def client(number: int) -> None:
        mine = Load()
        try:
            with flight_sql.connect(
                uri, db_kwargs=logins[number], autocommit=True
            ) as connection:
                connected.wait(_START_TIMEOUT_S)
                _ask_until(
                    stop, connection, questions, random.Random(seed * 100 + number), mine
                )
        except Exception as error:
            # Whatever it is, it is what this client saw.
            connected.abort()
            mine.wrong.append(f"client: {error!r}"[:500])
        with lock:
            load.add(mine)

    over = threading.Event()
    ticking = threading.Thread(target=_tick, args=(load, over))
    threads = [threading.Thread(target=client, args=(number,)) for number in range(len(logins))]
    for thread in (ticking, *threads):
        thread.start()
    try:
        connected.wait(_START_TIMEOUT_S)
        ready.wait(_START_TIMEOUT_S)
    except threading.BrokenBarrierError:
        ready.abort()
    for thread in threads:
        thread.join()
    over.set()
    ticking.join()
    queue.put(load)


def _tick(load: Load, over: threading.Event) -> None:
    """Note by how much pauses are late, until it is ``over``."""
    while True:
        due_s = time.monotonic() + _PAUSE_S
        if over.wait(_PAUSE_S):
            return
        load.late_s = max(load.late_s, time.monotonic() - due_s)


def _login(users: Sequence[str], client: int) -> dict[str, str]:
    """Return the driver's options for a client."""
    return {"username": users[client % len(users)], "password": PASSWORD} if users else {}


def _ask_until(
    stop: Event,
    connection: flight_sql.Connection,
    questions: list[Question],
    chance: random.Random,
    load: Load,
) -> None:
    cursors: dict[str, flight_sql.Cursor] = {}
    # Of 48 bits less the room for the statements of a client.
    for number in itertools.count(_LEAST_NUMBER + (chance.getrandbits(26) << 20)):
        # One look at the event for each statement: it is a system call.
        if stop.is_set() or len(load.wrong) >= _MAX_ERRORS:
            return
        question = chance.choice(questions)
        sql = question.text(number)
        began = time.monotonic()
        try:
            answer = (
                _executed(_cursor_of(cursors, connection, sql), question, sql)
                if question.has_cursor
                else _answer(connection, question, sql)
            )
        except flight_sql.Error as error:
            load.wrong.append(f"{question.kind}: {error}"[:500])
            continue
        ended = time.monotonic()
        load.spans.setdefault(question.kind, []).append((ended, ended - began))
        rows = plain_rows(answer)
        if question.rows is not None and rows != question.rows:
            load.wrong.append(
                f"{question.kind}: {str(rows)[:200]}, not {str(question.rows)[:200]}"
            )


def _answer(connection: flight_sql.Connection, question: Question, sql: str) -> pa.Table:
    if not question.text_alone:
        with connection.cursor() as cursor:
            return _executed(cursor, question, sql)
    with adbc_driver_manager.AdbcStatement(connection.adbc_connection) as statement:
        statement.set_sql_query(sql)
        stream, _ = statement.execute_query()
        return pa.RecordBatchReader.from_stream(stream).read_all()


def _cursor_of(
    cursors: dict[str, flight_sql.Cursor], connection: flight_sql.Connection, sql: str
) -> flight_sql.Cursor:
    if sql not in cursors:
        cursors[sql] = connection.cursor()
    return cursors[sql]


def _executed(cursor: flight_sql.Cursor, question: Question, sql: str) -> pa.Table:
    """Execute a text, which the driver prepares unless it was the cursor's last one."""
    cursor.execute(sql, question.parameters or None)
    return cursor.fetch_arrow_table()


def plain_rows(answer: pa.Table) -> Rows:
    """Rows as sorted tuples; a sum of longs is a decimal on one side and an integer on the other."""
    columns = [column.to_pylist() for column in answer.columns]
    rows = zip(*columns, strict=True) if columns else ()
    return sorted((tuple(map(_plain, row)) for row in rows), key=repr)


def _plain(value: Any) -> object:
    return int(value) if isinstance(value, Decimal) else value
