"""Tells SQLAlchemy's plug-in of pytest which server to ask, and the dialect where its writer listens."""

from __future__ import annotations

import os
from multiprocessing.connection import Client
from typing import Any

import pytest
from sqlalchemy.dialects import registry

from tests.harness.sqlalchemy_suite.writing import SCHEMA, WritingDialect

pytest.register_assert_rewrite("sqlalchemy.testing.assertions")

from sqlalchemy.testing.plugin import plugin_base, pytestplugin  # noqa: E402
from sqlalchemy.testing.plugin.pytestplugin import *  # noqa: E402, F403

#: Made by ``pytest_configure`` of SQLAlchemy.
Settings: Any = plugin_base

for _name in ("thermocline", "thermocline.flightsql"):
    registry.register(_name, "tests.harness.sqlalchemy_suite.writing", "WritingDialect")


def pytest_configure(config: Any) -> None:  # type: ignore[no-redef]
    connection = Client(os.environ["SUITE_WRITER"], authkey=b"suite")

    def write(what: str, table: tuple[str, str], data: bytes) -> None:
        connection.send((what, table, data))
        error = connection.recv()
        assert error is None, error

    WritingDialect.write = staticmethod(write)
    port = os.environ["SUITE_PORT"]
    config.option.dburi = [f"thermocline://127.0.0.1:{port}/lake?tls=false&schema={SCHEMA}"]
    pytestplugin.pytest_configure(config)
    # It reads this from a setup.cfg of the folder it runs in.
    requirements = "tests.harness.sqlalchemy_suite.requirements:Requirements"
    Settings.file_config.read_dict(
        {"sqla_testing": {"requirement_cls": requirements, "profile_file": os.devnull}}
    )
