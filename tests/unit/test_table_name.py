from __future__ import annotations

import pytest

from planner.errors import BadConfig
from planner.names import TableName, side_name


def test_a_table_name_has_a_catalog_and_one_level_or_more() -> None:
    assert TableName.parse("lake.net.eu.flows") == TableName("lake", ("net", "eu"), "flows")


@pytest.mark.parametrize(
    "text", ["", "flows", "lake.flows", "lake..flows", ".net.flows", "a.b."]
)
def test_what_lacks_a_part_is_no_table_name(text: str) -> None:
    with pytest.raises(BadConfig, match=r"write catalog\.namespace\.table"):
        TableName.parse(text)


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("flows$cold", ("flows", "cold")),
        ("Flows$SEAM", ("Flows", "seam")),
        ("flows$cold$tail", ("flows$cold", "tail")),
        ("flows", None),
        ("flows$", None),
        ("$cold", None),
        ("cold", None),
        ("flows$seams", None),
    ],
)
def test_a_side_is_told_by_its_suffix_in_any_case(
    name: str, side: tuple[str, str] | None
) -> None:
    assert side_name(name) == side
