"""The settings users get are among those that tests start servers with: compared key by key, and as a whole.

A protection that works with each setting of a test may be gone with those nobody tries. What counts is the program,
``thermocline serve``. Servers within a test's own process (``settings_of``) are another thing: no supervisor, no lock, no
process that reads topics, whatever their settings say.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from tests.fixtures.commands import site_configuration
from tests.fixtures.server import settings_of, sqlite_catalog
from tests.harness.configurations import (
    hostile_configuration,
    replica_configuration,
    write_locked_configuration,
)
from tests.harness.server_process import reloadable_configuration
from thermocline.config.settings import Settings, load

TESTS = Path(__file__).parents[1]
BROKER = "broker:9092"

#: The files that start ``thermocline serve``, and the settings they give it.
STARTS: dict[str, Callable[[Path], str]] = {
    "fixtures/commands.py": lambda folder: site_configuration(
        folder, {"bootstrap.servers": BROKER}, 1
    ),
    "integration/test_landlock.py": lambda folder: write_locked_configuration(
        folder
    ).read_text(),
    "harness/server_process.py": reloadable_configuration,
    "integration/test_replicas.py": lambda folder: replica_configuration(
        sqlite_catalog(folder), BROKER
    ),
    "protocol/test_hostile.py": lambda folder: hostile_configuration(
        folder, sqlite_catalog(folder)
    ),
}
#: Files that name the command and start no server of settings of their own, and why.
OTHERS = {
    "deploy/test_compose.py": "the name of a service; what it starts is the image's",
    "deploy/test_images.py": "the name of an image",
    "deploy/test_trial.py": "the name of a service; what it starts is the image's",
    "integration/test_bad_input.py": "it is refused before it starts",
    "integration/test_ports_in_use.py": "ports that are taken, and one table: it is about what comes before",
    "integration/test_process_defaults.py": "it ends before it listens",
    "integration/test_refusals_at_start.py": "it is refused before it starts",
    "packaging/round_trip.py": "an installed wheel, with variables alone",
    "protocol/siege.py": "defaults but for users, memory and a table: it measures, others prove",
}

#: Behaviour that no test's ``serve`` has as users get it, and why that is so.
NEVER: dict[str, str] = {}

#: How the servers within tests differ, so that nobody takes what they show for what users have.
WITHIN_TESTS = {
    "server.port": "any free one",
    "server.pin_refresh_s": "pins are taken anew when a test says so",
    "server.threads": "two cores, many servers",
    "server.audit_log": "nobody reads it",
    "tail.idle_s": "tests that are over ask no more",
}


def differing(settings: Settings) -> set[str]:
    """The keys, of sections of our own, that are not as users get them."""
    return {
        key
        for key, value in _leaves("", settings)
        if value != dict(_leaves("", Settings()))[key]
    }


def _leaves(prefix: str, section: BaseModel) -> Iterator[tuple[str, object]]:
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from _leaves(f"{prefix}{name}.", value)
        elif prefix or name in ("limits", "permissions"):
            yield f"{prefix}{name}", value


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Settings]:
    settings = {}
    for name, text in STARTS.items():
        folder = tmp_path_factory.mktemp("start")
        file = folder / "as-started.toml"
        file.write_text(text(folder))
        settings[name] = load(str(file))
    return settings


def test_every_default_is_started_by_some_test(started: dict[str, Settings]) -> None:
    everywhere = set.intersection(*map(differing, started.values()))
    assert everywhere == set(NEVER), "defaults that no test starts a server with, or does again"


def test_one_test_starts_what_users_start(started: dict[str, Settings]) -> None:
    """All defaults at once, with a catalog and brokers. It gives the port as a flag."""
    as_users = [
        name for name, settings in started.items() if settings.kafka and not differing(settings)
    ]
    assert "integration/test_landlock.py" in as_users


def test_what_starts_a_server_is_on_the_list() -> None:
    naming = {
        str(path.relative_to(TESTS))
        for path in TESTS.rglob("*.py")
        if path != Path(__file__) and _names_the_command(ast.parse(path.read_text()))
    }
    assert naming == STARTS.keys() | OTHERS.keys()


def _names_the_command(tree: ast.AST) -> bool:
    return any(
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and (node.value == "serve" or '"serve", "--no-supervisor"' in node.value)
        for node in ast.walk(tree)
    )


def test_servers_within_tests_differ_where_they_must() -> None:
    assert differing(settings_of({}, {})) == set(WITHIN_TESTS)
