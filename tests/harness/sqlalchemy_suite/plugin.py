"""Starts the server that the suite asks, and hands its address to SQLAlchemy's plug-in of pytest."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.dialects import registry

from planner.names import TableName
from tests.fixtures.server import serving, settings_of, sqlite_catalog
from tests.harness.sqlalchemy_suite.writing import SCHEMA, WritingDialect

pytest.register_assert_rewrite("sqlalchemy.testing.assertions")

from sqlalchemy.testing.plugin import pytestplugin  # noqa: E402
from sqlalchemy.testing.plugin.pytestplugin import *  # noqa: E402, F403

_stack = contextlib.ExitStack()
for _name in ("thermocline", "thermocline.flightsql"):
    registry.register(_name, "tests.harness.sqlalchemy_suite.writing", "WritingDialect")


def pytest_configure(config: Any) -> None:
    import pyarrow as pa

    folder = Path(_stack.enter_context(tempfile.TemporaryDirectory()))
    server = _stack.enter_context(serving(settings_of({"lake": sqlite_catalog(folder)}, {})))
    server.create_plain(pa.table({"x": [1]}), name=TableName("lake", (SCHEMA,), "first"))
    WritingDialect.server = server
    config.option.dburi = [
        f"thermocline://127.0.0.1:{server.port}/lake?tls=false&schema={SCHEMA}"
    ]
    config.option.requirements = "tests.harness.sqlalchemy_suite.requirements:Requirements"
    pytestplugin.pytest_configure(config)


def pytest_unconfigure() -> None:
    _stack.close()
