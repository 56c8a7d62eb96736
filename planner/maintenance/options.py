"""How one table is maintained: its properties ``thermocline.maintain.*``, which no reader needs (docs/care.md).

What programs write by themselves stands under ``thermocline-maintain.*``: readers of before this release refuse a table with
an unknown key under ``thermocline.``, and pass over all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from planner.names import TableName
from planner.seam.binding import (
    DEFAULT_PIN_GRACE_S,
    MAINTAIN_MODE,
    MAINTAIN_PREFIX,
    PIN_GRACE_S,
    count_property,
)
from planner.seam.formats import bad_property

Mode = Literal["off", "auto", "on"]

MAX_STEP_S = MAINTAIN_PREFIX + "max_step_s"
#: Written by the removal of orphans, in milliseconds since 1970 by the store's clock: when it last ran.
ORPHANS_MS = "thermocline-maintain.orphans-ms"

#: A step that is lost, to a kill or to a DELETE of another writer, has to be done again.
DEFAULT_MAX_STEP_S = 60
#: Written with it: bytes of the files that it removed then.
ORPHAN_BYTES = "thermocline-maintain.orphan-bytes"
#: Written with ``write.metadata.previous-versions-max``: the number that the table had before.
OWN_VERSIONS = "thermocline-maintain.own-versions"
#: ``create`` writes ``true``: a tierer rewrites the table's files by itself.
COMPACT = "thermocline-maintain.compact"


@dataclass(frozen=True, slots=True)
class MaintainOptions:
    """``pin_grace_s``: for how long what was current, and is not any more, stays readable.

    The last four: see ``COMPACT``, ``ORPHANS_MS``, ``ORPHAN_BYTES``, ``OWN_VERSIONS``.
    """

    mode: Mode = "auto"
    pin_grace_s: int = DEFAULT_PIN_GRACE_S
    max_step_s: int = DEFAULT_MAX_STEP_S
    compact: bool = False
    orphans_ms: int | None = None
    orphan_bytes: int | None = None
    own_versions: int | None = None


def parse_maintain(table: TableName, properties: Mapping[str, str]) -> MaintainOptions:
    """Read ``thermocline.maintain.*``.

    Raises:
        BadBinding: an unknown key or a value that does not fit. Maintenance of this table stops; reading does not.
    """
    allowed = (MAINTAIN_MODE, PIN_GRACE_S, MAX_STEP_S)
    for key in properties:
        if key.startswith(MAINTAIN_PREFIX) and key not in allowed:
            what = f"unknown property {key}; known are {', '.join(allowed)}."
            raise bad_property(table, key, what)
    mode, modes = properties.get(MAINTAIN_MODE, "auto"), get_args(Mode)
    if mode not in modes:
        what = f"property {MAINTAIN_MODE} is {mode!r}; it must be one of {', '.join(modes)}."
        raise bad_property(table, MAINTAIN_MODE, what)
    return MaintainOptions(
        mode=mode,  # type: ignore[arg-type]
        pin_grace_s=count_property(table, properties, PIN_GRACE_S) or DEFAULT_PIN_GRACE_S,
        max_step_s=count_property(table, properties, MAX_STEP_S) or DEFAULT_MAX_STEP_S,
        compact=properties.get(COMPACT) == "true",
        orphans_ms=count_property(table, properties, ORPHANS_MS),
        orphan_bytes=count_property(table, properties, ORPHAN_BYTES, least=0),
        own_versions=count_property(table, properties, OWN_VERSIONS),
    )
