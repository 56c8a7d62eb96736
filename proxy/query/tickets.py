"""Tickets as a server gives them out and takes them back: what they hold, signed, encrypted where need be, and remembered."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from planner.errors import BadTicket
from planner.names import TableName
from planner.reading.parsed_statement import ParsedStatement
from planner.reading.plan import is_divisible
from planner.ticket import (
    MAX_TICKET_BYTES,
    Ticket,
    TicketTable,
    padded,
    redeemable,
    seal,
    unseal,
)
from proxy.engine.macros import When
from proxy.engine.statement_cache import StatementCache
from proxy.query.cut import Cuts, FreshnessContract
from proxy.query.relations import Relations, StatementContext
from proxy.session import Session, TicketSummary

#: Key of the cut's text in the metadata of a result's schema.
CUT_METADATA = "thermocline.cut"
#: And of the name of the split that it is a part of.
SPLIT_METADATA = "thermocline.split"
#: How many tickets are remembered, fewer of many partitions, and up to which size.
_MAX_CACHED, _MAX_CACHED_BYTES = 256, 64 * 1024
_PREFIX = b"tv1"
_USE = b"thermocline: veiled tickets"
#: AES-SIV puts a tag of 16 bytes before the text.
_MAX_BYTES = MAX_TICKET_BYTES + len(_PREFIX) + 16
#: Partitions in a summary one by one; a topic of thousands must not make a line of kilobytes.
_MAX_PARTITIONS = 16


@dataclass(frozen=True, slots=True)
class SessionStatement:
    """A statement of a session, checked and resolved. ``hides_count``: its answer must not tell how many records there are."""

    session: Session
    sql: str
    parsed: ParsedStatement
    contract: FreshnessContract
    path: tuple[str, str]
    is_explain: bool
    hides_count: bool
    #: Microseconds since 1970.
    time_us: int

    @property
    def when(self) -> When:
        return When.at(self.time_us, self.session.zone)


class TicketMaker:
    """Makes the tickets of planned statements. Thread-safe."""

    def __init__(self, relations: Relations, *, ttl_s: float) -> None:
        #: How long a ticket is good for. Replaced when the settings are read again.
        self.ttl_s = ttl_s
        self._relations = relations

    def of(
        self,
        statement: SessionStatement,
        cuts: Cuts,
        parameters: pa.RecordBatch | None,
        cut: str,
    ) -> Ticket:
        """Return the ticket of a planned statement; ``cut`` is its text, empty where it is not told."""
        session, parsed = statement.session, statement.parsed
        last_us = self._removable_us(parsed.names, statement.time_us)
        return Ticket(
            sql=statement.sql,
            tables=tuple(TicketTable.of(cuts.by_key[key], key[1]) for key in parsed.keys),
            user=session.user or "",
            time_zone=session.zone,
            search_path=statement.path,
            statement_time_us=statement.time_us,
            expires_at_us=self.good_until_us(statement.time_us, last_us),
            parameters=None if parameters is None else to_ipc(parameters),
            granted=self._relations.access.mark(session, parsed.names),
            side=statement.contract.freshness.side,
            cut=cut,
            renewable_until_us=last_us,
        )

    def shares(
        self, statement: SessionStatement, cuts: Cuts, ticket: Ticket
    ) -> tuple[Ticket, ...]:
        """Return a ticket for each share of an answer; none: it has but one.

        If the caller may not learn counts, there are always as many as it asks for, equally long.
        """
        session, parsed = statement.session, statement.parsed
        is_split = any(is_divisible(parsed.needs, cut) for cut in cuts.by_key.values())
        if session.max_endpoints == 1 or not is_split:
            return ()
        relations = self._relations
        with relations.access.redacting_errors(session, parsed.names):
            reads = relations.reads(session, parsed, cuts.by_key, context_of(parsed, ticket))
            shares = relations.shares(
                reads,
                session.max_endpoints,
                statement_time_us=ticket.statement_time_us,
                hides_count=statement.hides_count,
            )
        tickets = tuple(replace(ticket, share=share) for share in shares)
        return padded(tickets) if statement.hides_count and tickets else tickets

    def good_until_us(self, now_us: int, last_us: int | None) -> int:
        """Return when a ticket expires that is not to be good beyond ``last_us``."""
        until_us = now_us + int(self.ttl_s * 1_000_000)
        return until_us if last_us is None else min(until_us, last_us)

    def _removable_us(self, tables: Sequence[TableName], planned_us: int) -> int | None:
        """Return from when on maintenance may remove what a statement names (docs/care.md); None: never."""
        pins = self._relations.sources.pins.pinned(tables) or {}
        graces = [pin.grace_s for pin in pins.values() if pin.grace_s is not None]
        return planned_us + min(graces) * 1_000_000 if graces else None


class Tickets:
    """Thread-safe. The first of ``secrets`` signs, any is taken.

    A ticket's bytes are read once; whose it is and until when is checked each time.
    """

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self._secrets = tuple(secrets)
        self._cipher = TicketCipher(self._secrets)
        self._cache = StatementCache(_MAX_CACHED)

    def sealed(self, ticket: Ticket, *, is_encrypted: bool) -> bytes:
        """Return what the client gets; encrypted, it cannot be read."""
        sealed = seal(ticket, self._secrets[0])
        token = self._cipher.encrypt(sealed) if is_encrypted else sealed
        self._keep(token, ticket)
        return token

    def resealed(self, ticket: Ticket, before: bytes) -> bytes:
        """Return what takes the place of ``before``, encrypted as that was."""
        return self.sealed(ticket, is_encrypted=self._cipher.is_encrypted(before))

    def opened(self, token: bytes, *, user: str, now_us: int) -> Ticket:
        """Return the ticket a client sent.

        Raises:
            BadTicket, TicketExpired: as ``planner.ticket.unseal``.
        """
        cached = self._cache.cached(token, Ticket)
        if cached is not None:
            return redeemable(cached, user=user, now_us=now_us)
        ticket = unseal(self._cipher.decrypt(token), self._secrets, user=user, now_us=now_us)
        self._keep(token, ticket)
        return ticket

    def _keep(self, token: bytes, ticket: Ticket) -> None:
        if len(token) <= _MAX_CACHED_BYTES:
            self._cache.keep(token, ticket, chars=len(token))


class TicketCipher:
    """Encrypts tickets with a key made of the server's secrets: the first encrypts, any decrypts. Thread-safe.

    A ticket names the offsets that a statement reads, so users who may not know the number of records get it encrypted.
    AES-SIV (RFC 5297) needs no nonce, so replicas with one secret need no state.
    """

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self._keys = [AESSIV(hmac.digest(secret, _USE, "sha512")) for secret in secrets]

    @staticmethod
    def is_encrypted(ticket: bytes) -> bool:
        return ticket.startswith(_PREFIX)

    def encrypt(self, ticket: bytes) -> bytes:
        return _PREFIX + self._keys[0].encrypt(ticket, None)

    def decrypt(self, ticket: bytes) -> bytes:
        """Return what was encrypted; anything else as it is.

        Raises:
            BadTicket: it was not encrypted with one of these keys, or was altered.
        """
        if not self.is_encrypted(ticket):
            return ticket
        # More is none of ours, and the cipher takes no more than 2 GiB.
        for key in self._keys if len(ticket) <= _MAX_BYTES else ():
            try:
                return key.decrypt(ticket[len(_PREFIX) :], None)
            except (InvalidTag, ValueError):
                continue
        raise BadTicket("the ticket was not issued by this server; get one from GetFlightInfo.")


def summary(ticket: Ticket) -> TicketSummary:
    """Say what a ticket stands for, in the words of the audit log."""
    each = "" if ticket.share is None else ", a part of it"
    return TicketSummary(
        ticket.sql, {_table_name(table): _cut_text(table) + each for table in ticket.tables}
    )


def _table_name(table: TicketTable) -> str:
    """The table; of the past, with what the statement says of it."""
    if table.at is None:
        return str(table.table)
    digest = hashlib.sha256(table.at.expression.encode()).hexdigest()[:8]
    return f"{table.table} {table.at} {digest}"


def _cut_text(table: TicketTable) -> str:
    """``snapshot 7, flows 0:10-20 1:5-9``: offsets of the tail, half-open."""
    snapshot = "empty" if table.snapshot_id is None else f"snapshot {table.snapshot_id}"
    if table.topic is None:
        return snapshot
    shortened = [
        f"{each.partition}:{each.start}-{each.stop}" for each in table.ranges[:_MAX_PARTITIONS]
    ]
    more = len(table.ranges) - _MAX_PARTITIONS
    shortened += [f"and {more} more"] if more > 0 else []
    shortened += [] if table.until is None else ["of a cut that ends earlier"]
    return f"{snapshot}, {' '.join([table.topic, *shortened])}"


def to_ipc(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def parameter_values(data: bytes | None) -> list[pa.Scalar]:
    """Return the row of parameters in a ticket.

    Raises:
        BadTicket: it is not valid.
    """
    if data is None:
        return []
    try:
        with pa.ipc.open_stream(data) as reader:
            row = reader.read_next_batch()
        # An older replica may have sealed it without validating the upload; the tag proves only its origin.
        row.validate(full=True)
    except pa.ArrowException as error:
        raise BadTicket("the ticket's parameters are not valid; bind them again.") from error
    return [column[0] for column in row.columns]


def answer_metadata(ticket: Ticket) -> dict[str, str]:
    """The metadata of an answer's schema: most clients show that, and no other of Flight's."""
    split = "" if ticket.share is None else ticket.share.split
    texts = {CUT_METADATA: ticket.cut, SPLIT_METADATA: split}
    return {name: text for name, text in texts.items() if text}


def context_of(parsed: ParsedStatement, ticket: Ticket) -> StatementContext:
    """Return what a planned statement's constants depend on."""
    when = When.at(ticket.statement_time_us, ticket.time_zone)
    return StatementContext(parsed.tree, parameter_values(ticket.parameters), when)
