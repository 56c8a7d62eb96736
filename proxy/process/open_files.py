"""How many files and connections this process may have open."""

from __future__ import annotations

import contextlib
import resource


def allow_open_files() -> None:
    """Raise the soft limit to the hard one: systemd starts processes with 1,024, which idle connections alone would use up."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # a limit of the system's is lower yet
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
