"""Configuration files that tests start ``thermocline serve`` with; test_defaults compares them with the defaults."""

from __future__ import annotations

import json
from pathlib import Path

from pyiceberg.catalog import load_catalog

from tests.fixtures.server import sqlite_catalog

DEADLINE_S = 0.5
LOGIN = {"username": "ada", "password": "secret-of-ada"}
#: What a statement may take at most, all together: the server ends itself beyond it.
MAX_PROCESS_BYTES = 4 << 30


def hostile_configuration(folder: Path, catalog: dict[str, str]) -> str:
    properties = "".join(f'{key} = "{value}"\n' for key, value in catalog.items())
    return (
        f"[catalogs.lake]\n{properties}"
        f'[server]\nport = 0\nthreads = 2\naudit_log = "off"\n'
        f"statement_timeout_s = {DEADLINE_S}\nmax_result_rows = 1_000_000\n"
        f"memory_limit_bytes = {512 << 20}\nmax_process_bytes = {MAX_PROCESS_BYTES}\n"
        # One caller makes a thousand mistakes in a row, and waits for each.
        "[access]\nmax_failures_per_s_per_user = 10_000.0\n"
        f'[server.users]\nada = "secret"\n'
        f'[permissions.ada]\nusers = ["ada"]\ntables = ["lake.default.flows"]\n'
    )


def replica_configuration(catalog: dict[str, str], bootstrap: str) -> str:
    lake = "".join(f"{key} = {json.dumps(value)}\n" for key, value in catalog.items())
    return (
        f'[catalogs.lake]\n{lake}\n[kafka]\n"bootstrap.servers" = "{bootstrap}"\n\n'
        f'[server]\nticket_secret = "shared by all replicas of this test"\nthreads = 1\n'
        f"[server.users]\n{LOGIN['username']} = {json.dumps(LOGIN['password'])}\n"
    )


def write_locked_configuration(folder: Path, *, server: str = "") -> Path:
    """A configuration as users have it, and a lake beside it. Nobody answers at the broker's address."""
    lake = sqlite_catalog(folder / "lake")
    load_catalog("lake", **lake).close()
    (folder / "conf").mkdir()
    (folder / "tmp").mkdir()
    file = folder / "conf" / "thermocline.toml"
    catalog = "".join(f'{key} = "{value}"\n' for key, value in lake.items())
    file.write_text(
        f'[catalogs.lake]\n{catalog}[kafka]\n"bootstrap.servers" = "127.0.0.1:1"\n'
        f"[server]\n{server}"
    )
    return file
