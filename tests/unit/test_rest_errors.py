"""The status and type of each error, row by row, as Iceberg's clients read them."""

from __future__ import annotations

import logging

import pytest

from planner import errors
from proxy.access.authentication.callers import Unauthenticated
from proxy.ops.call_record import CallRecord
from proxy.rest import errors as rest


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (Unauthenticated("x"), 401, "NotAuthorizedException"),
        (errors.NotAllowed("x"), 403, "ForbiddenException"),
        (rest.UnknownNamespace("x"), 404, "NoSuchNamespaceException"),
        (rest.UnknownWarehouse("x"), 404, "NoSuchWarehouseException"),
        (rest.UnknownView("x"), 404, "NoSuchViewException"),
        (rest.UnknownEndpoint("x"), 404, "NoSuchEndpointException"),
        (errors.UnknownTable("x"), 404, "NoSuchTableException"),
        (rest.BodyTooLarge("x"), 413, "BadRequestException"),
        (errors.BadParameter("x"), 400, "BadRequestException"),
        (errors.UnknownTopic("x"), 422, "UnknownTopic"),
        (errors.CutExpired("x"), 422, "CutExpired"),
        (errors.BadBinding("x"), 422, "BadBinding"),
        (errors.BadConfig("x"), 422, "BadConfig"),
        (errors.UnsupportedFile("x"), 422, "UnsupportedFile"),
        (errors.UnsupportedType("x"), 422, "UnsupportedType"),
        (errors.TailTooLarge("x"), 422, "TailTooLarge"),
        (errors.TailGap("x"), 422, "TailGap"),
        (errors.TopicRecreated("x"), 422, "TopicRecreated"),
        (errors.ForeignCommit("x"), 422, "ForeignCommit"),
        (errors.PermissionsMismatch("x"), 422, "PermissionsMismatch"),
        (errors.CatalogUnavailable("x"), 503, "ServiceUnavailableException"),
        (errors.ColdStoreUnavailable("x"), 503, "ServiceUnavailableException"),
        (errors.LogUnavailable("x"), 503, "ServiceUnavailableException"),
        (errors.Overloaded("x"), 503, "ServiceUnavailableException"),
        (errors.DeadlineExceeded("x"), 503, "ServiceUnavailableException"),
        (errors.SnapshotExpired("x"), 503, "ServiceUnavailableException"),
    ],
)
def test_each_error_has_its_status(error: Exception, status: int, kind: str) -> None:
    record = CallRecord("LoadTable")
    body = rest.body_of(status, kind, "x")
    assert rest.answer_of(error, record) == (status, body)
    assert body == {"error": {"message": "x", "type": kind, "code": status}}


@pytest.mark.parametrize(
    "error", [KeyError("secret"), errors.InternalError("secret"), AssertionError("secret")]
)
def test_a_fault_of_ours_is_told_without_its_text(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    record = CallRecord("LoadTable")
    with caplog.at_level(logging.ERROR):
        status, body = rest.answer_of(error, record)
    assert status == 500
    assert "secret" not in str(body)
    assert record.id in str(body)
    assert "secret" in caplog.text


def test_no_error_is_a_conflict_which_java_takes_for_something_else() -> None:
    assert 409 not in {status for _, status, _ in rest.TABLE}
