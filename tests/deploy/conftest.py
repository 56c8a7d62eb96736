"""The tools that read deployment files as Helm, Kubernetes and Docker Compose do."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.harness.deploy_files import DEPLOY, Check, Refused

#: Downloads and compiles Helm's and Compose's packages the first time; go keeps both in its cache.
BUILD_TIMEOUT_S = 900


@pytest.fixture(scope="session")
def check(tmp_path_factory: pytest.TempPathFactory) -> Check:
    """Run ``deploy/check``; return what it prints. Raises Refused."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed; deploy/check needs it")
    tool = tmp_path_factory.mktemp("check") / "check"
    # go.sum holds the hash of every module; -mod=readonly keeps it as it is. It runs for milliseconds: compiled without
    # optimising, all of Kubernetes' types take a quarter less.
    command = [go, "build", "-mod=readonly", "-gcflags=all=-N -l", "-o", str(tool), "."]
    built = subprocess.run(
        command, cwd=DEPLOY / "check", capture_output=True, text=True, timeout=BUILD_TIMEOUT_S
    )
    assert built.returncode == 0, built.stderr

    def run(*arguments: str | Path) -> Any:
        done = subprocess.run([str(tool), *map(str, arguments)], capture_output=True, text=True)
        if done.returncode:
            raise Refused(done.stderr.strip())
        return json.loads(done.stdout)

    return run
