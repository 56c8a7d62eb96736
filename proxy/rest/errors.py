"""Which HTTP status and Iceberg error type each of our errors becomes (Iceberg REST specification, "IcebergErrorResponse").

What Java's client makes of a status decides: 409 would be "already exists", 5xx of a write "state unknown", which lets a
job try again what may have worked. So what a person must look at is 422, and a write is 403. Clients that ask again
after a 422 get another status (``planner.live.client_answers``).
"""

from __future__ import annotations

import logging

from planner import errors
from planner.live.client_answers import REFUSAL, RestClient
from proxy.access.authentication.callers import Unauthenticated
from proxy.ops.call_record import CallRecord

_log = logging.getLogger(__name__)

#: For a client that reads it: when to ask again.
RETRY_AFTER_S = 2


class UnknownNamespace(errors.RequestError):
    """The catalog has no such namespace."""


class UnknownWarehouse(errors.RequestError):
    """There is no such catalog."""


class UnknownView(errors.RequestError):
    """The catalog has no views."""


class UnknownEndpoint(errors.RequestError):
    """No path of the specification, or none that is served."""


class BodyTooLarge(errors.RequestError):
    """A request's body is larger than any has to be."""


#: First match wins. A type of None is the name of our class.
TABLE: tuple[tuple[type[Exception], int, str | None], ...] = (
    (Unauthenticated, 401, "NotAuthorizedException"),
    (UnknownNamespace, 404, "NoSuchNamespaceException"),
    (UnknownWarehouse, 404, "NoSuchWarehouseException"),
    (UnknownView, 404, "NoSuchViewException"),
    (UnknownEndpoint, 404, "NoSuchEndpointException"),
    (BodyTooLarge, 413, "BadRequestException"),
    (errors.UnknownTable, 404, "NoSuchTableException"),
    (errors.UnknownTopic, REFUSAL, None),
    (errors.NotAllowed, 403, "ForbiddenException"),
    (errors.CutExpired, REFUSAL, None),
    (errors.BadConfig, REFUSAL, None),
    (errors.BadBinding, REFUSAL, None),
    (errors.UnsupportedType, REFUSAL, None),
    (errors.UnsupportedFile, REFUSAL, None),
    (errors.NotForKeyedTables, REFUSAL, None),
    (errors.RequestError, 400, "BadRequestException"),
    (errors.Unavailable, 503, "ServiceUnavailableException"),
    (errors.StalePlan, 503, "ServiceUnavailableException"),
    (errors.LimitExceeded, REFUSAL, None),
    (errors.Inconsistent, REFUSAL, None),
)


def answer_of(
    error: BaseException, record: CallRecord, client: RestClient | None = None
) -> tuple[int, dict[str, object]]:
    """Return status and body of an error; the text of an error that is not in the table is left out."""
    record.failed(error)
    for ours, status, kind in TABLE:
        if isinstance(error, ours):
            if status == REFUSAL and client is not None:
                status = client.refusal
            return status, body_of(status, kind or type(error).__name__, str(error))
    _log.error("internal error %s", record.id, exc_info=error)
    hidden = f"Internal error {record.id}. This is a fault of the server; its log has the details under that id."
    return 500, body_of(500, "InternalServerError", hidden)


def body_of(status: int, kind: str, message: str) -> dict[str, object]:
    return {"error": {"message": message, "type": kind, "code": status}}
