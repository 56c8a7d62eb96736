"""Jar sets: what the resolver decides before it downloads anything."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors import jars
from planner.errors import BadConfig


@pytest.fixture(autouse=True)
def fresh_java() -> Iterator[None]:
    jars.java.cache_clear()
    yield
    jars.java.cache_clear()


def stub_java(home: Path, version: str) -> None:
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)


def test_an_unknown_set_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(
        BadConfig,
        match="there are kafka, iceberg, s3, postgresql, flight-jdbc, schema-registry",
    ):
        jars.resolve("spark")


def test_a_set_in_the_cache_needs_neither_java_nor_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(BadConfig, match="needs Java 17: install it, or set JAVA_HOME"):
        jars.resolve("iceberg")
    lock = next((tmp_path / "thermocline" / "jars").glob("iceberg-*.lock"))
    lock.with_suffix("").mkdir()
    (lock.with_suffix("") / "a.jar").touch()
    assert [jar.name for jar in jars.resolve("iceberg")] == ["a.jar"]


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22"])
def test_an_old_java_is_refused_by_its_version(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(BadConfig, match=r"JAVA_HOME is (1|11); Thermocline needs Java 17"):
        jars.java()


def test_java_home_wins_over_the_search_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub_java(tmp_path, "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert jars.java() == str(tmp_path / "bin" / "java")


def test_a_java_home_without_java_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(BadConfig, match="the Java of JAVA_HOME does not run"):
        jars.java()


def test_the_program_names_a_set_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    assert jars.main(["iceberg", "other"]) == 1
    assert capsys.readouterr() == (
        "",
        f"no set is called other; there are {', '.join(jars.SETS)}\n",
    )
