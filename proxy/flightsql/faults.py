"""What a client can get wrong in the protocol itself, next to the errors of ``planner.errors``."""

from __future__ import annotations

from planner.errors import FederationError, RequestError


class Malformed(RequestError):
    """Bytes that are not the message they should be, or a message in the wrong place."""


class UnknownCommand(RequestError):
    """A command or action this server does not implement."""


class UnknownHandle(RequestError):
    """A prepared statement or running query this session does not have."""


class Unauthenticated(FederationError):
    """No, wrong or outdated credentials."""
