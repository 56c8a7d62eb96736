"""Named points where a test can stop a tierer or maintenance, to kill it there or to let two of them meet.

``THERMOCLINE_FAILPOINT=<name>[:block|:barrier]`` with ``THERMOCLINE_FAILPOINT_FILE=<path>``. The process that
reaches the point creates the file, which proves that it was hit, and stays: for ever, or as a barrier until
``<path>.release`` exists. ``THERMOCLINE_FAILPOINT=armed`` lets a test choose the point of a process that runs:
the file ``<path>.armed`` holds ``<name>#<any number>``, and who reaches the point stays while it says the same.
Without the variable a point costs one dictionary look-up. Executors inherit it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Literal

#: Where a tierer can stop: in an executor when a split is read and decoded but not yet committed to a file;
#: with the files staged; before the compare-and-set; with the commit built and about to be sent; after it.
Failpoint = Literal[
    "after_fetch", "after_stage", "before_publish", "before_commit", "after_publish"
]
#: Where one of a keyed table can, too: with the deletes staged and the rows not.
KeyedPoint = Literal["after_deletes"]
#: Where maintenance can: after a rewrite; with the deletion of old rows staged; before and after an expiry; with orphans listed
#: and none removed.
MaintenancePoint = Literal[
    "after_rewrite", "before_expired_rows", "before_expiry", "after_expiry", "before_orphans"
]

_VARIABLE = "THERMOCLINE_FAILPOINT"
_FILE_VARIABLE = "THERMOCLINE_FAILPOINT_FILE"
_POLL_S = 0.01


def reach(name: Failpoint | KeyedPoint | MaintenancePoint) -> None:
    """Stop here if this is the failpoint the environment names."""
    armed_point = os.environ.get(_VARIABLE)
    if armed_point is None:
        return
    marker = Path(os.environ[_FILE_VARIABLE])
    if armed_point == "armed":
        _stay_while_armed(name, marker)
        return
    point, _, action = armed_point.partition(":")
    if point != name:
        return
    marker.touch()
    release = Path(f"{marker}.release")
    while action != "barrier" or not release.exists():
        time.sleep(_POLL_S)


def _stay_while_armed(name: Failpoint | KeyedPoint | MaintenancePoint, marker: Path) -> None:
    armed = Path(f"{marker}.armed")
    content = _content(armed)
    if content.partition("#")[0] != name:
        return
    marker.touch()
    # The number tells the next time from this one: a process that sleeps through the end of its wait goes on.
    while _content(armed) == content:
        time.sleep(_POLL_S)


def _content(file: Path) -> str:
    try:
        return file.read_text()
    except FileNotFoundError:
        return ""
