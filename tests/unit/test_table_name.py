from __future__ import annotations

import shlex

import pytest

from planner.errors import BadConfig
from planner.names import Side, TableName, shell_word, side_name


def test_a_table_name_has_a_catalog_and_one_level_or_more() -> None:
    assert TableName.parse("lake.net.eu.flows") == TableName("lake", ("net", "eu"), "flows")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('lake."shop.public".orders', TableName("lake", ("shop", "public"), "orders")),
        ('lake.net."a.b"', TableName("lake", ("net",), "a.b")),
        ('"la""ke".net." x "', TableName('la"ke', ("net",), " x ")),
        ("lake.net.a b", TableName("lake", ("net",), "a b")),
        ('lake.net.a"b', TableName("lake", ("net",), 'a"b')),
        ("lake.net.orders-v2", TableName("lake", ("net",), "orders-v2")),
    ],
)
def test_parts_are_bare_or_quoted(text: str, name: TableName) -> None:
    assert TableName.parse(text) == name


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (TableName("lake", ("shop", "public"), "orders"), "lake.shop.public.orders"),
        (TableName("lake", ("net",), "orders-v2"), "lake.net.orders-v2"),
        (TableName("lake", ("net",), "flows").side(Side.COLD), "lake.net.flows$cold"),
        (TableName("lake", ("a b",), 'x"y.z'), 'lake."a b"."x""y.z"'),
    ],
)
def test_a_name_is_written_as_it_is_read(name: TableName, text: str) -> None:
    assert str(name) == text
    assert TableName.parse(text) == name


@pytest.mark.parametrize("text", ['lake.net."a', 'lake."net"x.a', '"lake.net.a'])
def test_a_quote_ends_where_its_name_does(text: str) -> None:
    with pytest.raises(BadConfig, match=r"the quote at character|a dot is expected"):
        TableName.parse(text)


@pytest.mark.parametrize(
    "text", ["", "flows", "lake.flows", "lake..flows", ".net.flows", "a.b.", 'lake."".x']
)
def test_what_lacks_a_part_is_no_table_name(text: str) -> None:
    with pytest.raises(BadConfig, match=r"write catalog\.namespace\.table"):
        TableName.parse(text)


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("flows$cold", ("flows", Side.COLD)),
        ("Flows$SEAM", ("Flows", Side.SEAM)),
        ("flows$cold$tail", ("flows$cold", Side.TAIL)),
        ("flows", None),
        ("flows$", None),
        ("$cold", None),
        ("cold", None),
        ("flows$seams", None),
    ],
)
def test_a_side_is_told_by_its_suffix_in_any_case(
    name: str, side: tuple[str, Side] | None
) -> None:
    assert side_name(name) == side


def test_a_name_in_a_line_to_type_is_one_word_of_a_shell() -> None:
    for name in (("net", "flows"), ("n", "conn$x"), ("logs", 'web "x" $HOME')):
        table = TableName("lake", (name[0],), name[1])
        assert shlex.split(f"thermocline skip {shell_word(table)}")[2:] == [str(table)]
        assert TableName.parse(shlex.split(shell_word(table))[0]) == table
    assert shell_word(TableName("lake", ("net",), "flows-v2")) == "lake.net.flows-v2"
