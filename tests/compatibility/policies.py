"""Create a table for each policy and mode with the packages of e9728f6 in PYTHONPATH; run as a file, by its path.

Arguments: the folder all packages must come from, a folder for the catalog.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from pathlib import Path

import pyarrow as pa

import planner
from planner.names import TableName
from planner.offsets import OffsetVector
from planner.schema import Column

POLICIES = ("fail", "null", "skip")
MODES = ("strict", "lenient")
_TIME = pa.timestamp("us", "UTC")
_NESTED = pa.map_(
    pa.string(),
    pa.list_(pa.field("element", pa.struct([pa.field("t", pa.timestamp("us"))]))),
)
#: A payload by its name: without a time, with one that numbers give, and with one that texts give, at any depth.
PAYLOADS = {
    "none": Column(0, "host", pa.string()),
    "epoch": Column(0, "at", _TIME, epoch_unit="ms"),
    "text": Column(0, "at", _TIME),
    "nested": Column(0, "at", _NESTED),
}


def properties(root: str) -> dict[str, dict[str, str]]:
    """Return the settings of the catalog that the tables are in."""
    uri, warehouse = f"sqlite:///{root}/catalog.db", f"file://{root}/warehouse"
    return {"lake": {"type": "sql", "uri": uri, "warehouse": warehouse}}


def main() -> None:
    create_table = importlib.import_module("connectors.iceberg.create").create_table
    # Where it has them.
    bind = importlib.import_module("planner.binding").Binding
    mark = importlib.import_module("planner.watermark").Watermark
    source, root = sys.argv[1:]
    assert str(planner.__file__).startswith(source), planner.__file__
    Path(root).mkdir(exist_ok=True)
    for policy, mode, (name, column) in itertools.product(POLICIES, MODES, PAYLOADS.items()):
        first = mark("cluster-1", "flows", "topic-1", OffsetVector(((0, 0),)), "", "run-1")
        table = TableName("lake", ("net",), f"{policy}_{mode}_{name}")
        binding = bind("flows", on_error=policy, json_mode=mode)
        create_table(properties(root), table, [column], binding, first)


if __name__ == "__main__":
    main()
