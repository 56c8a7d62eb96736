"""Where a session looks names up: what is there, in the list held or in a newer one."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from planner.errors import CatalogUnavailable, UnknownTable
from planner.names import TableName
from proxy.catalog.browser import Browser
from proxy.session import Session

FLOWS = TableName("lake", ("net",), "flows")
DEEP = TableName("lake", ("net", "eu"), "flows")
OWN = TableName("lake", ("default",), "t")
FAR = TableName("Vault", ("x",), "t")


class Board:
    """Lists what it has; ``newer`` on request."""

    def __init__(self, *tables: TableName, newer: Collection[TableName] | None = None) -> None:
        self.listed: Collection[TableName] = tables
        self.newer = newer

    def tables(self) -> Collection[TableName]:
        return self.listed

    def relist(
        self, _caller: str | None = None, _is_open: object = None
    ) -> Collection[TableName]:
        if self.newer is None:
            raise CatalogUnavailable("catalog far does not answer.")
        self.listed = self.newer
        return self.listed


def browser(board: Board) -> Browser:
    grants = SimpleNamespace(
        visible=lambda _session, tables: tables, is_open=lambda _session, _catalog: True
    )
    return Browser(cast("Any", board), cast("Any", grants), ("lake", "default"))


def place(session: Session) -> tuple[str | None, str | None]:
    return session.catalog, session.schema


@pytest.mark.parametrize(
    ("tables", "catalog", "expected"),
    [
        ((), None, ("lake", "default")),
        ((FLOWS,), None, ("lake", "net")),
        ((DEEP, FLOWS), None, ("lake", "net")),
        ((DEEP, FLOWS, OWN), None, ("lake", "default")),
        ((FAR,), None, ("lake", "default")),
        ((FAR, FLOWS), "vault", ("Vault", "x")),
        ((FAR,), "lake", ("lake", "default")),
    ],
)
def test_a_session_starts_in_a_schema_that_is_there(
    tables: tuple[TableName, ...], catalog: str | None, expected: tuple[str, str]
) -> None:
    session = Session("s", catalog=catalog)
    assert place(browser(Board(*tables)).configure(session)) == expected


def test_names_compare_as_in_sql() -> None:
    browsing = browser(Board(FLOWS, DEEP, FAR))
    assert place(browsing.configure(Session("s", catalog="LAKE", schema="Net.EU"))) == (
        "lake",
        "net.eu",
    )


def test_a_new_one_is_found() -> None:
    session = Session("s", catalog="vault", schema="x")
    assert place(browser(Board(FLOWS, newer=[FLOWS, FAR])).configure(session)) == ("Vault", "x")


def test_one_that_may_be_in_a_catalog_that_is_down_is_not_denied() -> None:
    with pytest.raises(CatalogUnavailable):
        browser(Board(FLOWS)).configure(Session("s", catalog="far"))


def test_the_refusal_names_what_there_is_up_to_a_point() -> None:
    tables = [TableName("lake", (f"n{number:02}",), "t") for number in range(12)]
    with pytest.raises(UnknownTable) as refused:
        browser(Board(*tables, newer=tables)).configure(Session("s", schema="x"))
    named = ", ".join(f"n{number:02}" for number in range(10))
    assert (
        str(refused.value)
        == f"there is no schema of lake called x; there are {named} and others."
    )


def test_what_went_away_harms_no_other_setting() -> None:
    browsing = browser(Board(FLOWS, newer=[FLOWS]))
    before = Session("s", catalog="lake", schema="gone", time_zone="UTC")
    after = Session("s", catalog="lake", schema="gone", time_zone="Europe/Zurich")
    assert browsing.configure(after, before) == after
    with pytest.raises(UnknownTable):
        browsing.configure(after)
