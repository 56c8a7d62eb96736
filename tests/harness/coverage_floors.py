"""Says what unit tests cover of each package, and fails below its floor, or far above. Run by ``make cover`` and ``make test``.

A floor only rises: who covers a percent more than it raises it to what this prints, rounded down.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coverage import Coverage

#: More above a floor than this, and it is not one any more.
_SLACK = 1
#: Percent of lines and branches. Whoever lowers one says why.
FLOORS = {"planner": 100, "connectors": 69, "proxy": 72, "thermocline": 59}


def covered(files: dict[str, Any]) -> dict[str, float]:
    """Percent of lines and branches by package; ``files`` as coverage's JSON report has them."""
    counts: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for file, entry in files.items():
        summary, count = entry["summary"], counts[_package(file)]
        count[0] += summary["covered_lines"] + summary["covered_branches"]
        count[1] += summary["num_statements"] + summary["num_branches"]
    return {package: 100 * part / whole for package, (part, whole) in counts.items()}


def problems(files: dict[str, Any]) -> Iterator[str]:
    """Packages that are not at their floor; where all is to be covered, the lines and branches that are not."""
    percent = covered(files)
    for package, floor in FLOORS.items():
        share = percent.get(package, 0.0)
        said = f"{package}: {share:.2f} % of lines and branches, the floor is {floor} %"
        if share < floor:
            yield said
        elif share > floor + _SLACK:
            yield f"{said}: raise it to {int(share)}"
    for file, entry in files.items():
        if FLOORS[_package(file)] == 100 and (
            entry["missing_lines"] or entry["missing_branches"]
        ):
            yield f"{file}: lines {entry['missing_lines']}, branches {entry['missing_branches']}"


def _package(file: str) -> str:
    return Path(file).parts[0]


def main() -> int:
    coverage = Coverage()
    coverage.load()
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        coverage.json_report(outfile=report.name)
        files = json.load(report)["files"]
    percent = covered(files)
    print("unit tests cover", ", ".join(f"{percent[name]:.1f} % of {name}" for name in FLOORS))
    wrong = list(problems(files))
    for problem in wrong:
        print(problem, file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
