"""What the Flight SQL layer asks of the engine behind it.

The protocol layer knows messages, sessions, handles and statuses; a backend knows SQL, tables and tickets.
Neither knows the other's library. A backend raises errors of ``planner.errors``; anything else it raises is
reported to the client as an internal error without its text.

All methods may be called from many threads at once. Each gets the ``Deadline`` of the client call it serves and
answers by it, or is expected to be fast enough not to need one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import pyarrow as pa

from proxy.session import (
    Deadline,
    Planned,
    Prepared,
    Renewed,
    Session,
    Stream,
    Table,
    TicketSummary,
)


class Browsing(Protocol):
    """What may be browsed and set. Thread-safe."""

    def configure(self, session: Session, before: Session | None = None) -> Session:
        """Check what a session has set and fill in the defaults for what it has not. Fast.

        Called when a session starts and whenever a client sets something. Catalog and schema that are those of
        ``before``, what it was until now, are not looked for again.

        Raises:
            RequestError: names the setting that cannot be served; the session keeps its former value.
        """

    def catalogs(self, session: Session) -> Sequence[str]:
        """Name the catalogs the session may see. From memory: tools ask before every query."""

    def schemas(self, session: Session) -> Sequence[tuple[str, str]]:
        """Name the (catalog, schema) pairs the session may see. From memory."""

    def tables(self, session: Session) -> Sequence[Table]:
        """List all tables and views the session may see, in any order. From memory."""

    def table_schema(self, session: Session, table: Table) -> pa.Schema:
        """The columns of a listed table, typed as a query returns them; see ``COMMENT``, ``TYPE_NAME``.

        Raises:
            UnknownTable: it went away since it was listed.
        """


class Backend(Protocol):
    """SQL and tickets, and what may be browsed beside them. Thread-safe."""

    @property
    def browser(self) -> Browsing:
        """The tables, as the statements of the same session see them."""

    def prepare(self, session: Session, sql: str, deadline: Deadline) -> Prepared:
        """Check a statement and describe its answer and parameters, without executing it.

        Raises:
            RequestError: it does not parse or bind, or is not allowed (anything but a query).
        """

    def plan(
        self,
        session: Session,
        sql: str,
        parameters: pa.RecordBatch | None,
        deadline: Deadline,
    ) -> Planned:
        """Fix what one execution will read. ``parameters`` has exactly one row, any types; None: none bound.

        Called once for each client call that asks for an answer, or for its schema once parameters are bound.

        Raises:
            RequestError: as ``prepare``; BadParameter also where count or type of the parameters do not fit.
        """

    def update(
        self,
        session: Session,
        sql: str,
        rows: Iterable[pa.RecordBatch],
        deadline: Deadline,
    ) -> int:
        """Execute a statement that changes data, once for each row of ``rows``; how many rows it changed.

        Batches without columns bind nothing: clients send one where there are no parameters.

        Raises:
            UnsupportedStatement: this backend only reads.
        """

    def open(self, session: Session, ticket: bytes, deadline: Deadline) -> Stream:
        """Start executing a ticket; the caller closes the stream. ``ticket`` is hostile until checked.

        The deadline stays in force while the stream is read; its clock stands still while the client has a batch.

        Raises:
            BadTicket: not issued by this server for this user, or altered.
            StalePlan: what it names is gone.
        """

    def renew(self, session: Session, ticket: bytes) -> Renewed:
        """Make a ticket good for longer. Fast; nothing is read again.

        Raises:
            BadTicket: as ``open``; also once it has expired.
        """

    def about(self, session: Session, ticket: bytes) -> TicketSummary:
        """Say what a ticket stands for, also once it has expired. Fast; nothing is read.

        Raises:
            BadTicket: not issued by this server for this user, or altered.
        """
