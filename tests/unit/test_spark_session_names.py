"""What a session's settings make of names in a statement."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from connectors.spark.lake.sql import check_current_catalog, has_double_quoted_names
from planner.errors import UnsupportedStatement


def session(current: str = "spark_catalog", **conf: str) -> Any:
    """A session of Spark, as far as it is asked: its settings are texts, kept as they were set."""
    return SimpleNamespace(conf=conf, catalog=SimpleNamespace(currentCatalog=lambda: current))


@pytest.mark.parametrize(
    ("text", "expected"), [("true", True), ("TRUE", True), ("True ", True), ("false", False)]
)
def test_double_quotes_are_names_however_that_was_set(text: str, expected: bool) -> None:
    name = "spark.sql.ansi.doubleQuotedIdentifiers"
    assert has_double_quoted_names(session(**{name: text})) is expected
    assert not has_double_quoted_names(session())


def test_short_names_are_of_no_catalog_of_the_lake() -> None:
    check_current_catalog(session(), ["lake"])
    with pytest.raises(
        UnsupportedStatement, match="short names would be its tables' cold rows"
    ):
        check_current_catalog(session("lake"), ["lake", "other"])
