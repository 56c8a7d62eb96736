"""Tickets whose holder may not read what is in them: encrypted with a key made of the server's secret.

A ticket is signed and its client's to keep, and names the offsets a statement reads. To those who may not know how
many records there are it goes out so. AES-SIV (RFC 5297) needs no nonce, so replicas with one secret need no state.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from planner.errors import BadTicket
from planner.ticket import MAX_TICKET_BYTES

_PREFIX = b"tv1"
_USE = b"thermocline: veiled tickets"
#: AES-SIV puts a tag of 16 bytes before the text.
_MAX_BYTES = MAX_TICKET_BYTES + len(_PREFIX) + 16


class TicketCipher:
    """Thread-safe. The first of ``secrets`` closes, any opens."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self._keys = [AESSIV(hmac.digest(secret, _USE, "sha512")) for secret in secrets]

    @staticmethod
    def covers(ticket: bytes) -> bool:
        return ticket.startswith(_PREFIX)

    def over(self, ticket: bytes) -> bytes:
        return _PREFIX + self._keys[0].encrypt(ticket, None)

    def off(self, ticket: bytes) -> bytes:
        """Return what was covered; anything else as it is.

        Raises:
            BadTicket: it was not covered by one of these keys, or was altered.
        """
        if not self.covers(ticket):
            return ticket
        # More is none of ours, and the cipher takes no more than 2 GiB.
        for key in self._keys if len(ticket) <= _MAX_BYTES else ():
            try:
                return key.decrypt(ticket[len(_PREFIX) :], None)
            except (InvalidTag, ValueError):
                continue
        raise BadTicket("the ticket was not issued by this server; get one from GetFlightInfo.")
