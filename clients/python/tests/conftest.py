"""Tests of the client alone: its package, pytest and a running server are all they need.

``tests/protocol/test_python_client.py`` starts the server and runs them, also on the oldest versions that the client takes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import thermocline_client


@pytest.fixture(scope="session")
def uri() -> str:
    """A server with the table ``lake.net.flows``, whose ids are 1 to 3."""
    return os.environ["THERMOCLINE_TEST_URI"]


@pytest.fixture(scope="session")
def wide_table() -> str:
    """One row: texts and bytes of 10 MB, a list of a million numbers, structs in structs."""
    return os.environ["THERMOCLINE_TEST_WIDE_TABLE"]


@pytest.fixture
def lake(uri: str) -> Iterator[thermocline_client.Connection]:
    with thermocline_client.connect(uri) as connection:
        yield connection
