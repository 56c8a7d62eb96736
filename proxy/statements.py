"""The path of one statement, from its text to its rows. Implements ``proxy.flightsql.backend.Backend``.

::

    prepare   text -> gate -> tables -> pins                      -> schemas of result and parameters
    plan      text -> gate -> tables -> one cut of all of them    -> ticket, schema
    open      ticket -> the same cut -> relations of that cut     -> rows

Nothing after ``plan`` asks for "current": the ticket holds all the answer depends on.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from planner.cut import Pin, TableCut
from planner.errors import (
    BadParameter,
    BadStatement,
    BadTicket,
    FederationError,
    OffsetsExpired,
    SnapshotExpired,
    UnsupportedStatement,
)
from planner.explaining import EXPLAIN_SCHEMA, Seen, explained, explanation
from planner.following import check_followed, format_position, narrow, parse_after
from planner.lookback import format_cut, names_cut
from planner.ports import ColdStore, Log
from planner.pruning import EVERYTHING
from planner.statement.ast import is_constant
from planner.statement.ast import parameters as parameters_of
from planner.statement.breadth import Breadth, check_breadth
from planner.statement.parameters import may_type_columns
from planner.statement.references import CutKey
from planner.ticket import Ticket, TicketTable
from proxy.about import about
from proxy.browsing import Browser
from proxy.cuts import Pins, redeem_tables
from proxy.cutting import Contract, Cuts, Cutter
from proxy.engine import running as engine
from proxy.engine.engine import Engine
from proxy.flightsql.backend import (
    About,
    Cancellation,
    Planned,
    Prepared,
    Renewed,
    Session,
    Stream,
)
from proxy.grants import Grants
from proxy.lookback import Lookback, When
from proxy.once import Once
from proxy.patience import Patience
from proxy.reading import Read, Reader
from proxy.rounds import Rounds
from proxy.running import Running, Watched
from proxy.sources import Sources
from proxy.tail import Tails
from proxy.tickets import MAX_KEPT_BYTES, Tickets
from proxy.told import Told
from proxy.wanted import Asking
from proxy.watchdog import Watchdog

#: Key of the cut's text in the metadata of a result's schema.
CUT_METADATA = "thermocline.cut"
#: Answers to longer statements are not kept.
_SHORT_CHARS = 1_000
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class StatementLimits:
    """Times in seconds. A ticket is good for ``ticket_ttl_s``, a statement runs for ``timeout_s``."""

    timeout_s: float
    ticket_ttl_s: float

    def of(self, session: Session) -> float:
        """How long a statement of this session may run, in seconds."""
        return (
            self.timeout_s
            if session.timeout_s is None
            else min(self.timeout_s, session.timeout_s)
        )


class Statements:
    """Plans and runs statements. Thread-safe."""

    def __init__(
        self,
        *,
        pins: Pins,
        store: ColdStore,
        log: Log,
        tails: Tails,
        engine: Engine,
        limits: StatementLimits,
        watchdog: Watchdog,
        secrets: Sequence[bytes],
        now_us: Callable[[], int],
        default_path: tuple[str, str],
    ) -> None:
        self._pins = pins
        self._store = store
        self._rounds = Rounds(log)
        self._tails = tails
        self._engine = engine
        engine.planning.expecting = watchdog.expecting
        #: Replaced when the settings are read again.
        self.limits = limits
        self._watchdog = watchdog
        self._tickets = Tickets(secrets)
        self._now_us = now_us
        #: All is open until a policy is put in force.
        self.grants = Grants(engine)
        self.browsing = Browser(pins, self.grants, default_path)
        self._reader = Reader(engine, pins, self.grants)
        self._once = Once()
        self._sources = Sources(
            pins=pins,
            store=store,
            tails=tails,
            engine=engine,
            browsing=self.browsing,
            grants=self.grants,
        )
        lookback = Lookback(
            pins=pins, rounds=self._rounds, tails=tails, store=store, engine=engine
        )
        self._cutter = Cutter(pins=pins, rounds=self._rounds, lookback=lookback)

    def prepare(self, session: Session, sql: str, cancellation: Cancellation) -> Prepared:
        cancellation.check()
        inner = explained(sql)
        contract = Contract.of(session)
        side = contract.freshness.side
        path = self.browsing.path(session)
        read = self._reader.read(sql if inner is None else inner, path, session, side)
        self.grants.check_uncounted(session, read.names, _counting(session, sql, read))
        pins = self._cutter.pins(read, contract, _when(self._now_us(), session.time_zone))
        described = self._describe(session, read, pins)
        return described if inner is None else Prepared(EXPLAIN_SCHEMA, pa.schema([]))

    def plan_at_once(
        self,
        session: Session,
        sql: str,
        parameters: pa.RecordBatch | None,
        cancellation: Cancellation,
    ) -> Planned | None:
        """As ``plan``, of a statement that names no table and was described before; None: of any other.

        Neither engine nor catalog nor broker is asked.
        """
        read = self._reader.known(sql)
        if read is None or self._once.known((read, (), _zone(session)), Prepared) is None:
            return None
        if parameters is not None and self._may_type_columns(read):
            return None
        return self.plan(session, sql, parameters, cancellation)

    def plan(
        self,
        session: Session,
        sql: str,
        parameters: pa.RecordBatch | None,
        cancellation: Cancellation,
    ) -> Planned:
        cancellation.check()
        patience = Patience.of(cancellation, self.limits.of(session))
        path = self.browsing.path(session)
        contract, now_us = Contract.of(session), self._now_us()
        inner = explained(sql)
        side = contract.freshness.side
        read = self._reader.read(sql if inner is None else inner, path, session, side)
        is_uncounted = self.grants.check_uncounted(
            session, read.names, _counting(session, sql, read)
        )
        with self.grants.veiling(session, read.names):
            found = self._cutter.cut(read, contract, _when(now_us, session.time_zone), patience)
        cuts = found.by_key
        for expected in cuts.values():
            self._tails.expect(expected)
        described = self._describe(session, read, cuts)
        if inner is None:
            _check_count(parameters, described.parameter_schema)
        columns = described.dataset_schema
        if inner is None and parameters is not None and self._may_type_columns(read):
            # What was described before was a guess, and clients hold the stream against this schema.
            columns = self._engine.describe_bound(
                read.document,
                self._sources.empty(session, read, found.by_key),
                [column[0] for column in parameters.columns],
                time_zone=_zone(session),
            )
        told = cut = "" if is_uncounted else format_cut(cuts)
        if session.after is not None:
            after = parse_after(session.after)
            check_followed(
                [table for table, at in read.keys if cuts[table, at].hot], read.sides
            )
            cuts = {key: narrow(held, after) for key, held in cuts.items()}
            told = format_position(cuts.values())
        ticket = Ticket(
            sql=sql,
            tables=tuple(TicketTable.of(cuts[key], key[1]) for key in read.keys),
            user=session.user or "",
            time_zone=_zone(session),
            search_path=path,
            statement_time_us=now_us,
            expires_at_us=now_us + int(self.limits.ticket_ttl_s * 1_000_000),
            parameters=None if parameters is None else _to_ipc(parameters),
            granted=self.grants.mark(session, read.names),
            side=side,
            cut=cut,
        )
        if inner is not None:
            found = Cuts(cuts, found.log_age_s)
            told_of = self._explain(session, read, found, contract, ticket)
            ticket = replace(ticket, tables=(), cut="", answer=_to_ipc(told_of))
            sealed = self._tickets.sealed(ticket, is_veiled=is_uncounted)
            return Planned(sealed, EXPLAIN_SCHEMA, told.encode())
        return Planned(
            self._tickets.sealed(ticket, is_veiled=is_uncounted),
            columns.with_metadata(_metadata(cut) or None),
            told.encode(),
            ticket.expires_at_us,
        )

    def update(self, *_: object, **__: object) -> int:
        raise UnsupportedStatement(
            "This server is read-only: it executes queries, one set of parameters at a time; "
            "no updates, no executemany."
        )

    def renew(self, session: Session, ticket: bytes) -> Renewed:
        now_us = self._now_us()
        planned = self._unsealed(session, ticket, now_us)
        until_us = now_us + int(self.limits.ticket_ttl_s * 1_000_000)
        again = replace(planned, expires_at_us=max(until_us, planned.expires_at_us))
        return Renewed(self._tickets.resealed(again, ticket), again.expires_at_us)

    def about(self, session: Session, ticket: bytes) -> About:
        # As of 1970 no ticket has expired: a statement may have outlived its own.
        return about(self._unsealed(session, ticket, now_us=0))

    def open_at_once(self, session: Session, ticket: bytes) -> Stream | None:
        """As ``open``, of a statement whose answer is known; None: of any other.

        Neither engine nor catalog nor broker is asked.
        """
        # One that is not kept would be read here, and read again where it is opened.
        if len(ticket) > MAX_KEPT_BYTES:
            return None
        planned = self._unsealed(session, ticket, self._now_us())
        read = None if planned.tables else self._reader.known(planned.sql)
        answer = None if read is None else self._once.known(("answer", read), Told)
        if read is not None and answer is not None:
            self.grants.check(session, read.names, planned.granted)
        return answer

    def open(self, session: Session, ticket: bytes, cancellation: Cancellation) -> Stream:
        patience = Patience.of(cancellation, self.limits.of(session))
        planned = self._unsealed(session, ticket, self._now_us())
        inner = explained(planned.sql) if planned.answer is not None else planned.sql
        read = self._reader.read(inner or "", planned.search_path, session, planned.side)
        self.grants.check(session, read.names, planned.granted)
        if planned.answer is not None:
            return Told.of(planned.answer)
        if len(planned.sql) <= _SHORT_CHARS and is_constant(read.document):
            # What pools and tools ask again and again to learn whether anybody is there.
            return self._once.get(
                ("answer", read),
                lambda: self._answer(session, read, planned, patience),
                chars=read.chars,
            )
        cuts = redeem_tables(self._pins, planned.tables)
        if set(cuts) != set(read.keys):
            raise BadStatement("the tables of the statement changed; plan it again.")
        with self._repinning(read), self.grants.veiling(session, read.names):
            return self._start(session, read, planned, cuts, patience)

    def _unsealed(self, session: Session, ticket: bytes, now_us: int) -> Ticket:
        return self._tickets.opened(ticket, user=session.user or "", now_us=now_us)

    def _explain(
        self,
        session: Session,
        read: Read,
        found: Cuts,
        contract: Contract,
        ticket: Ticket,
    ) -> pa.RecordBatch:
        """Describe what would be read; a statement whose parameters are not bound is not pruned."""
        bound = len(_values(ticket.parameters)) == len(parameters_of(read.document))
        cuts = found.by_key
        hot = [cut.hot for cut in cuts.values() if cut.hot is not None and cut.hot.ranges]
        topics = sorted({side.topic for side in hot})
        bounds = self._rounds.measure(topics) if topics else {}
        ages = {held.table: held.age_s for held in self._pins.status()}
        seen = {}
        for table in read.tables:
            cut, rows = cuts[table.key], EVERYTHING
            log_age_s = found.log_age_s if table.at is None else None
            told = str(table.at or contract)
            if self._sources.seen(session, table, cut).is_filtered:
                seen[table] = Seen(
                    ages.get(table.table), is_counted=False, log_age_s=log_age_s, contract=told
                )
                continue
            if bound:
                rows = self._sources.wanted(session, table, cut, read, _asking(read, ticket))
            measured = None if cut.hot is None else bounds.get(cut.hot.topic)
            partitions = () if measured is None else measured.partitions
            seen[table] = Seen(
                metadata_age_s=ages.get(table.table),
                log_age_s=log_age_s,
                contract=told,
                log_starts={held.partition: held.log_start for held in partitions},
                totals=self._store.totals(cut.cold),
                files_to_read=self._store.count_files(cut.cold, rows),
            )
        return explanation(read.tables, {held: cuts[held.key] for held in read.tables}, seen)

    def _start(
        self,
        session: Session,
        read: Read,
        planned: Ticket,
        cuts: Mapping[CutKey, TableCut],
        patience: Patience,
    ) -> Stream:
        asking = _asking(read, planned)
        with contextlib.ExitStack() as stack:
            relations = self._sources.relations(
                session, read, cuts, asking, patience.check, stack
            )
            stop = engine.Cancellation()
            timeout_s = patience.left_s
            with (
                patience.cancellation.interrupting(stop.cancel),
                self._watchdog.expecting(timeout_s, session.user),
            ):
                result = self._engine.run(
                    read.document,
                    relations,
                    asking.values,
                    statement_time=asking.statement_time,
                    time_zone=asking.time_zone,
                    timeout_s=timeout_s,
                    cancellation=stop,
                    cut=planned.cut,
                    owner=session.user,
                )
            held = stack.pop_all()
        watched = Watched(
            self._watchdog, self.limits.timeout_s, lambda: self._repinning(read), session.user
        )
        return Running(result, patience.cancellation, watched, held, _metadata(planned.cut))

    def _answer(
        self, session: Session, read: Read, planned: Ticket, patience: Patience
    ) -> Told:
        """Run a statement that reads no table to its end."""
        with contextlib.closing(self._start(session, read, planned, {}, patience)) as stream:
            return Told(stream.schema, tuple(stream))

    @contextlib.contextmanager
    def _repinning(self, read: Read) -> Iterator[None]:
        """After a file or offsets turned out to be gone, pin again: the client's next try must not meet it."""
        try:
            yield
        except (SnapshotExpired, OffsetsExpired):
            self._rounds.forget()
            for table in read.names:
                with contextlib.suppress(FederationError):
                    self._pins.refresh(table)
            raise

    def _describe(
        self,
        session: Session,
        read: Read,
        known: Mapping[CutKey, Pin] | Mapping[CutKey, TableCut],
    ) -> Prepared:
        """Bind over empty relations of the same types. Nothing is executed.

        Binding depends on nothing else, and takes 5 ms: what was prepared is not bound again to be planned.
        """
        empty, zone = tuple(self._sources.empty(session, read, known)), _zone(session)

        def described() -> Prepared:
            breadths = {held.name: Breadth.of(held.arrow) for held in empty}
            check_breadth(read.document, breadths)
            result, types = self._engine.describe(read.document, empty, time_zone=zone)
            names = parameters_of(read.document)
            fields = [pa.field(*parameter) for parameter in zip(names, types, strict=True)]
            return Prepared(result, pa.schema(fields))

        return self._once.get((read, empty, zone), described, chars=read.chars)

    def _may_type_columns(self, read: Read) -> bool:
        return self._once.get(
            ("may type columns", read),
            lambda: may_type_columns(read.document),
            chars=read.chars,
        )


def _counting(session: Session, sql: str, read: Read) -> Iterator[str]:
    """Name what a statement uses that tells how many records its tables have, or would find out."""
    for what, given in (
        ("following", session.after),
        ("the setting cut", session.cut),
        ("the setting wait_for", session.wait_for),
    ):
        if given is not None:
            yield what
    if "thermocline_cut" in sql.lower():
        yield "thermocline_cut()"
    for _, at in read.keys:
        if at is not None and names_cut(at):
            yield "AT with a cut"


def _zone(session: Session) -> str:
    return session.time_zone or "UTC"


def _when(now_us: int, time_zone: str | None) -> When:
    return When(_EPOCH + dt.timedelta(microseconds=now_us), time_zone or "UTC")


def _metadata(cut: str) -> dict[str, str]:
    """The metadata of an answer's schema: most clients show that, and no other of Flight's."""
    return {CUT_METADATA: cut} if cut else {}


def _asking(read: Read, planned: Ticket) -> Asking:
    when = _when(planned.statement_time_us, planned.time_zone)
    return Asking(
        read.written, _values(planned.parameters), when.statement_time, when.time_zone
    )


def _check_count(parameters: pa.RecordBatch | None, expected: pa.Schema) -> None:
    given = 0 if parameters is None else parameters.num_columns
    if given != len(expected):
        raise BadParameter(
            f"the statement has {len(expected)} parameters and {given} are bound.",
            expected=len(expected),
            given=given,
        )


def _to_ipc(parameters: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, parameters.schema) as writer:
        writer.write_batch(parameters)
    return bytes(sink.getvalue())


def _values(data: bytes | None) -> list[pa.Scalar]:
    """Return the row of parameters in a ticket.

    Raises:
        BadTicket: it is not valid.
    """
    if data is None:
        return []
    try:
        with pa.ipc.open_stream(data) as reader:
            row = reader.read_next_batch()
        # A ticket may be of a replica that took uploads as they came; its tag says only that one made it.
        row.validate(full=True)
    except pa.ArrowException as error:
        raise BadTicket("the ticket's parameters are not valid; bind them again.") from error
    return [column[0] for column in row.columns]
