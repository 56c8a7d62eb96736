"""The tools that read deployment files as Helm, Kubernetes and Docker Compose do."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.harness.deploy_files import Check, Refused
from tests.harness.go_programs import go_program


@pytest.fixture(scope="session")
def check() -> Check:
    """Run ``deploy/check``; return what it prints. Raises Refused."""
    tool = go_program("deploy-check")
    if tool is None:
        pytest.skip("Go is not installed; deploy/check needs it")

    def run(*arguments: str | Path) -> Any:
        done = subprocess.run([str(tool), *map(str, arguments)], capture_output=True, text=True)
        if done.returncode:
            raise Refused(done.stderr.strip())
        return json.loads(done.stdout)

    return run
