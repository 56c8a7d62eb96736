"""What is wrong with grants, before a server runs: without a catalog, and against the tables of one."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from planner.errors import BadConfig
from planner.permissions import Identity
from planner.schema import Column
from tests.harness.builders import FLOWS, schema
from thermocline.commands.config import command
from thermocline.config.settings import Granted, Settings
from thermocline.doctor.findings import Finding
from thermocline.doctor.tables import permissions
from thermocline.serve.permissions import mistakes, policy, reading_grants

LAKE = {"lake": {"type": "sql", "uri": "sqlite:///x", "warehouse": "file:///x"}}
SCHEMA = schema(Column(4, "host", pa.string()), Column(5, "bytes", pa.int64()))
CONFIG = """
[catalogs.lake]
type = "sql"
uri = "sqlite:////lake/catalog.db"
warehouse = "file:///lake"
[kafka]
"bootstrap.servers" = "localhost:9092"
"""


def settings(**grants: dict[str, Any]) -> Settings:
    return Settings(
        catalogs=LAKE,
        permissions={
            name: Granted(**{"users": ("ada",), "tables": ("lake.*",), **value})
            for name, value in grants.items()
        },
    )


def checked(folder: Path, text: str) -> list[dict[str, Any]]:
    file = folder / "thermocline.toml"
    file.write_text(CONFIG + text)
    outcome = CliRunner().invoke(command, ["check", "--json"], obj=str(file))
    problems: list[dict[str, Any]] = json.loads(outcome.stdout)["problems"]
    assert outcome.exit_code == (2 if problems else 0)
    return problems


def test_check_tells_each_mistake_with_its_place(tmp_path: Path) -> None:
    problems = checked(
        tmp_path,
        "[permissions.a]\nusers = ['ada']\ntables = ['lake']\n"
        "[permissions.b]\ntables = ['*']\n"
        "[permissions.c]\nusers = ['ada']\ntables = ['*']\nrows = \"SELECT 1\"\n"
        "[permissions.d]\nusers = ['ada']\ntables = ['*']\nrows = 'random() < 1'\n"
        "[permissions.e]\nusers = ['ada']\ntables = ['*']\nmasks = { host = \"read_text('/etc/passwd')\" }\n"
        "[permissions.f]\nusers = ['ada']\ntables = ['pond.net.flows']\n"
        "[permissions.g]\nusers = ['ada']\ntables = ['lake.net.flows']\nwithout = ['host']\n",
    )
    assert {Path(problem["from"]).name for problem in problems} == {"thermocline.toml"}
    assert [problem["key"] for problem in problems] == [
        "permissions.a.tables",
        "permissions.b",
        "permissions.c.rows",
        "permissions.d.rows",
        "permissions.e.masks.host",
        "permissions.f.tables",
    ]
    whats = [problem["what"] for problem in problems]
    assert whats[0] == "'lake' names no tables"
    assert "names neither users nor groups" in whats[1]
    assert "is not an expression that may stand there: syntax error" in whats[2]
    assert "function random is not supported in permissions" in whats[3]
    assert "function read_text is not supported" in whats[4]
    assert whats[5] == "there is no catalog pond"


def test_check_finds_nothing_where_there_is_nothing(tmp_path: Path) -> None:
    assert checked(tmp_path, "[permissions]\n") == []
    assert checked(tmp_path, "[permissions.all]\nusers = ['*']\ntables = ['*']\n") == []
    assert list(mistakes(Settings(catalogs=LAKE))) == []


def test_no_section_is_no_policy_and_an_empty_one_closes_everything() -> None:
    with reading_grants() as grants:
        assert policy(Settings(catalogs=LAKE), grants.expression) is None
        closed = policy(settings(), grants.expression)
        assert closed is not None
        assert closed.visible(Identity("ada"), [FLOWS]) == ()
        with pytest.raises(
            BadConfig, match=r"^permissions\.a\.masks\.host is not an expression"
        ):
            policy(settings(a={"masks": {"host": "("}}), grants.expression)


def test_the_grants_of_the_documentation_are_grants() -> None:
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
    (block,) = (
        part
        for part in re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
        if "[permissions" in part
    )
    value = Settings.model_validate({"catalogs": LAKE, **tomllib.loads(block)})
    assert value.permissions is not None
    assert len(value.permissions) == 3
    assert list(mistakes(value)) == []


def test_doctor_tries_every_grant_on_every_table_it_covers() -> None:
    value = settings(
        fits={"rows": "bytes > 1", "masks": {"host": "NULL"}},
        gone={"without": ("ssn",)},
        types={"rows": "host + bytes"},
        nowhere={"tables": ("lake.Net.*",)},
    )
    fields = {item.check: item for item in permissions(value, [(FLOWS, SCHEMA)])}
    assert fields["permissions"] == Finding(
        "permissions", "ok", "grants fit in 1 cases of grant and table"
    )
    assert fields["permissions.nowhere"].state == "warn"
    assert fields["permissions.gone"].what == (
        "on lake.net.flows: it names column ssn, which the table does not have"
    )
    assert fields["permissions.types"].state == "fail"
    assert "No function matches" in fields["permissions.types"].what
    assert list(permissions(Settings(catalogs=LAKE), [(FLOWS, SCHEMA)])) == []
