"""Catalogs by prefix, and lists by page: what needs no table."""

from __future__ import annotations

from typing import Any, cast

import pytest

from planner.errors import BadParameter, UnknownTable
from planner.names import TableName
from planner.seam.cut import cold_cut
from planner.seam.time_travel import format_cut
from proxy.live.tables import LiveTables
from proxy.rest.catalog import LiveCatalog, paged
from proxy.rest.errors import UnknownNamespace, UnknownWarehouse
from proxy.rest.warehouses import MAX_CUT_CHARS
from proxy.session import Session
from tests.harness.builders import FLOWS, pin

SESSION = Session("s")
HOSTS = TableName("lake", ("net", "deep"), "hosts")
CUT = format_cut({(FLOWS, None): cold_cut(pin(3, 5))})


class FixedTables:
    """Stands for ``LiveTables``: lists these, loads none."""

    def visible(self, session: Session, *, is_new: bool = False) -> list[TableName]:
        return [FLOWS, HOSTS, TableName("pond", ("net",), "other")]

    def check(self, session: Session, table: TableName) -> None:
        if table not in (FLOWS, HOSTS):
            raise UnknownTable("x")


def catalog(*names: str) -> LiveCatalog:
    return LiveCatalog(cast("LiveTables", FixedTables()), lambda _: names or ("lake", "pond"))


def test_a_warehouse_is_a_catalog_or_a_cut_of_it() -> None:
    plain = catalog().warehouse(SESSION, "lake")
    assert (plain.prefix, plain.cut) == ("lake", None)
    at_cut = catalog().warehouse(SESSION, f"lake@{CUT}")
    assert at_cut.cut is not None
    assert at_cut.prefix == f"lake@{CUT}"
    assert catalog().warehouse(SESSION, at_cut.prefix) == at_cut
    assert catalog("lake").warehouse(SESSION, None).catalog == "lake"


@pytest.mark.parametrize("text", ["sea", "sea@cold", f"sea@{CUT}"])
def test_another_warehouse_is_unknown(text: str) -> None:
    with pytest.raises(UnknownWarehouse, match="there is no catalog"):
        catalog().warehouse(SESSION, text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "name a catalog as the warehouse: lake, pond"),
        ("lake@c:nonsense", "cut"),
        ("lake@", "'' is no freshness"),
        ("lake@cut", "'cut' is no freshness"),
        ("lake@c:" + "a" * MAX_CUT_CHARS, "has room for 6,144"),
    ],
)
def test_a_warehouse_that_says_nothing_is_refused(text: str | None, why: str) -> None:
    with pytest.raises(BadParameter, match=why):
        catalog().warehouse(SESSION, text)


def test_namespaces_are_those_with_tables() -> None:
    lake = catalog().warehouse(SESSION, "lake")
    assert catalog().namespaces(SESSION, lake, (), (None, None)).items == (("net",),)
    assert catalog().namespaces(SESSION, lake, ("net",), (None, None)).items == (
        ("net", "deep"),
    )
    assert catalog().tables(SESSION, lake, ("net",), (None, None)).items == (("flows",),)
    with pytest.raises(UnknownNamespace):
        catalog().below(SESSION, lake, ("no",))


def test_of_a_cut_only_its_tables_are_there() -> None:
    at_cut = catalog().warehouse(SESSION, f"lake@{CUT}")
    assert catalog().namespaces(SESSION, at_cut, ("net",), (None, None)).items == ()
    catalog().check_table(SESSION, at_cut, FLOWS)
    with pytest.raises(UnknownTable, match="a cut of all tables of the job"):
        catalog().check_table(SESSION, at_cut, HOSTS)


def test_pages_are_all_names_once_in_order() -> None:
    names = [(f"{n:03}",) for n in range(10)]
    listed: list[Any] = []
    token: str | None = ""
    while token is not None:
        page = paged(names, token, 3)
        listed += page.items
        token = page.after
    assert listed == names
    assert paged(names, None, None).items == tuple(names)
    assert paged([], "", 5).after is None


@pytest.mark.parametrize("token", ["x", "bm8=", "e30=", "WzFd"])
def test_a_token_of_somebody_elses_is_refused(token: str) -> None:
    with pytest.raises(BadParameter, match="not one that this catalog gave out"):
        paged([("a",)], token, None)


def test_a_page_has_a_size() -> None:
    with pytest.raises(BadParameter, match="above 0"):
        paged([("a",)], None, 0)
