"""What producers send of an event, and what of it the ledger keeps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from thermocline.demo.feeds import DemoFeed, Event
from thermocline.demo.ledger import digest_event


class Events(Protocol):
    """Encodes the events of one feed; called by both producers."""

    #: Whether each row must have the later field that its event had; else NULL is right, too.
    is_later_exact: ClassVar[bool]
    #: Values that are no event.
    bad_values: ClassVar[Sequence[bytes]]

    @property
    def feed(self) -> DemoFeed: ...

    def encode(self, event: Event) -> tuple[bytes, int]:
        """Return an event's record and its digest."""
        ...


@dataclass
class JsonEvents:
    """``upgraded``: events have the field that newer agents add, which no column asks for at first."""

    feed: DemoFeed
    upgraded: bool = False
    is_later_exact: ClassVar[bool] = False
    bad_values: ClassVar[Sequence[bytes]] = (
        b"",
        b"not json",
        b'{"ts": "soon"}',
        b"[1, 2]",
        b'{"ts": true}',
        b"\xff\xfe",
    )

    def encode(self, event: Event) -> tuple[bytes, int]:
        """See ``Events``."""
        digest = digest_event(event)
        if self.upgraded:
            event[self.feed.later] = self.feed.later_of(event)
        return json.dumps(event).encode(), digest
