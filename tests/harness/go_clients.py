"""arrow-go's clients, built once from pinned sources and kept in the user's cache.

``python -m tests.harness.go_clients`` builds those that are not there yet, if the machine has Go; a test that needs
one builds it as well. To link them takes longer than all that the tests do with them.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Literal

from connectors import jars

GoClient = Literal["client", "integration-client"]
_SOURCES = Path(__file__).parents[1] / "protocol" / "go"
_PACKAGES: dict[GoClient, str] = {
    "client": ".",
    # What Arrow's own integration suite runs against servers.
    "integration-client": "github.com/apache/arrow-go/v18/arrow/internal/flight_integration"
    "/cmd/arrow-flight-integration-client",
}
#: A first build compiles gRPC and Arrow on a busy machine.
_BUILD_TIMEOUT_S = 900


def go_client_binary(name: GoClient) -> Path | None:
    """The program, built if it is not there; None without Go."""
    go = shutil.which("go")
    if go is None:
        return None
    digest = hashlib.sha256(str(Path(go).resolve()).encode())
    for source in sorted(_SOURCES.iterdir()):
        digest.update(source.read_bytes())
    binary = jars.cache_folder().parent / "go" / f"{name}-{digest.hexdigest()[:12]}"
    if not binary.exists():
        binary.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=binary.parent) as folder:
            half = Path(folder) / name
            done = subprocess.run(
                [go, "build", "-mod=readonly", "-o", str(half), _PACKAGES[name]],
                cwd=_SOURCES,
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
    for client in _PACKAGES:
        go_client_binary(client)
