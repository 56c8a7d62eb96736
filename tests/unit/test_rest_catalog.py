"""How the properties of a REST catalog reach pyiceberg's client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import rest
from requests import PreparedRequest, Response, Session

from connectors.iceberg.catalogs import Catalogs
from connectors.iceberg.rest import RestCatalog, in_levels
from planner.errors import BadConfig

LIMITS = {"rest.client.connection-timeout-ms": "1500", "rest.client.socket-timeout-ms": "2500"}


def test_properties_of_tls_are_put_in_levels() -> None:
    assert in_levels({"ssl.cabundle": "a", "ssl.client.cert": "b", "s3.region": "c"}) == {
        "ssl": {"cabundle": "a", "client": {"cert": "b"}},
        "s3.region": "c",
    }


@pytest.mark.parametrize(("properties", "expected"), [({}, (10.0, 60.0)), (LIMITS, (1.5, 2.5))])
def test_every_request_has_a_limit_and_our_own_authority_wins_over_the_environment(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    properties: dict[str, str],
    expected: tuple[float, float],
) -> None:
    sent: list[tuple[object, object]] = []

    def send(_: Session, request: PreparedRequest, **options: object) -> Response:
        sent.append((options["timeout"], options["verify"]))
        response = Response()
        response.status_code, response.request = 200, request
        response._content = b'{"defaults": {}, "overrides": {}, "namespaces": []}'
        return response

    monkeypatch.setattr(Session, "send", send)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/of/the/machine.pem")
    bundle = str(tmp_path / "ca.pem")
    catalogs = Catalogs(
        {"lake": {"type": "rest", "uri": "https://c", "ssl.cabundle": bundle, **properties}}
    )
    try:
        assert catalogs.tables(["lake"]) == ()
    finally:
        catalogs.close()
    assert sent == [(expected, bundle)] * 2


def test_a_limit_that_is_no_number_is_named() -> None:
    with pytest.raises(
        BadConfig, match=r"rest\.client\.socket-timeout-ms is 'soon'; it must be"
    ):
        RestCatalog("lake", uri="https://c", **{"rest.client.socket-timeout-ms": "soon"})


def test_requests_before_the_catalog_knows_its_limits_have_some() -> None:
    session: Any = rest.Session()  # type: ignore[attr-defined]
    assert session.limits_s == (10.0, 60.0)
