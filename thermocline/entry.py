"""Where the program starts: refuses to run on another program's ``planner``, ``connectors`` or ``proxy``.

Our folders are plain top-level packages, and their names are common words: another distribution, or a folder
where Python was started, may own one of them. Running half of ours and half of theirs would fail later, and
worse. So this file imports none of them before it has looked.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

MIN_PYTHON = (3, 11)
PACKAGES = ("planner", "connectors", "proxy")
# Each of our packages says so in its docstring: another distribution installed later leaves another text.
_OURS = b"Thermocline"
#: What the extra ``spark`` brings.
SPARK = ("pyspark", "py4j")


def foreign_package() -> str | None:
    """Name the first package that would not be imported from beside this one, or was written over there."""
    home = Path(__file__).resolve().parent.parent
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        origin = None if spec is None or spec.origin is None else Path(spec.origin).resolve()
        if origin is None or origin.parent.parent != home or _OURS not in origin.read_bytes():
            return name
    return None


def old_python(version: tuple[int, ...]) -> str | None:
    """The sentence for a Python our packages do not run on. This file itself loads on 3.7 already."""
    if version[:2] >= MIN_PYTHON:
        return None
    needed, actual = (".".join(map(str, numbers[:2])) for numbers in (MIN_PYTHON, version))
    return (
        f"thermocline: Thermocline needs Python {needed} or newer and this is {actual}; make a virtual "
        f"environment with a newer one and install it there."
    )


def main() -> None:
    old = old_python(sys.version_info[:2])
    if old is not None:
        sys.exit(old)
    foreign = foreign_package()
    if foreign is not None:
        sys.exit(
            f"thermocline: the Python package {foreign!r} is not Thermocline's: another distribution or folder of "
            f"that name comes first on the import path; install thermocline in a virtual environment of its own."
        )
    from thermocline import cli

    try:
        cli.main()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in SPARK:
            raise
        sys.stderr.write(
            "thermocline: this command needs Spark, which is not installed: pip install 'thermocline[spark]'.\n"
        )
        sys.exit(2)
