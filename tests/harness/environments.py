"""Pythons with packages that this project does not have: each installed once, in the user's cache."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

from connectors import jars

_INSTALL_TIMEOUT_S = 1_200


def python_with(name: str, packages: Sequence[str]) -> Path:
    """The Python that has these packages, installed if it is not there."""
    digest = hashlib.sha256("\n".join((sys.version, *packages)).encode()).hexdigest()[:12]
    folder = jars.cache_folder().parent / "engines" / f"{name}-{digest}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            half = Path(temporary) / name
            venv.create(half, with_pip=True)
            done = subprocess.run(
                [half / "bin" / "python", "-m", "pip", "install", "--quiet", *packages],
                capture_output=True,
                text=True,
                timeout=_INSTALL_TIMEOUT_S,
            )
            assert done.returncode == 0, done.stderr
            # Whoever sees the folder sees all of it; another worker may have been sooner.
            with contextlib.suppress(OSError):
                half.rename(folder)
    return folder / "bin" / "python"


def python_with_browser() -> Path:
    """The Python with Playwright and axe-core, which drive Debian's Chromium. Skips the test where that is not there."""
    if not Path("/usr/bin/chromium").exists():
        pytest.skip("no browser: install Debian's package chromium")
    return python_with("console", ("playwright==1.65.2", "axe-playwright-python==0.1.8"))
