"""What a client has set, and what it gets: the values that a statement carries from the protocol to the engine."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol
from zoneinfo import available_timezones

import pyarrow as pa

OptionValue = str | bool | int | float | tuple[str, ...]
TableKind = Literal["TABLE", "VIEW"]

#: Field metadata keys of ``Browsing.table_schema``: a column's comment, and its SQL type name where the Arrow
#: type does not say it (UUID, JSON).
COMMENT = b"comment"
TYPE_NAME = b"type_name"


@functools.cache
def time_zones() -> frozenset[str]:
    """The names that a session's time zone may have. Once: Python walks through 600 files, 14 ms of its lock."""
    return frozenset(available_timezones())


@dataclass(frozen=True, slots=True)
class Session:
    """What a client has set, as one statement sees it: a value, replaced and never changed.

    ``id`` names the session in logs; it is not the token. ``user`` is None for anonymous callers; ``groups`` are
    what the credentials say the user belongs to. None in
    ``catalog``, ``schema`` or ``time_zone`` means not set; ``Browsing.configure`` fills in the default.
    ``freshness``, ``wait_for`` and ``cut`` are texts of ``planner.seam.freshness`` and ``planner.seam.time_travel``; None: live,
    nothing, none. ``after``, ``max_endpoints`` and ``is_whole`` are of one call only: what its caller has seen before
    (``planner.seam.incremental``), among how many readers it would share the answer out, and whether it is to be refused
    where anything of a table is hidden from it.
    """

    id: str
    user: str | None = None
    groups: frozenset[str] = frozenset()
    catalog: str | None = None
    schema: str | None = None
    time_zone: str | None = None
    freshness: str | None = None
    wait_for: str | None = None
    cut: str | None = None
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    after: str | None = None
    max_endpoints: int = 1
    is_whole: bool = False

    @property
    def zone(self) -> str:
        return self.time_zone or "UTC"

    @property
    def payer(self) -> Hashable:
        """Whose slot planning takes: the user's; anonymous sessions have one each."""
        return self.user or (self.id,)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A checked statement.

    ``parameter_schema`` has one field per parameter, in order. JDBC binds nothing to a null-typed field, and
    writes milliseconds for any declared unit, so: ``int64`` for every integer, ``timestamp[ms]`` and
    ``time32[ms]`` for times, utf8 where the type is unknown (docs/internals/protocol.md).
    """

    dataset_schema: pa.Schema
    parameter_schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Planned:
    """A statement with everything its answer depends on. The ticket is opaque here and sealed by the backend.

    ``app_metadata`` goes out with the FlightInfo: the text of the cut it reads (``planner.seam.time_travel``), empty where
    it reads no table; to one who follows, the position the answer ends at.
    ``expires_at_us`` is microseconds since 1970; None: never. ``parts`` are tickets of disjoint parts that together are
    the answer, where it was asked for in parts and can be had so.
    """

    ticket: bytes
    schema: pa.Schema
    app_metadata: bytes = b""
    expires_at_us: int | None = None
    parts: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Renewed:
    """A ticket for the same answer as another one, good for longer."""

    ticket: bytes
    expires_at_us: int


@dataclass(frozen=True, slots=True)
class TicketSummary:
    """What was asked, for those who write it down: the text, and by table what of it is read, in short."""

    sql: str
    cuts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Table:
    catalog: str
    schema: str
    name: str
    kind: TableKind = "TABLE"
    comment: str | None = None


class Stream(Protocol):
    """One execution of a ticket. Used by one thread at a time; its cancellation may come from any."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch, field metadata included; ADBC refuses one that differs from ``Planned``'s."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield batches of about 2 MiB, without dictionary, view or run-end encoded columns (JDBC reads none).

        Called once. Ends normally only if the answer is whole; anything less raises.
        """

    def close(self) -> None:
        """Free what the execution holds. Idempotent; called after the end, an error, or halfway."""
