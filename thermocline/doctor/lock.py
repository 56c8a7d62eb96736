"""Whether the kernel locks the file system of a server: by starting one as far as that, and having it try."""

from __future__ import annotations

import json
import subprocess
import sys

from thermocline.config.settings import Settings
from thermocline.doctor.findings import Finding, fail, ok, warn

#: A server loads its libraries in a second or two, on a busy machine in many.
_PATIENCE_S = 120.0


def file_system_lock(settings: Settings, config: str | None) -> Finding:
    """Start what ``thermocline serve`` starts, in the same order, and report what was refused to it.

    ``settings`` are those that ``config`` names, as on the command line.
    """
    check, chosen = "file system lock", settings.server.landlock
    if chosen == "off":
        return ok(check, "server.landlock is off: a server may reach all its user's files")
    holds, says = _tried(config)
    if holds:
        return ok(check, f"tried by starting a server: {says}")
    if chosen == "required":
        return fail(
            check, says.rstrip("."), "run it where Landlock is, or set server.landlock to auto"
        )
    return warn(
        check,
        f"a server may reach all its user's files: {says}",
        "run it where Landlock is, or in a container that holds nothing else",
    )


def _tried(config: str | None) -> tuple[bool, str]:
    chosen = ["--config", config] if config else []
    command = [sys.executable, "-m", "thermocline", *chosen, "serve", "--try-lock"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_S,
            check=True,
        )
        said = json.loads(done.stdout)
        return bool(said["holds"]), str(said["says"])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return False, "a server that was started to try it did not say"
