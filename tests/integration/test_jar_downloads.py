"""Downloads of jar sets, with a stand-in for the Java that runs Ivy: progress, interruption, a full disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from connectors import jars
from planner.errors import Unavailable

_VERSION = '#!/bin/sh\nif [ "$2" = -version ]; then echo \'openjdk version "17.0.1"\' >&2; exit 0; fi\n'
WRITES_AND_ENDS = """
mkdir -p ivy-cache jars
for part in 1 2 3; do head -c 20000000 /dev/zero > ivy-cache/$part; sleep 0.5; done
touch jars/iceberg-spark-runtime-4.1_2.13-1.12.0.jar jars/sqlite-jdbc-3.54.1.0.jar
"""
#: It fails unless Ivy is asked for the archive by type and classifier.
WRITES_A_PROGRAM = """
grep -q 'type="tar.gz" ext="tar.gz" m:classifier="all"' ivy.xml || exit 1
mkdir -p jars lib && touch lib/inner.jar quarkus-run.jar
tar czf jars/apicurio-registry-app-3.3.3-all.tar.gz lib quarkus-run.jar
"""
HANGS = "mkdir -p ivy-cache; exec sleep 600\n"
FULL = "echo 'java.io.IOException: No space left on device'; exit 1\n"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    jars.java.cache_clear()
    yield tmp_path / "cache" / "thermocline" / "jars"
    jars.java.cache_clear()


def ivy(tmp_path: Path, script: str) -> None:
    binary = tmp_path / "java" / "bin" / "java"
    binary.parent.mkdir(parents=True, exist_ok=True)
    binary.write_text(_VERSION + script)
    binary.chmod(0o755)


def started(cache: Path) -> subprocess.Popen[bytes]:
    """A process that downloads and hangs, once Ivy runs."""
    program = "from connectors import jars; jars.resolve('iceberg')"
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 30
    while not list(cache.glob(".iceberg-*/ivy-cache")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


def sleepers(cache: Path) -> list[int]:
    items = []
    for process in psutil.process_iter(["cwd", "pid"]):
        cwd = process.info["cwd"]
        if cwd is not None and cwd.startswith(str(cache)):
            items.append(process.info["pid"])
    return items


def test_progress_rises_and_the_set_appears_whole(cache: Path, tmp_path: Path) -> None:
    ivy(tmp_path, WRITES_AND_ENDS)
    items: list[float] = []
    assert not jars.is_resolved("iceberg")
    resolved = jars.resolve("iceberg", progress=items.append)
    assert [jar.name for jar in resolved] == [
        "iceberg-spark-runtime-4.1_2.13-1.12.0.jar",
        "sqlite-jdbc-3.54.1.0.jar",
    ]
    assert jars.is_resolved("iceberg")
    assert items == sorted(items)
    assert 0 < items[-1] <= 1
    assert [path.name for path in cache.iterdir() if path.name.startswith(".")] == []
    # The second time nothing is downloaded, so nothing is told.
    ivy(tmp_path, "exit 1\n")
    assert jars.resolve("iceberg", progress=items.append) == resolved


def test_a_program_is_unpacked_and_its_archive_removed(cache: Path, tmp_path: Path) -> None:
    ivy(tmp_path, WRITES_A_PROGRAM)
    [jar] = jars.resolve("schema-registry")
    assert jar.name == "quarkus-run.jar"
    assert sorted(path.name for path in jar.parent.iterdir()) == ["lib", "quarkus-run.jar"]
    assert (jar.parent / "lib" / "inner.jar").is_file()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_download_ends_with_the_process_that_asked_for_it(
    number: signal.Signals, cache: Path, tmp_path: Path
) -> None:
    ivy(tmp_path, HANGS)
    process = started(cache)
    assert sleepers(cache)
    os.kill(process.pid, number)
    process.communicate(timeout=30)
    deadline = time.monotonic() + 30
    while sleepers(cache):
        assert time.monotonic() < deadline, "Ivy outlived the process"
        time.sleep(0.05)
    # What a killed one leaves is removed by the next.
    left = list(cache.glob(".iceberg-*"))
    assert len(left) == (number == signal.SIGKILL)
    ivy(tmp_path, WRITES_AND_ENDS)
    jars.resolve("iceberg")
    assert not list(cache.glob(".iceberg-*"))


def test_a_full_disk_is_the_reason_given(cache: Path, tmp_path: Path) -> None:
    ivy(tmp_path, FULL)
    with pytest.raises(Unavailable, match=r"could not be downloaded \(the disk is full\)"):
        jars.resolve("iceberg")
