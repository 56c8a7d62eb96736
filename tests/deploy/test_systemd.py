"""The systemd units, as systemd itself reads and judges them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.harness.deploy_files import DEPLOY

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
ANALYZE = shutil.which("systemd-analyze")
pytestmark = pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
#: Of 100: systemd calls less than 20 «OK», an ordinary unit has 96.
MAX_EXPOSURE = 20


@pytest.fixture(params=UNITS, ids=lambda unit: unit.name)
def unit(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The unit with a program that exists on this machine."""
    copy = tmp_path / request.param.name
    text = request.param.read_text(encoding="utf-8")
    copy.write_text(
        text.replace("/opt/thermocline/bin/thermocline", "/bin/true"), encoding="utf-8"
    )
    return copy


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    assert ANALYZE is not None
    return subprocess.run([ANALYZE, *arguments], capture_output=True, text=True, check=False)


def test_systemd_understands_every_line(unit: Path) -> None:
    done = analyze("verify", "--man=no", unit)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_misspelt_directive_would_be_found(unit: Path) -> None:
    unit.write_text(
        unit.read_text(encoding="utf-8").replace("ProtectHome=", "ProtectHmoe="),
        encoding="utf-8",
    )
    assert "ProtectHmoe" in analyze("verify", "--man=no", unit).stderr


def test_systemd_finds_little_exposed(unit: Path) -> None:
    done = analyze(
        "security", "--offline=true", f"--threshold={MAX_EXPOSURE}", "--no-pager", unit
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"Overall exposure level", done.stdout)


def test_units_are_the_server_and_the_tierer() -> None:
    assert [unit.name for unit in UNITS] == ["thermocline-tier.service", "thermocline.service"]
