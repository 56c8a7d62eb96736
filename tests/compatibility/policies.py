"""Create a table for each policy and mode with the packages in PYTHONPATH; run as a file, by its path.

Arguments: the folder all packages must come from, a folder for the catalog. It names only what every version has.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import planner
from connectors.iceberg.create import create_table
from planner.names import TableName
from planner.offsets import OffsetVector
from planner.schema import Column
from planner.seam.binding import parse_binding
from planner.seam.watermark import Watermark
from planner.type_text import parse_type

POLICIES = ("fail", "null", "skip")
MODES = ("strict", "lenient")
#: A payload by its name: without a time, with one that numbers give, and with one that texts give, at any depth.
PAYLOADS = {
    "none": Column(0, "host", parse_type("string")),
    "epoch": Column(0, "at", parse_type("timestamptz"), epoch_unit="ms"),
    "text": Column(0, "at", parse_type("timestamptz")),
    "nested": Column(0, "at", parse_type("map<string, list<struct<t: timestamp>>>")),
}


def properties(root: str) -> dict[str, dict[str, str]]:
    """Return the settings of the catalog that the tables are in."""
    uri, warehouse = f"sqlite:///{root}/catalog.db", f"file://{root}/warehouse"
    return {"lake": {"type": "sql", "uri": uri, "warehouse": warehouse}}


def main() -> None:
    source, root = sys.argv[1:]
    assert str(planner.__file__).startswith(source), planner.__file__
    Path(root).mkdir(exist_ok=True)
    for policy, mode, (name, column) in itertools.product(POLICIES, MODES, PAYLOADS.items()):
        first = Watermark("cluster-1", "flows", "topic-1", OffsetVector(((0, 0),)), "", "run-1")
        table = TableName("lake", ("net",), f"{policy}_{mode}_{name}")
        options = {"topic": "flows", "on_error": policy, "json_mode": mode}
        binding = parse_binding(
            table, {f"thermocline.{key}": value for key, value in options.items()}
        )
        assert binding is not None
        create_table(properties(root), table, [column], binding, first)


if __name__ == "__main__":
    main()
