"""A folder for what the engine spills: gone when the server stops, and at the next start if it was killed."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "thermocline-spill-"
_LOCK = "lock"


@contextlib.contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """Yield an empty folder of ours alone, after removing those whose process is dead.

    Every server holds a lock on a file in its folder; the kernel lets it go when the process ends, however it
    ends.
    """
    parent = parent or Path(tempfile.gettempdir())
    _remove_abandoned(parent)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    with (folder / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        inner = folder / "engine"
        inner.mkdir()
        try:
            yield inner
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        # Another user's, or one that is being made or removed just now.
        with contextlib.suppress(OSError), (folder / _LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
