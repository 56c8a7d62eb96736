"""What cannot work as configured is refused at once, with a sentence, before anything slow starts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*arguments: str, **variables: str) -> tuple[int, str, float]:
    """Exit code, standard error and how long it took."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "thermocline", *arguments],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr, time.monotonic() - began


def config(folder: Path, kind: str = "sql", more: str = "") -> str:
    file = folder / "thermocline.toml"
    file.write_text(
        f'[catalogs.lake]\ntype = "{kind}"\nuri = "sqlite:///{folder}/c.db"\n'
        f'warehouse = "{folder.as_uri()}"\n{more}'
    )
    return str(file)


def test_serve_refuses_an_impossible_catalog_and_is_not_started_again(tmp_path: Path) -> None:
    code, err, _ = run("--config", config(tmp_path, "sqll"), "serve", "--port", "0")
    assert code == 78
    assert err == (
        f"thermocline: {tmp_path}/thermocline.toml: catalogs.lake.type: there is no catalog type "
        f"'sqll'; types are rest, sql, hive, glue, dynamodb, bigquery.\n"
    )


def test_serve_refuses_settings_without_a_catalog(tmp_path: Path) -> None:
    (tmp_path / "thermocline.toml").touch()
    code, err, _ = run("--config", str(tmp_path / "thermocline.toml"), "serve", "--port", "0")
    assert (code, err) == (
        78,
        "thermocline: no catalog is configured; add a section [catalogs.<name>].\n",
    )


@pytest.mark.parametrize("way", [("--once",), ("loop",)])
def test_tier_misses_kafka_settings_before_it_starts_spark(
    way: tuple[str, ...], tmp_path: Path
) -> None:
    # Spark would be noticed: it cannot start without Java.
    code, err, _ = run("--config", config(tmp_path), "tier", *way, JAVA_HOME=str(tmp_path))
    assert (code, err) == (
        2,
        "thermocline: the Kafka property bootstrap.servers is missing; set it in the section [kafka].\n",
    )


def test_tier_without_java_is_a_sentence(tmp_path: Path) -> None:
    file = config(tmp_path, more='[kafka]\n"bootstrap.servers" = "127.0.0.1:1"\n')
    code, err, _ = run("--config", file, "tier", "--once", JAVA_HOME=str(tmp_path))
    assert (code, err) == (
        2,
        "thermocline: the Java of JAVA_HOME does not run; it must be Java 17.\n",
    )
