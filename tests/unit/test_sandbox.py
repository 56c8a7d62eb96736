"""Which files a server keeps, from its settings. That nothing else can be reached: tests/integration/test_landlock.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proxy.process.landlock import Rights
from thermocline.config.settings import Settings
from thermocline.serve.sandbox import rights


def rights_of(tmp_path: Path, **sections: Any) -> Rights:
    settings = Settings.model_validate({"catalogs": {"lake": {"type": "rest"}}} | sections)
    folder = tmp_path / "conf"
    folder.mkdir(exist_ok=True)
    (folder / "thermocline.toml").touch()
    return rights(settings, str(folder / "thermocline.toml"), tmp_path / "scratch" / "engine")


def test_the_settings_folder_is_read_and_only_scratch_is_written(tmp_path: Path) -> None:
    result = rights_of(tmp_path)
    assert tmp_path / "conf" in result.readable
    assert result.writable == {tmp_path / "scratch", Path("/dev/null")}
    assert result.emptied == {tmp_path}


def test_nothing_of_everybodys_is_kept_as_a_whole(tmp_path: Path) -> None:
    readable = rights_of(tmp_path).readable
    for folder in ("/", "/etc", "/home", "/root", "/tmp", "/var", "/proc", "/proc/self"):
        assert Path(folder) not in readable
    for file in ("/etc/passwd", "/etc/shadow", "/proc/self/environ", "/etc/ssl/private"):
        assert not readable.intersection((Path(file), *Path(file).parents)), file


def test_the_folder_it_was_started_in_is_not_a_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert tmp_path not in rights_of(tmp_path).readable


def test_files_that_are_read_again_are_kept_with_their_folder_wherever_they_lie(
    tmp_path: Path,
) -> None:
    real, observed = tmp_path / "archive", tmp_path / "live"
    real.mkdir()
    observed.mkdir()
    (real / "server1.pem").touch()
    (observed / "server.pem").symlink_to("../archive/server1.pem")
    result = rights_of(tmp_path, access={"tls_certificate": str(observed / "server.pem")})
    assert {real, observed} <= result.readable


def test_of_a_folder_of_everybodys_a_file_is_kept_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "credentials.toml"
    file.touch()
    readable = rights_of(tmp_path, access={"credentials_file": str(file)}).readable
    assert file in readable
    assert tmp_path not in readable


def test_files_of_the_clients_of_other_systems_are_found_by_their_values(
    tmp_path: Path,
) -> None:
    for name in ("ca", "keys", "registry", "unrelated"):
        (tmp_path / name).mkdir()
    (tmp_path / "keys" / "key.pem").touch()
    (tmp_path / "registry" / "ca.pem").touch()
    result = rights_of(
        tmp_path,
        kafka={
            "ssl.ca.location": str(tmp_path / "ca"),
            "ssl.key.location": str(tmp_path / "keys" / "key.pem"),
            "sasl.password": "unrelated",
            "client.id": "x" * 10_000,
        },
        schema_registries={"plant": {"ssl.ca.location": str(tmp_path / "registry" / "ca.pem")}},
    )
    assert {tmp_path / name for name in ("ca", "keys", "registry")} <= result.readable
    assert tmp_path / "unrelated" not in result.readable


@pytest.mark.parametrize("exists", [True, False])
def test_warehouses_and_sqlite_catalogs_are_read_and_not_written(
    tmp_path: Path, exists: bool
) -> None:
    folder = tmp_path / "lake" / "inner"
    if exists:
        (folder / "data").mkdir(parents=True)
        (folder / "catalog.db").touch()
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": (folder / "data").as_uri(),
    }
    result = rights_of(tmp_path, catalogs={"lake": catalog, "far": {"warehouse": "s3://b/w"}})
    assert ({folder, folder / "data"} if exists else {tmp_path}) <= result.readable
    assert not [path for path in result.writable if path.is_relative_to(folder)]


def test_a_catalog_in_sqlite_may_be_made_where_there_is_none(tmp_path: Path) -> None:
    file = tmp_path / "lake" / "catalog.db"
    file.parent.mkdir()
    catalogs = {"lake": {"type": "sql", "uri": f"sqlite:///{file}"}}
    assert file.parent in rights_of(tmp_path, catalogs=catalogs).writable
    file.touch()
    assert file.parent not in rights_of(tmp_path, catalogs=catalogs).writable


def test_the_audit_log_is_written(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    result = rights_of(
        tmp_path,
        server={"audit_log": str(tmp_path / "log" / "audit.log")},
    )
    assert tmp_path / "log" in result.writable


def test_files_of_the_environment_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").mkdir()
    (tmp_path / "token" / "t").touch()
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token" / "t"))
    assert tmp_path / "token" in rights_of(tmp_path).readable


def test_more_can_be_named(tmp_path: Path) -> None:
    server = {"landlock_readable": [str(tmp_path / "more")]}
    assert tmp_path / "more" in rights_of(tmp_path, server=server).readable


def test_what_a_server_loads_before_it_is_locked_starts_no_threads() -> None:
    """Arrow, numpy and DuckDB start threads of their own, for which Landlock would not hold."""
    program = (
        "import sys, thermocline.commands.serve, thermocline.serve.ingestion; "
        "print({'pyarrow', 'numpy', 'duckdb'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("set()\n", "")
