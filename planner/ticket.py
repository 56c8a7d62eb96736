"""The Flight ticket: one statement with its cut and all else that its answer depends on.

Any replica redeems a ticket, twice with the same answer. It comes back from a client, so it is decoded as
hostile input: the authentication tag is checked before a byte is interpreted, sizes are bounded, the version
comes first. It names a metadata file by its last path segment only: no path of the server's leaves it, and
the redeeming replica finds the file through the table's own metadata log.

Layout: ``b"tc" + version byte + 32 bytes HMAC-SHA256 over the rest + canonical JSON``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from planner.errors import BadTicket, TicketExpired
from planner.names import Side, TableName
from planner.offsets import OffsetRange, OffsetVector
from planner.reading.filters import FileSpan
from planner.reading.plan import ReadShare
from planner.seam.binding import decoding_key
from planner.seam.cut import HotSlice, Increment, Pin, PinReference, TableCut, cold_cut
from planner.statement.references import AtClause, CutKey

TICKET_VERSION = 3
#: Of a ticket of a share: a server that knows no shares would answer it with the whole.
PART_VERSION = 4
MAX_TICKET_BYTES = 8 * 1024 * 1024
_MAGIC = b"tc" + bytes([TICKET_VERSION])
_PART_MAGIC = b"tc" + bytes([PART_VERSION])
_ENCODE = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_TAG_BYTES = hashlib.sha256().digest_size


@dataclass(frozen=True, slots=True)
class TicketTable(PinReference):
    """One table's cut, by reference: enough for any replica to build the same ``TableCut``.

    ``topic``, ``topic_id`` and ``ranges`` are None, None and empty for a table without a topic. ``increment`` is the
    part that is new to a follower; None without one. ``at`` is the statement's AT clause at the table, ``until`` the
    end of a cut that lies below its snapshot's watermark.
    """

    topic: str | None = None
    topic_id: str | None = None
    ranges: tuple[OffsetRange, ...] = ()
    increment: Increment | None = None
    at: AtClause | None = None
    until: OffsetVector | None = None
    #: Decoding of the records in the ranges; None in a ticket of a server that did not write it.
    decoding: str | None = None
    epochs: OffsetVector = field(default_factory=OffsetVector)

    @property
    def key(self) -> CutKey:
        return self.table, self.at

    @classmethod
    def of(cls, cut: TableCut, at: AtClause | None = None) -> TicketTable:
        pin, hot, binding = cut.cold_reference, cut.hot, cut.binding
        table = cls(
            *(pin.table, pin.table_uuid, pin.metadata_file, pin.snapshot_id, pin.schema_id),
            increment=cut.increment,
            at=at,
            until=cut.until,
            decoding=None if binding is None else decoding_key(cut.cold.schema, binding),
        )
        if hot is None:
            return table
        return replace(
            table, topic=hot.topic, topic_id=hot.topic_id, ranges=hot.ranges, epochs=hot.epochs
        )

    def cut(self, pin: Pin) -> TableCut:
        """Rebuild the cut from the pin that this names.

        Raises:
            ValueError: the pin is another one: its schema, snapshot, topic, watermark or decoding differ.
        """
        if (pin.table_uuid, pin.snapshot_id, pin.schema.schema_id) != (
            self.table_uuid,
            self.snapshot_id,
            self.schema_id,
        ):
            raise ValueError(f"not the pin of this ticket: {pin.table}")
        if self.topic is None or self.topic_id is None:
            return cold_cut(pin)
        hot = HotSlice(self.topic, self.topic_id, self.ranges, self.epochs)
        mark = pin.watermark
        if mark and (mark.address, mark.topic_id) != (hot.topic, hot.topic_id):
            raise ValueError(f"not the topic of this ticket: {pin.table}")
        if (
            self.ranges
            and self.decoding is not None
            and pin.binding is not None
            and decoding_key(pin.schema, pin.binding) != self.decoding
        ):
            raise ValueError(f"not the decoding of this ticket: {pin.table}")
        return replace(cold_cut(pin), hot=hot, increment=self.increment, until=self.until)


@dataclass(frozen=True, slots=True)
class Ticket:
    """A planned statement. Times are microseconds since 1970, UTC.

    ``parameters`` is an Arrow IPC stream of one row, or None. ``search_path`` is (catalog, schema).
    ``statement_time_us`` is the value of ``now()``. Only ``user`` may redeem it. ``answer`` are the rows themselves, an
    Arrow IPC stream, of a statement that planning answers (EXPLAIN). ``side`` is the meaning of a table's plain name
    under the statement's freshness contract. ``cut`` is the text of ``tables``
    (``planner.seam.time_travel``): over 1,000 partitions writing it takes 1 ms. ``share``: no more than that of its one table.
    ``padding`` says nothing (``padded``). ``renewable_until_us``: no renewal makes it good for longer; None: any may.
    """

    sql: str
    tables: tuple[TicketTable, ...]
    user: str
    time_zone: str
    search_path: tuple[str | None, str | None]
    statement_time_us: int
    expires_at_us: int
    parameters: bytes | None = None
    answer: bytes | None = None
    #: Fingerprint of the user's rights to the tables (``planner.permissions.GrantList.fingerprint``).
    granted: str = ""
    side: Side = Side.BOTH
    cut: str = ""
    share: ReadShare | None = None
    padding: str = ""
    renewable_until_us: int | None = None


def padded(tickets: Sequence[Ticket]) -> tuple[Ticket, ...]:
    """Make the tickets of an answer's shares equally long and no two equal: neither shows which have nothing to read."""
    lengths = [len(_ENCODE(_document(ticket))) for ticket in tickets]
    width = max(lengths) + len(str(len(tickets)))
    return tuple(
        replace(ticket, padding=f"{number:0{width - length}}")
        for number, (ticket, length) in enumerate(zip(tickets, lengths, strict=True))
    )


def seal(ticket: Ticket, secret: bytes) -> bytes:
    body = _ENCODE(_document(ticket)).encode()
    magic = _MAGIC if ticket.share is None else _PART_MAGIC
    return magic + _tag(secret, magic, body) + body


def unseal(data: bytes, secrets: Sequence[bytes], *, user: str, now_us: int) -> Ticket:
    """Check and decode. Any of ``secrets`` may have signed it (key rotation).

    Raises:
        BadTicket: not ours, altered, another version, or another user's.
        TicketExpired: plan the statement again.
    """
    head = len(_MAGIC) + _TAG_BYTES
    if not head < len(data) <= MAX_TICKET_BYTES or not data.startswith(b"tc"):
        raise BadTicket("the ticket was not issued by this server; get one from GetFlightInfo.")
    if not data.startswith((_MAGIC, _PART_MAGIC)):
        raise BadTicket(
            f"the ticket has version {data[2]} and this server reads versions {TICKET_VERSION} and {PART_VERSION}; plan "
            f"the statement again."
        )
    magic, tag, body = data[: len(_MAGIC)], data[len(_MAGIC) : head], data[head:]
    if not any(hmac.compare_digest(tag, _tag(secret, magic, body)) for secret in secrets):
        raise BadTicket(
            "the ticket's signature is not this server's; it was altered, or replicas do not share a "
            "ticket secret."
        )
    return redeemable(_ticket(json.loads(body)), user=user, now_us=now_us)


def redeemable(ticket: Ticket, *, user: str, now_us: int) -> Ticket:
    """Return an unsealed ticket if this user may redeem it now.

    Raises:
        BadTicket: another user's.
        TicketExpired: plan the statement again.
    """
    if ticket.user != user:
        raise BadTicket("the ticket belongs to another user; plan the statement yourself.")
    if ticket.expires_at_us <= now_us:
        raise TicketExpired("the ticket has expired; plan the statement again.")
    return ticket


def _tag(secret: bytes, magic: bytes, body: bytes) -> bytes:
    return hmac.digest(secret, magic + body, "sha256")


def _document(ticket: Ticket) -> dict[str, Any]:
    return _share_document(ticket.share, ticket.padding) | {
        "sql": ticket.sql,
        "user": ticket.user,
        "tz": ticket.time_zone,
        "path": list(ticket.search_path),
        "now": ticket.statement_time_us,
        "exp": ticket.expires_at_us,
        "last": ticket.renewable_until_us,
        "params": _text(ticket.parameters),
        "answer": _text(ticket.answer),
        "granted": ticket.granted,
        "side": ticket.side.value or None,
        "cut": ticket.cut,
        "tables": [
            {
                "catalog": table.table.catalog,
                "namespace": list(table.table.namespace),
                "name": table.table.name,
                "uuid": table.table_uuid,
                "file": table.metadata_file,
                "snapshot": table.snapshot_id,
                "schema": table.schema_id,
                "topic": table.topic,
                "topic_id": table.topic_id,
                "ranges": [(item.partition, item.start, item.stop) for item in table.ranges],
                "news": None
                if table.increment is None
                else [table.increment.after.items, table.increment.since_us],
                "at": None if table.at is None else [table.at.unit, table.at.expression],
                "until": None if table.until is None else table.until.items,
                "decoding": table.decoding,
                "epochs": table.epochs.items,
            }
            for table in ticket.tables
        ],
    }


def _share_document(share: ReadShare | None, padding: str) -> dict[str, Any]:
    if share is None:
        return {}
    ranges = [[item.partition, item.start, item.stop] for item in share.ranges]
    document = {"part": [share.files.start, share.files.stop, ranges, share.split]}
    return document | {"padding": padding} if padding else document


def _share(entry: list[Any] | None) -> ReadShare | None:
    if entry is None:
        return None
    start, stop, ranges, split = entry
    return ReadShare(FileSpan(start, stop), tuple(OffsetRange(*item) for item in ranges), split)


def _ticket(document: dict[str, Any]) -> Ticket:
    """Rebuild what ``_document`` wrote; the tag vouches for its form."""
    catalog, schema = document["path"]
    return Ticket(
        sql=document["sql"],
        user=document["user"],
        time_zone=document["tz"],
        search_path=(catalog, schema),
        statement_time_us=document["now"],
        expires_at_us=document["exp"],
        parameters=_bytes(document["params"]),
        answer=_bytes(document["answer"]),
        granted=document["granted"],
        side=Side(document["side"] or ""),
        cut=document["cut"],
        share=_share(document.get("part")),
        padding=document.get("padding", ""),
        renewable_until_us=document.get("last"),
        tables=tuple(
            TicketTable(
                table=TableName(entry["catalog"], tuple(entry["namespace"]), entry["name"]),
                table_uuid=entry["uuid"],
                metadata_file=entry["file"],
                snapshot_id=entry["snapshot"],
                schema_id=entry["schema"],
                topic=entry["topic"],
                topic_id=entry["topic_id"],
                ranges=tuple(OffsetRange(*item) for item in entry["ranges"]),
                increment=None
                if entry["news"] is None
                else Increment(_vector(entry["news"][0]), entry["news"][1]),
                at=None if entry["at"] is None else AtClause(*entry["at"]),
                until=None if entry["until"] is None else _vector(entry["until"]),
                decoding=entry.get("decoding"),
                epochs=_vector(entry.get("epochs", [])),
            )
            for entry in document["tables"]
        ),
    )


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _vector(pairs: list[list[int]]) -> OffsetVector:
    return OffsetVector.of((partition, offset) for partition, offset in pairs)
