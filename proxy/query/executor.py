"""The path of one statement, from its text to its rows. Implements ``proxy.flightsql.backend.Backend``.

::

    prepare   text -> gate -> tables -> pins                      -> schemas of result and parameters
    plan      text -> gate -> tables -> one cut of all of them    -> ticket, with all the answer depends on
    open      ticket -> the same cut -> relations of that cut     -> rows
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import pyarrow as pa

from connectors.iceberg.refreshed_value import waiting_while
from planner.errors import BadStatement, UnsupportedStatement
from planner.explain import EXPLAIN_SCHEMA
from planner.reading.needs import name_of_count, with_counted
from planner.reading.parsed_statement import ParsedStatement
from planner.reading.plan import TableRead, counted_rows
from planner.seam.cut import Pin
from planner.seam.incremental import format_position
from planner.seam.time_travel import format_cut
from planner.sql_text import explained
from planner.statement.ast import is_constant
from planner.statement.references import CutKey, ResolvedTable
from planner.ticket import Ticket
from proxy.access.fairness import PlanningQueue
from proxy.access.policy import AccessPolicy
from proxy.catalog.browser import Browser
from proxy.catalog.system_tables import SystemTables
from proxy.engine.result import MaterializedResult, Result, StatementStream
from proxy.engine.running import with_memory, working_for
from proxy.engine.statement_cache import StatementCache
from proxy.engine.thread_pool import ThreadPool
from proxy.query.cut import Cuts, FreshnessContract, SnapshotCutter, redeem_tables
from proxy.query.explain import explain
from proxy.query.parsing import StatementParser, counting
from proxy.query.relations import Relations, Signatures, Sources, check_count
from proxy.query.tickets import (
    SessionStatement,
    TicketMaker,
    Tickets,
    answer_metadata,
    context_of,
    summary,
    to_ipc,
)
from proxy.session import (
    WAITED_FOR_CATALOG,
    Deadline,
    Planned,
    Prepared,
    Renewed,
    Session,
    Stream,
    TicketSummary,
)

T = TypeVar("T")

#: Answers to longer statements are not kept.
_SHORT_CHARS = 1_000
#: Seconds: more than a log has to answer in (``connectors.kafka.log.MEASURE_TIMEOUT_S``), rounds of others included.
_ROUND_S = 10.0


@dataclass(frozen=True, slots=True)
class _Request:
    """A text that came from a client, to be prepared or planned."""

    session: Session
    sql: str
    parameters: pa.RecordBatch | None
    deadline: Deadline


@dataclass(frozen=True, slots=True)
class _InHand:
    """A statement that was analysed and described, and the pins of its tables."""

    parsed: ParsedStatement
    pins: Mapping[CutKey, Pin]
    prepared: Prepared


@dataclass(frozen=True, slots=True)
class _Opened:
    """A ticket that came back, its statement, and until when its rows are read."""

    session: Session
    parsed: ParsedStatement
    ticket: Ticket
    deadline: Deadline


class Statements:
    """Plans and runs statements. Thread-safe. The caller closes it."""

    def __init__(
        self,
        sources: Sources,
        *,
        ticket_ttl_s: float,
        secrets: Sequence[bytes],
        now_us: Callable[[], int],
        default_path: tuple[str, str],
    ) -> None:
        self.sources = sources
        self._now_us = now_us
        #: All is open until a policy is put in force.
        self.access = AccessPolicy(sources.engine)
        self.browser = Browser(sources.pins, self.access, default_path)
        self.cutter = SnapshotCutter(sources)
        self._parser = StatementParser(sources.engine, sources.pins, self.access)
        self._cache = StatementCache()
        self.system = SystemTables()
        self._relations = Relations(sources, self.browser, self.access, self.system)
        self._signatures = Signatures(self._relations)
        self._tickets = Tickets(secrets)
        self.ticket_maker = TicketMaker(self._relations, ttl_s=ticket_ttl_s)
        self._threads = ThreadPool()
        self._planning = PlanningQueue()

    def close(self) -> None:
        """End the threads, without waiting for abandoned work."""
        self._threads.close()

    # --- what a client calls: each answers by its deadline, even if the engine hangs ---

    def prepare(self, session: Session, sql: str, deadline: Deadline) -> Prepared:
        request = _Request(session, sql, None, deadline)
        prepared = self._on_this_thread(request, self._prepare_in_hand)
        if prepared is not None:
            return prepared
        return self._on_thread(session, deadline, partial(self._prepare, request))

    def plan(
        self, session: Session, sql: str, parameters: pa.RecordBatch | None, deadline: Deadline
    ) -> Planned:
        request = _Request(session, sql, parameters, deadline)
        planned = self._on_this_thread(request, self._plan_in_hand)
        if planned is not None:
            return planned
        return self._on_thread(session, deadline, partial(self._plan, request))

    def open(self, session: Session, ticket: bytes, deadline: Deadline) -> Stream:
        deadline.check()
        planned = self._unseal(session, ticket)
        answer = self._cached_constant(session, planned)
        if answer is not None:
            return answer
        return self._on_thread(
            session,
            deadline,
            partial(self._open, session, planned, deadline),
            afterwards=lambda stream: None if stream is None else stream.close(),
        )

    def update(self, *_: object, **__: object) -> int:
        raise UnsupportedStatement(
            "This server is read-only: it executes queries, one set of parameters at a time; "
            "no updates, no executemany."
        )

    def renew(self, session: Session, ticket: bytes) -> Renewed:
        planned = self._unseal(session, ticket)
        until_us = self.ticket_maker.good_until_us(self._now_us(), planned.renewable_until_us)
        again = replace(planned, expires_at_us=max(until_us, planned.expires_at_us))
        return Renewed(self._tickets.resealed(again, ticket), again.expires_at_us)

    def about(self, session: Session, ticket: bytes) -> TicketSummary:
        # As of 1970 no ticket has expired: a statement may have outlived its own.
        return summary(self._tickets.opened(ticket, user=session.user or "", now_us=0))

    def _in_hand(self, request: _Request) -> _InHand | None:
        """Return a statement that is analysed, described and pinned: with that it is prepared and planned on this thread.

        Another thread would double the latency, and hands Python's lock over twice. None: it is parsed, or a catalog asked.
        """
        session = request.session
        request.deadline.check()
        parsed = self._parser.cached(request.sql)
        pins: dict[CutKey, Pin] | None = {}
        if parsed is None:
            contract = FreshnessContract.of(session)
            is_plain = session.max_endpoints == 1 and explained(request.sql) is None
            if not (is_plain and contract.is_live):
                return None
            path, side = self.browser.path(session), contract.freshness.side
            parsed = self._parser.from_shape(request.sql, path, session, side)
            pins = None if parsed is None else self.cutter.pinned(parsed)
        if parsed is None or pins is None:
            return None
        # A grant that has just changed is fitted to the table: what the engine does for that, the watch may end.
        prepared = self._signatures.cached(session, parsed, pins, request.parameters)
        return None if prepared is None else _InHand(parsed, pins, prepared)

    def _prepare_in_hand(self, request: _Request) -> Prepared | None:
        in_hand = self._in_hand(request)
        if in_hand is None:
            return None
        self._analyse(request, in_hand.parsed)
        return in_hand.prepared

    def _plan_in_hand(self, request: _Request) -> Planned | None:
        in_hand = self._in_hand(request)
        if in_hand is None or (in_hand.pins and request.deadline.left_s <= _ROUND_S):
            return None
        statement = self._analyse(request, in_hand.parsed)
        check_count(request.parameters, in_hand.prepared)
        with request.deadline.waiting("cut"):
            cuts = self.cutter.cut_pinned(in_hand.parsed, in_hand.pins)
        if cuts is None:
            return None
        self._expect(statement, cuts)
        return self._planned(request, statement, cuts, in_hand.prepared.dataset_schema)

    def _on_this_thread(
        self, request: _Request, work: Callable[[_Request], T | None]
    ) -> T | None:
        """Do ``work`` that the engine does not hold up for long; again where others held its memory."""
        with working_for(request.deadline, request.session.user):
            return with_memory(partial(work, request), request.deadline)

    def _on_thread(
        self,
        session: Session,
        deadline: Deadline,
        work: Callable[[], T],
        *,
        afterwards: Callable[[T | None], None] = lambda _: None,
        is_repeatable: bool = True,
    ) -> T:
        """Do ``work`` on another thread, by the deadline; if ``is_repeatable``, again where others held its memory."""

        def worked() -> T:
            check = partial(deadline.check, WAITED_FOR_CATALOG)
            waiting = waiting_while(check, partial(deadline.waiting, "cut"))
            with working_for(deadline, session.user), waiting:
                return with_memory(work, deadline) if is_repeatable else work()

        deadline.check()
        return self._threads.run(worked, deadline, session.user, afterwards)

    # --- the path of a statement ---

    def _prepare(self, request: _Request) -> Prepared:
        session, statement = request.session, self._analyse(request)
        pins = self.cutter.pins(statement.parsed, statement.contract, statement.when)
        with self._planning.slot(session.payer, request.sql, request.deadline):
            prepared = self._signatures.prepared(session, statement.parsed, pins)
        return Prepared(EXPLAIN_SCHEMA, pa.schema([])) if statement.is_explain else prepared

    def _plan(self, request: _Request) -> Planned:
        statement = self._analyse(request)
        cuts = self._cut(statement, request.deadline)
        self._expect(statement, cuts)
        session, parameters = request.session, request.parameters
        with self._planning.slot(session.payer, request.sql, request.deadline):
            columns = self._signatures.columns(
                *(session, statement.parsed, cuts.by_key, parameters),
                is_bound=not statement.is_explain,  # one to explain binds none
            )
        return self._planned(request, statement, cuts, columns)

    def _planned(
        self, request: _Request, statement: SessionStatement, cuts: Cuts, columns: pa.Schema
    ) -> Planned:
        """Seal a cut whose tails are expected."""
        session, parameters = request.session, request.parameters
        cut = app_metadata = "" if statement.hides_count else format_cut(cuts.by_key)
        if session.after is not None:
            cuts = cuts.narrowed(session.after, statement.parsed.sides)
            app_metadata = format_position(cuts.by_key.values())
        ticket = self.ticket_maker.of(statement, cuts, parameters, cut)
        sealed = partial(self._tickets.sealed, is_encrypted=statement.hides_count)
        if statement.is_explain:
            contract = statement.contract
            report = explain(self._relations, session, statement.parsed, cuts, contract, ticket)
            ticket = replace(ticket, tables=(), cut="", answer=to_ipc(report))
            return Planned(sealed(ticket), EXPLAIN_SCHEMA, app_metadata.encode())
        shares = self.ticket_maker.shares(statement, cuts, ticket)
        return Planned(
            sealed(ticket),
            columns.with_metadata(answer_metadata(*shares[:1] or (ticket,)) or None),
            app_metadata.encode(),
            ticket.expires_at_us,
            tuple(map(sealed, shares)),
        )

    def _expect(self, statement: SessionStatement, cuts: Cuts) -> None:
        """Begin to read the tails of a cut, unless the rows that are there may be enough."""
        if statement.parsed.needs.any_rows is None:
            is_past, cold_only = statement.contract.past is not None, statement.parsed.cold_only
            for (table, at), cut in cuts.by_key.items():
                self.sources.tails.expect(cut)
                # Of others the log was not measured.
                if at is None and not is_past and table not in cold_only:
                    self.sources.tails.note_end(cut, cuts.log_age_s or 0.0)

    def _analyse(
        self, request: _Request, parsed: ParsedStatement | None = None
    ) -> SessionStatement:
        """Parse, gate and resolve a statement, unless it was; judge what it tells. Nothing is pinned yet."""
        session, sql, time_us = request.session, request.sql, self._now_us()
        inner, path = explained(sql), self.browser.path(session)
        contract = FreshnessContract.of(session)
        if parsed is None:
            text, side = sql if inner is None else inner, contract.freshness.side
            turn = partial(self._planning.slot, session.payer, sql, request.deadline)
            parsed = self._parser.read(text, path, session, side, turn)
        hides_count = self.access.check_count_disclosure(
            session, parsed.names, counting(session, sql, parsed)
        )
        if session.is_whole:
            self.access.check_whole(session, parsed.names)
        return SessionStatement(
            session, sql, parsed, contract, path, inner is not None, hides_count, time_us
        )

    def _cut(self, statement: SessionStatement, deadline: Deadline) -> Cuts:
        """Make one cut of all tables."""
        parsed = statement.parsed
        redacting = self.access.redacting_errors(statement.session, parsed.names)
        with redacting, deadline.waiting("cut"):
            return self.cutter.cut(parsed, statement.contract, statement.when, deadline)

    def _open(self, session: Session, planned: Ticket, deadline: Deadline) -> Stream:
        inner = explained(planned.sql) if planned.answer is not None else planned.sql
        turn = partial(self._planning.slot, session.payer, planned.sql, deadline)
        path, side = planned.search_path, planned.side
        parsed = self._parser.read(inner or "", path, session, side, turn)
        self.access.check(session, parsed.names, planned.granted)
        if planned.answer is not None:
            return MaterializedResult.of(planned.answer)
        opened = _Opened(session, parsed, planned, deadline)
        if len(planned.sql) <= _SHORT_CHARS and is_constant(parsed.tree):
            # What pools and tools ask again and again to learn whether the server is there.
            return self._cache.get(
                ("answer", parsed), partial(self._run_constant, opened), chars=parsed.chars
            )
        cuts = redeem_tables(self.sources.pins, planned.tables)
        if set(cuts) != set(parsed.keys):
            raise BadStatement("the tables of the statement changed; plan it again.")

        def read_on(read: Callable[[], None]) -> None:
            again = self.cutter.repinning(parsed.names)(read)
            self._on_thread(session, deadline, again, is_repeatable=False)

        with (
            contextlib.ExitStack() as stack,
            self.cutter.repinning(parsed.names),
            self.access.redacting_errors(session, parsed.names),
        ):
            context = context_of(parsed, planned)
            reads = self._relations.reads(session, parsed, cuts, context, planned.share)
            counted = counted_rows(reads.values()) if parsed.needs.count_only else None
            if counted is not None and not any(read.tail for read in reads.values()):
                name = name_of_count(parsed.tree)
                return MaterializedResult.of_count(name, counted, answer_metadata(planned))
            result = self._run(opened, reads, stack)
            stream = StatementStream(
                result, answer_metadata(planned), deadline, read_on, stack.pop_all()
            )
            stack.callback(stream.close)
            stream.read()
            stack.pop_all()
            return stream

    def _run(
        self,
        opened: _Opened,
        reads: Mapping[ResolvedTable, TableRead],
        stack: contextlib.ExitStack,
    ) -> Result:
        """Start a statement over the relations of its cuts; ``stack`` frees what it uses."""
        parsed, ticket = opened.parsed, opened.ticket
        context = context_of(parsed, ticket)
        session, deadline = opened.session, opened.deadline
        relations = self._relations.relations(session, parsed, reads, deadline, stack)
        engine, counted = self.sources.engine, counted_rows(reads.values())
        result = engine.run(
            parsed.printed(relations, engine.unparse)
            if counted is None
            else with_counted(parsed.over(relations), counted),
            *(relations, context.values),
            when=context.when,
            cut=ticket.cut,
        )
        return stack.enter_context(result)

    # --- its steps ---

    def _unseal(self, session: Session, ticket: bytes) -> Ticket:
        return self._tickets.opened(ticket, user=session.user or "", now_us=self._now_us())

    def _cached_constant(self, session: Session, planned: Ticket) -> MaterializedResult | None:
        """Return the answer of a statement that depends on nothing and was run before; None: of any other."""
        parsed = None if planned.tables else self._parser.cached(planned.sql)
        if parsed is None:
            return None
        answer = self._cache.cached(("answer", parsed), MaterializedResult)
        if answer is not None:
            self.access.check(session, parsed.names, planned.granted)
        return answer

    def _run_constant(self, opened: _Opened) -> MaterializedResult:
        """Run a statement that reads no table to its end."""
        with contextlib.ExitStack() as stack:
            result = self._run(opened, {}, stack)
            schema = result.schema.with_metadata(answer_metadata(opened.ticket) or None)
            return MaterializedResult(schema, tuple(result))
