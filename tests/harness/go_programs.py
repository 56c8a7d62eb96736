"""Programs in Go, built once from pinned sources and kept in the user's cache: arrow-go's clients, the check of ``deploy``, a provider.

``python -m tests.harness.go_programs`` builds those that are not there yet, if the machine has Go; a test that needs
one builds it as well. To link them takes longer than all that the tests do with them.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from connectors import jars

GoProgram = Literal[
    "client", "integration-client", "deploy-check", "iceberg-go", "identity-provider"
]
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class _Build:
    """``sources`` has go.mod and go.sum, whose hashes -mod=readonly keeps as they are."""

    sources: Path
    package: str = "."
    flags: tuple[str, ...] = ()
    #: Built by the soak that runs it.
    is_of_soak: bool = False


_CLIENTS = ROOT / "tests" / "protocol" / "go"
_BUILDS: dict[GoProgram, _Build] = {
    "client": _Build(_CLIENTS),
    # What Arrow's own integration suite runs against servers.
    "integration-client": _Build(
        _CLIENTS,
        "github.com/apache/arrow-go/v18/arrow/internal/flight_integration"
        "/cmd/arrow-flight-integration-client",
    ),
    # It runs for milliseconds: compiled without optimising, all of Kubernetes' types take a quarter less.
    "deploy-check": _Build(ROOT / "deploy" / "check", flags=("-gcflags=all=-N -l",)),
    # Logs people in at the console (tests/integration/test_console_provider.py).
    "identity-provider": _Build(ROOT / "tests" / "harness" / "identity_provider"),
    # Reads live tables (tests/integration/test_live_other_engines.py).
    "iceberg-go": _Build(ROOT / "tests" / "harness" / "iceberg_go", is_of_soak=True),
}
#: A first build compiles gRPC and Arrow, or Helm and Kubernetes' types, on a busy machine.
_BUILD_TIMEOUT_S = 900


def go_program(name: GoProgram) -> Path | None:
    """The program, built if it is not there; None without Go."""
    go = shutil.which("go")
    if go is None:
        return None
    build = _BUILDS[name]
    digest = hashlib.sha256(str(Path(go).resolve()).encode())
    for source in sorted(build.sources.iterdir()):
        digest.update(source.read_bytes())
    binary = jars.cache_folder().parent / "go" / f"{name}-{digest.hexdigest()[:12]}"
    if not binary.exists():
        binary.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=binary.parent) as folder:
            half = Path(folder) / name
            done = subprocess.run(
                [go, "build", "-mod=readonly", *build.flags, "-o", str(half), build.package],
                cwd=build.sources,
                capture_output=True,
                text=True,
                timeout=_BUILD_TIMEOUT_S,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            # Whoever sees the file sees all of it.
            half.rename(binary)
    return binary


if __name__ == "__main__":
    for program, build in _BUILDS.items():
        if not build.is_of_soak:
            go_program(program)
