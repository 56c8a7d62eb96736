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
from planner.explaining import EXPLAIN_SCHEMA, TableReport, explained, explanation
from planner.incremental import check_followed, format_position, narrow, parse_after
from planner.ports import ColdStore, Log
from planner.pruning import EVERYTHING
from planner.statement.ast import is_constant
from planner.statement.ast import parameters as parameters_of
from planner.statement.breadth import Breadth, check_breadth
from planner.statement.parameters import may_type_columns
from planner.statement.references import CutKey
from planner.ticket import Ticket, TicketTable
from planner.time_travel import format_cut, names_cut
from proxy.access.policy import AccessPolicy
from proxy.catalog.browser import Browser
from proxy.engine import running as engine
from proxy.engine.engine import Engine
from proxy.flightsql.backend import (
    Cancellation,
    Planned,
    Prepared,
    Renewed,
    Session,
    Stream,
    TicketSummary,
)
from proxy.process.watchdog import Watchdog
from proxy.query.bounds_cache import BoundsCache
from proxy.query.cache import StatementCache
from proxy.query.cut import Pins, redeem_tables
from proxy.query.cutting import Cuts, FreshnessContract, SnapshotCutter
from proxy.query.file_pruning import StatementContext
from proxy.query.materialized import MaterializedResult
from proxy.query.parsing import ParsedStatement, StatementParser
from proxy.query.patience import StatementDeadline
from proxy.query.relations import Sources
from proxy.query.running import StatementStream, Watched
from proxy.query.ticket_summary import about
from proxy.query.tickets import MAX_CACHED_BYTES, Tickets
from proxy.query.time_travel import TimeTravel, When
from proxy.tail.tails import Tails

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
        self._rounds = BoundsCache(log)
        self._tails = tails
        self._engine = engine
        engine.planning.expecting = watchdog.expecting
        #: Replaced when the settings are read again.
        self.limits = limits
        self._watchdog = watchdog
        self._tickets = Tickets(secrets)
        self._now_us = now_us
        #: All is open until a policy is put in force.
        self.grants = AccessPolicy(engine)
        self.browsing = Browser(pins, self.grants, default_path)
        self._reader = StatementParser(engine, pins, self.grants)
        self._once = StatementCache()
        self._sources = Sources(
            pins=pins,
            store=store,
            tails=tails,
            engine=engine,
            browsing=self.browsing,
            grants=self.grants,
        )
        lookback = TimeTravel(
            pins=pins, rounds=self._rounds, tails=tails, store=store, engine=engine
        )
        self._cutter = SnapshotCutter(pins=pins, rounds=self._rounds, lookback=lookback)

    def prepare(self, session: Session, sql: str, cancellation: Cancellation) -> Prepared:
        cancellation.check()
        inner = explained(sql)
        contract = FreshnessContract.of(session)
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
        read = self._reader.cached(sql)
        if read is None or self._once.cached((read, (), _zone(session)), Prepared) is None:
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
        patience = StatementDeadline.of(cancellation, self.limits.of(session))
        path = self.browsing.path(session)
        contract, now_us = FreshnessContract.of(session), self._now_us()
        inner = explained(sql)
        side = contract.freshness.side
        read = self._reader.read(sql if inner is None else inner, path, session, side)
        is_uncounted = self.grants.check_uncounted(
            session, read.names, _counting(session, sql, read)
        )
        with self.grants.veiling(session, read.names):
            cut_of_tables = self._cutter.cut(
                read, contract, _when(now_us, session.time_zone), patience
            )
        cuts = cut_of_tables.by_key
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
                self._sources.empty(session, read, cut_of_tables.by_key),
                [column[0] for column in parameters.columns],
                time_zone=_zone(session),
            )
        app_metadata = cut = "" if is_uncounted else format_cut(cuts)
        if session.after is not None:
            after = parse_after(session.after)
            check_followed(
                [table for table, at in read.keys if cuts[table, at].hot], read.sides
            )
            cuts = {key: narrow(cut_of_table, after) for key, cut_of_table in cuts.items()}
            app_metadata = format_position(cuts.values())
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
            cut_of_tables = Cuts(cuts, cut_of_tables.log_age_s)
            report = self._explain(session, read, cut_of_tables, contract, ticket)
            ticket = replace(ticket, tables=(), cut="", answer=_to_ipc(report))
            sealed = self._tickets.sealed(ticket, is_veiled=is_uncounted)
            return Planned(sealed, EXPLAIN_SCHEMA, app_metadata.encode())
        return Planned(
            self._tickets.sealed(ticket, is_veiled=is_uncounted),
            columns.with_metadata(_metadata(cut) or None),
            app_metadata.encode(),
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

    def about(self, session: Session, ticket: bytes) -> TicketSummary:
        # As of 1970 no ticket has expired: a statement may have outlived its own.
        return about(self._unsealed(session, ticket, now_us=0))

    def open_at_once(self, session: Session, ticket: bytes) -> Stream | None:
        """As ``open``, of a statement whose answer is known; None: of any other.

        Neither engine nor catalog nor broker is asked.
        """
        # One that is not kept would be read here, and read again where it is opened.
        if len(ticket) > MAX_CACHED_BYTES:
            return None
        planned = self._unsealed(session, ticket, self._now_us())
        read = None if planned.tables else self._reader.cached(planned.sql)
        answer = (
            None if read is None else self._once.cached(("answer", read), MaterializedResult)
        )
        if read is not None and answer is not None:
            self.grants.check(session, read.names, planned.granted)
        return answer

    def open(self, session: Session, ticket: bytes, cancellation: Cancellation) -> Stream:
        patience = StatementDeadline.of(cancellation, self.limits.of(session))
        planned = self._unsealed(session, ticket, self._now_us())
        inner = explained(planned.sql) if planned.answer is not None else planned.sql
        read = self._reader.read(inner or "", planned.search_path, session, planned.side)
        self.grants.check(session, read.names, planned.granted)
        if planned.answer is not None:
            return MaterializedResult.of(planned.answer)
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
        read: ParsedStatement,
        cut_of_tables: Cuts,
        contract: FreshnessContract,
        ticket: Ticket,
    ) -> pa.RecordBatch:
        """Describe what would be read; a statement whose parameters are not bound is not pruned."""
        bound = len(_values(ticket.parameters)) == len(parameters_of(read.document))
        cuts = cut_of_tables.by_key
        hot = [cut.hot for cut in cuts.values() if cut.hot is not None and cut.hot.ranges]
        topics = sorted({side.topic for side in hot})
        bounds = self._rounds.measure(topics) if topics else {}
        ages = {item.table: item.age_s for item in self._pins.status()}
        reports = {}
        for table in read.tables:
            cut, rows = cuts[table.key], EVERYTHING
            log_age_s = cut_of_tables.log_age_s if table.at is None else None
            contract_text = str(table.at or contract)
            if self._sources.visible_table(session, table, cut).is_filtered:
                reports[table] = TableReport(
                    ages.get(table.table),
                    is_counted=False,
                    log_age_s=log_age_s,
                    contract=contract_text,
                )
                continue
            if bound:
                rows = self._sources.scan_filter(
                    session, table, cut, read, _asking(read, ticket)
                )
            measured = None if cut.hot is None else bounds.get(cut.hot.topic)
            partitions = () if measured is None else measured.partitions
            reports[table] = TableReport(
                metadata_age_s=ages.get(table.table),
                log_age_s=log_age_s,
                contract=contract_text,
                log_starts={item.partition: item.log_start for item in partitions},
                totals=self._store.totals(cut.cold),
                files_to_read=self._store.count_files(cut.cold, rows),
            )
        return explanation(read.tables, {item: cuts[item.key] for item in read.tables}, reports)

    def _start(
        self,
        session: Session,
        read: ParsedStatement,
        planned: Ticket,
        cuts: Mapping[CutKey, TableCut],
        patience: StatementDeadline,
    ) -> Stream:
        asking = _asking(read, planned)
        with contextlib.ExitStack() as stack:
            relations = self._sources.relations(
                session, read, cuts, asking, patience.check, stack
            )
            stop = engine.EngineCancellation()
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
            resources = stack.pop_all()
        watched = Watched(
            self._watchdog, self.limits.timeout_s, lambda: self._repinning(read), session.user
        )
        return StatementStream(
            result, patience.cancellation, watched, resources, _metadata(planned.cut)
        )

    def _answer(
        self,
        session: Session,
        read: ParsedStatement,
        planned: Ticket,
        patience: StatementDeadline,
    ) -> MaterializedResult:
        """Run a statement that reads no table to its end."""
        with contextlib.closing(self._start(session, read, planned, {}, patience)) as stream:
            return MaterializedResult(stream.schema, tuple(stream))

    @contextlib.contextmanager
    def _repinning(self, read: ParsedStatement) -> Iterator[None]:
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
        read: ParsedStatement,
        pins_or_cuts: Mapping[CutKey, Pin] | Mapping[CutKey, TableCut],
    ) -> Prepared:
        """Bind over empty relations of the same types. Nothing is executed.

        Binding depends on nothing else, and takes 5 ms: what was prepared is not bound again to be planned.
        """
        empty, zone = tuple(self._sources.empty(session, read, pins_or_cuts)), _zone(session)

        def described() -> Prepared:
            breadths = {relation.name: Breadth.of(relation.arrow) for relation in empty}
            check_breadth(read.document, breadths)
            result, types = self._engine.describe(read.document, empty, time_zone=zone)
            names = parameters_of(read.document)
            fields = [pa.field(*parameter) for parameter in zip(names, types, strict=True)]
            return Prepared(result, pa.schema(fields))

        return self._once.get((read, empty, zone), described, chars=read.chars)

    def _may_type_columns(self, read: ParsedStatement) -> bool:
        return self._once.get(
            ("may type columns", read),
            lambda: may_type_columns(read.document),
            chars=read.chars,
        )


def _counting(session: Session, sql: str, read: ParsedStatement) -> Iterator[str]:
    """Name what a statement uses that tells how many records its tables have, or would find out."""
    for what, is_set in (
        ("following", session.after),
        ("the setting cut", session.cut),
        ("the setting wait_for", session.wait_for),
    ):
        if is_set is not None:
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


def _asking(read: ParsedStatement, planned: Ticket) -> StatementContext:
    when = _when(planned.statement_time_us, planned.time_zone)
    return StatementContext(
        read.written, _values(planned.parameters), when.statement_time, when.time_zone
    )


def _check_count(parameters: pa.RecordBatch | None, expected: pa.Schema) -> None:
    count = 0 if parameters is None else parameters.num_columns
    if count != len(expected):
        raise BadParameter(
            f"the statement has {len(expected)} parameters and {count} are bound.",
            expected=len(expected),
            given=count,
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
