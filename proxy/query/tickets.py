"""Tickets as a server gives them out and takes them back: signed, encrypted where need be, and remembered."""

from __future__ import annotations

from collections.abc import Sequence

from planner.ticket import Ticket, redeemable, seal, unseal
from proxy.engine.statement_cache import StatementCache
from proxy.query.ticket_cipher import TicketCipher

#: What is remembered: so many tickets of at most this size.
_MAX_CACHED, MAX_CACHED_BYTES = 256, 8 * 1024


class Tickets:
    """Thread-safe. The first of ``secrets`` signs, any is taken.

    A ticket is redeemed, told of, renewed: its bytes are read once, whose it is and until when is looked at each time.
    """

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self._secrets = tuple(secrets)
        self._veil = TicketCipher(self._secrets)
        self._cache = StatementCache(_MAX_CACHED)

    def sealed(self, ticket: Ticket, *, is_veiled: bool) -> bytes:
        """Return what the client gets; veiled, it cannot be read."""
        sealed = seal(ticket, self._secrets[0])
        token = self._veil.over(sealed) if is_veiled else sealed
        self._keep(token, ticket)
        return token

    def resealed(self, ticket: Ticket, before: bytes) -> bytes:
        """Return what takes the place of ``before``, veiled as that was."""
        return self.sealed(ticket, is_veiled=self._veil.covers(before))

    def opened(self, token: bytes, *, user: str, now_us: int) -> Ticket:
        """Return the ticket a client sent.

        Raises:
            BadTicket, TicketExpired: as ``planner.ticket.unseal``.
        """
        cached = self._cache.cached(token, Ticket)
        if cached is not None:
            return redeemable(cached, user=user, now_us=now_us)
        ticket = unseal(self._veil.off(token), self._secrets, user=user, now_us=now_us)
        self._keep(token, ticket)
        return ticket

    def _keep(self, token: bytes, ticket: Ticket) -> None:
        if len(token) <= MAX_CACHED_BYTES:
            self._cache.keep(token, ticket)
