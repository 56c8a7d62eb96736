"""The path of one statement, from its text to its rows. Implements ``proxy.flightsql.backend.Backend``.

::

    prepare   text -> gate -> tables -> pins                      -> schemas of result and parameters
    plan      text -> gate -> tables -> one cut of all of them    -> ticket, with all the answer depends on
    open      ticket -> the same cut -> relations of that cut     -> rows
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa

from connectors.cuts import BoundsCache
from connectors.iceberg.pin_cache import PinCache
from planner.errors import (
    BadStatement,
    ColdStoreUnavailable,
    FederationError,
    OffsetsExpired,
    SnapshotExpired,
    UnsupportedFile,
    UnsupportedStatement,
)
from planner.explain import EXPLAIN_SCHEMA, explained
from planner.ports import ColdStore, Log
from planner.reading.needs import name_of_count, with_counted
from planner.seam.cut import TableCut
from planner.seam.incremental import check_followed, format_position, narrow, parse_after
from planner.seam.time_travel import format_cut
from planner.statement.ast import is_constant
from planner.statement.ast import parameters as parameters_of
from planner.statement.references import CutKey
from planner.ticket import Ticket, TicketTable
from proxy.access.fairness import PlanningQueue
from proxy.access.policy import AccessPolicy
from proxy.catalog.browser import Browser
from proxy.deadline import Deadline
from proxy.engine.engine import Engine
from proxy.engine.result import Result
from proxy.engine.running import with_memory, working_for
from proxy.engine.statement_cache import StatementCache
from proxy.engine.thread_pool import ThreadPool
from proxy.query.cut import Cuts, FreshnessContract, SnapshotCutter, redeem_tables
from proxy.query.explain import Explainer
from proxy.query.file_pruning import StatementContext
from proxy.query.parsing import ParsedStatement, StatementParser, counting
from proxy.query.parts import in_parts
from proxy.query.relations import Sources
from proxy.query.signature import Signatures
from proxy.query.stream import MaterializedResult, StatementStream
from proxy.query.tickets import Tickets, parameter_values, summary, to_ipc
from proxy.query.time_travel import When
from proxy.query.whose_files import of_tables
from proxy.session import Planned, Prepared, Renewed, Session, Stream, TicketSummary
from proxy.tail.tails import Tails

T = TypeVar("T")

#: Key of the cut's text in the metadata of a result's schema.
CUT_METADATA = "thermocline.cut"
#: And of the name of the split that it is a part of.
SPLIT_METADATA = "thermocline.split"
#: Answers to longer statements are not kept.
_SHORT_CHARS = 1_000


@dataclass(frozen=True, slots=True)
class _Question:
    """A statement as a session asks it. ``hides_count``: its answer must not tell how many records there are."""

    parsed: ParsedStatement
    contract: FreshnessContract
    path: tuple[str, str]
    is_explain: bool
    hides_count: bool


class Statements:
    """Plans and runs statements. Thread-safe. The caller closes it."""

    def __init__(
        self,
        *,
        pins: PinCache,
        store: ColdStore,
        log: Log,
        tails: Tails,
        engine: Engine,
        ticket_ttl_s: float,
        secrets: Sequence[bytes],
        now_us: Callable[[], int],
        default_path: tuple[str, str],
    ) -> None:
        self._pins = pins
        self._bounds = BoundsCache(log)
        self._tails = tails
        self._engine = engine
        #: How long a ticket is good for. Replaced when the settings are read again.
        self.ticket_ttl_s = ticket_ttl_s
        self._tickets = Tickets(secrets)
        self._now_us = now_us
        #: All is open until a policy is put in force.
        self.grants = AccessPolicy(engine)
        self.browsing = Browser(pins, self.grants, default_path)
        self._parser = StatementParser(engine, pins, self.grants)
        self._cache = StatementCache()
        self._sources = Sources(
            pins=pins,
            store=store,
            tails=tails,
            engine=engine,
            browsing=self.browsing,
            grants=self.grants,
        )
        self.cutter = SnapshotCutter(
            pins=pins, bounds=self._bounds, tails=tails, store=store, engine=engine
        )
        self._explainer = Explainer(
            pins=pins, bounds=self._bounds, store=store, sources=self._sources
        )
        self._signatures = Signatures(engine, self._sources)
        self._threads = ThreadPool()
        self._planning = PlanningQueue()

    def close(self) -> None:
        """End the threads, without waiting for abandoned work."""
        self._threads.close()

    # --- what a client calls: each answers by its deadline, whatever the engine does ---

    def prepare(self, session: Session, sql: str, deadline: Deadline) -> Prepared:
        def prepared() -> Prepared:
            return self._prepare(session, sql, deadline)

        return self._soon(session, sql, None, deadline, prepared)

    def plan(
        self,
        session: Session,
        sql: str,
        parameters: pa.RecordBatch | None,
        deadline: Deadline,
    ) -> Planned:
        def planned() -> Planned:
            return self._plan(session, sql, parameters, deadline)

        return self._soon(session, sql, parameters, deadline, planned)

    def open(self, session: Session, ticket: bytes, deadline: Deadline) -> Stream:
        deadline.check()
        planned = self._opened(session, ticket)
        answer = self._remembered(session, planned)
        if answer is not None:
            return answer
        return self._on_thread(
            session,
            deadline,
            lambda: self._open(session, planned, deadline),
            afterwards=lambda stream: None if stream is None else stream.close(),
        )

    def update(self, *_: object, **__: object) -> int:
        raise UnsupportedStatement(
            "This server is read-only: it executes queries, one set of parameters at a time; "
            "no updates, no executemany."
        )

    def renew(self, session: Session, ticket: bytes) -> Renewed:
        planned = self._opened(session, ticket)
        until_us = self._now_us() + int(self.ticket_ttl_s * 1_000_000)
        again = replace(planned, expires_at_us=max(until_us, planned.expires_at_us))
        return Renewed(self._tickets.resealed(again, ticket), again.expires_at_us)

    def about(self, session: Session, ticket: bytes) -> TicketSummary:
        # As of 1970 no ticket has expired: a statement may have outlived its own.
        return summary(self._tickets.opened(ticket, user=session.user or "", now_us=0))

    def _soon(
        self,
        session: Session,
        sql: str,
        parameters: pa.RecordBatch | None,
        deadline: Deadline,
        work: Callable[[], T],
    ) -> T:
        """Do ``work`` here where nobody has to be asked: a switch of threads would cost as much as all the rest."""
        parsed = self._parser.cached(sql)
        if parsed is not None and self._signatures.has(session, parsed, parameters):
            deadline.check()
            return work()
        return self._on_thread(session, deadline, work)

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
            with working_for(deadline, session.user):
                return with_memory(work, deadline) if is_repeatable else work()

        deadline.check()
        return self._threads.run(worked, deadline, session.user, afterwards)

    # --- the path of a statement ---

    def _question(self, session: Session, sql: str, deadline: Deadline) -> _Question:
        """Parse, gate and resolve a statement. Nothing is pinned yet."""
        with self._planning.slot(session.payer, sql, deadline):
            inner, path = explained(sql), self.browsing.path(session)
            contract = FreshnessContract.of(session)
            side = contract.freshness.side
            parsed = self._parser.read(sql if inner is None else inner, path, session, side)
            hides_count = self.grants.check_count_disclosure(
                session, parsed.names, counting(session, sql, parsed)
            )
            if session.is_whole:
                self.grants.check_whole(session, parsed.names)
            return _Question(parsed, contract, path, inner is not None, hides_count)

    def _prepare(self, session: Session, sql: str, deadline: Deadline) -> Prepared:
        question = self._question(session, sql, deadline)
        when = When.at(self._now_us(), session.zone)
        pins = self.cutter.pins(question.parsed, question.contract, when)
        with self._planning.slot(session.payer, sql, deadline):
            prepared = self._signatures.prepared(session, question.parsed, pins)
        return Prepared(EXPLAIN_SCHEMA, pa.schema([])) if question.is_explain else prepared

    def _plan(
        self,
        session: Session,
        sql: str,
        parameters: pa.RecordBatch | None,
        deadline: Deadline,
    ) -> Planned:
        now_us = self._now_us()
        question = self._question(session, sql, deadline)
        parsed = question.parsed
        with self.grants.redacting_errors(session, parsed.names):
            cut_of_tables = self.cutter.cut(
                parsed, question.contract, When.at(now_us, session.zone), deadline
            )
        cuts = cut_of_tables.by_key
        if parsed.any_rows is None:  # else the rows that are there may be enough
            for expected in cuts.values():
                self._tails.expect(expected)
        # A statement to explain binds nothing.
        with self._planning.slot(session.payer, sql, deadline):
            columns = self._signatures.columns(
                session, parsed, cuts, parameters, is_bound=not question.is_explain
            )
        app_metadata = cut = "" if question.hides_count else format_cut(cuts)
        if session.after is not None:
            after = parse_after(session.after)
            check_followed(
                [table for table, at in parsed.keys if cuts[table, at].hot], parsed.sides
            )
            cuts = {key: narrow(cut_of_table, after) for key, cut_of_table in cuts.items()}
            app_metadata = format_position(cuts.values())
        ticket = Ticket(
            sql=sql,
            tables=tuple(TicketTable.of(cuts[key], key[1]) for key in parsed.keys),
            user=session.user or "",
            time_zone=session.zone,
            search_path=question.path,
            statement_time_us=now_us,
            expires_at_us=now_us + int(self.ticket_ttl_s * 1_000_000),
            parameters=None if parameters is None else to_ipc(parameters),
            granted=self.grants.mark(session, parsed.names),
            side=question.contract.freshness.side,
            cut=cut,
        )
        if question.is_explain:
            context = _context(parsed, ticket)
            # A statement whose parameters are not bound is not pruned.
            is_bound = len(context.values) == len(parameters_of(parsed.document))
            report = self._explainer.explain(
                session,
                parsed,
                Cuts(cuts, cut_of_tables.log_age_s),
                question.contract,
                context if is_bound else None,
            )
            ticket = replace(ticket, tables=(), cut="", answer=to_ipc(report))
            sealed = self._tickets.sealed(ticket, is_encrypted=question.hides_count)
            return Planned(sealed, EXPLAIN_SCHEMA, app_metadata.encode())
        parts: tuple[Ticket, ...] = ()
        if session.max_endpoints > 1:
            context, hides_count = _context(parsed, ticket), question.hides_count
            with self.grants.redacting_errors(session, parsed.names):
                parts = in_parts(
                    self._sources,
                    session,
                    parsed,
                    cuts,
                    context,
                    ticket,
                    hides_count=hides_count,
                )
        return Planned(
            self._tickets.sealed(ticket, is_encrypted=question.hides_count),
            columns.with_metadata(_metadata(*parts[:1] or (ticket,)) or None),
            app_metadata.encode(),
            ticket.expires_at_us,
            tuple(
                self._tickets.sealed(part, is_encrypted=question.hides_count) for part in parts
            ),
        )

    def _open(self, session: Session, planned: Ticket, deadline: Deadline) -> Stream:
        inner = explained(planned.sql) if planned.answer is not None else planned.sql
        with self._planning.slot(session.payer, planned.sql, deadline):
            parsed = self._parser.read(inner or "", planned.search_path, session, planned.side)
        self.grants.check(session, parsed.names, planned.granted)
        if planned.answer is not None:
            return MaterializedResult.of(planned.answer)
        if len(planned.sql) <= _SHORT_CHARS and is_constant(parsed.document):
            # What pools and tools ask again and again to learn whether anybody is there.
            return self._cache.get(
                ("answer", parsed),
                lambda: self._answer(session, parsed, planned, deadline),
                chars=parsed.chars,
            )
        cuts = redeem_tables(self._pins, planned.tables)
        if set(cuts) != set(parsed.keys):
            raise BadStatement("the tables of the statement changed; plan it again.")

        def read_on(read: Callable[[], None]) -> None:
            repinning = self._repinning(parsed)(read)
            self._on_thread(session, deadline, repinning, is_repeatable=False)

        with (
            contextlib.ExitStack() as stack,
            self._repinning(parsed),
            self.grants.redacting_errors(session, parsed.names),
        ):
            counted = self._sources.cold_rows(session, parsed, cuts)
            if counted is not None and not self._sources.has_tail(parsed, cuts):
                name = name_of_count(parsed.document)
                return MaterializedResult.of_count(name, counted, _metadata(planned))
            result = self._run(session, parsed, planned, cuts, deadline, stack, counted)
            stream = StatementStream(
                result, _metadata(planned), deadline, read_on, stack.pop_all()
            )
            stack.callback(stream.close)
            stream.read()
            stack.pop_all()
            return stream

    def _run(
        self,
        session: Session,
        parsed: ParsedStatement,
        planned: Ticket,
        cuts: Mapping[CutKey, TableCut],
        deadline: Deadline,
        stack: contextlib.ExitStack,
        counted: int | None = None,
    ) -> Result:
        """Start a statement over the relations of its cuts; ``stack`` frees what it uses.

        ``counted`` cold rows are not read.
        """
        context = _context(parsed, planned)
        relations = self._sources.relations(
            session,
            parsed,
            cuts,
            context,
            deadline,
            stack,
            is_cold_counted=counted is not None,
            part=planned.part,
        )
        document = parsed.over(relations)
        if counted is not None:
            document = with_counted(document, counted)
        result = self._engine.run(
            document,
            relations,
            context.values,
            statement_time=context.statement_time,
            time_zone=context.time_zone,
            deadline=deadline,
            cut=planned.cut,
            owner=session.user,
        )
        return stack.enter_context(result)

    # --- its steps ---

    def _opened(self, session: Session, ticket: bytes) -> Ticket:
        return self._tickets.opened(ticket, user=session.user or "", now_us=self._now_us())

    def _remembered(self, session: Session, planned: Ticket) -> MaterializedResult | None:
        """Return the answer of a statement that depends on nothing and was run before; None: of any other."""
        parsed = None if planned.tables else self._parser.cached(planned.sql)
        if parsed is None:
            return None
        answer = self._cache.cached(("answer", parsed), MaterializedResult)
        if answer is not None:
            self.grants.check(session, parsed.names, planned.granted)
        return answer

    def _answer(
        self, session: Session, parsed: ParsedStatement, planned: Ticket, deadline: Deadline
    ) -> MaterializedResult:
        """Run a statement that reads no table to its end."""
        with contextlib.ExitStack() as stack:
            result = self._run(session, parsed, planned, {}, deadline, stack)
            schema = result.schema.with_metadata(_metadata(planned) or None)
            return MaterializedResult(schema, tuple(result))

    @contextlib.contextmanager
    def _repinning(self, parsed: ParsedStatement) -> Iterator[None]:
        """After a file or offsets turned out to be gone, pin again: the client's next try must not meet it.

        What the engine and the store say of files does not say whose they are: it gets the table's name.
        """
        try:
            yield
        except (SnapshotExpired, OffsetsExpired) as error:
            self._bounds.forget()
            for table in parsed.names:
                with contextlib.suppress(FederationError):
                    self._pins.refresh(table)
            raise of_tables(error, parsed.names) from error
        except (ColdStoreUnavailable, UnsupportedFile) as error:
            raise of_tables(error, parsed.names) from error


def _metadata(ticket: Ticket) -> dict[str, str]:
    """The metadata of an answer's schema: most clients show that, and no other of Flight's."""
    split = "" if ticket.part is None else ticket.part.split
    return {
        name: text
        for name, text in ((CUT_METADATA, ticket.cut), (SPLIT_METADATA, split))
        if text
    }


def _context(parsed: ParsedStatement, planned: Ticket) -> StatementContext:
    when = When.at(planned.statement_time_us, planned.time_zone)
    return StatementContext(
        parsed.written,
        parameter_values(planned.parameters),
        when.statement_time,
        when.time_zone,
    )
