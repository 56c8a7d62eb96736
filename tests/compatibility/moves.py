"""Write a table, or read it, with whatever version of our packages stands in PYTHONPATH; run as a file, by its path.

It names only what every version has. Arguments: the folder all packages must come from, what to do as JSON.
Prints a JSON document.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
import pyarrow as pa

import connectors
import planner
from connectors.iceberg.store import IcebergStore
from planner.names import TableName
from tests.fixtures.cold import IcebergCold, cold_slice

#: Where the version has them.
_SEAM = "planner.seam" if Path(planner.__file__).with_name("seam").is_dir() else "planner"
cuts = importlib.import_module(f"{_SEAM}.cut")
watermarks = importlib.import_module(f"{_SEAM}.watermark")
_BUILDERS = (
    "tests.harness.builders"
    if importlib.util.find_spec("tests.harness")
    else "tests.unit.builders"
)
builders = importlib.import_module(_BUILDERS)
FLOWS, bounds, watermark = builders.FLOWS, builders.bounds, builders.watermark


def duck(folder: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"extension_directory": folder})
    for package in (duckdb_extension_avro, duckdb_extension_iceberg):
        (file,) = Path(package.__path__[0]).glob("extensions/*/*.duckdb_extension")
        connection.execute(f"INSTALL '{file}'")
        connection.execute(f"LOAD {file.name.split('.')[0]}")
    return connection


def write(cold: IcebergCold, rows: list[list[Any]], next_offsets: list[int]) -> None:
    """Publish as a tierer does: rows, watermark, mirror and tag at once."""
    head = cold.table().metadata.current_snapshot_id
    text = watermarks.format_watermark(
        watermark(*next_offsets, prev_snapshot_id=head, run="compatible")
    )
    cold._tier([(row[0], row[1], row[2], row[3]) for row in rows], text)


def snapshots(cold: IcebergCold) -> dict[str, Any]:
    """What a table says of its watermarks: snapshots, first to last, and its properties."""
    metadata = cold.table().metadata
    return {
        "properties": {
            key: text
            for key, text in metadata.properties.items()
            if key.startswith("thermocline.")
        },
        "refs": {name: ref.snapshot_id for name, ref in metadata.refs.items()},
        "snapshots": [
            {
                "snapshot_id": snapshot.snapshot_id,
                "parent_id": snapshot.parent_snapshot_id,
                "sequence_number": snapshot.sequence_number,
                "operation": snapshot.summary.operation.value,
                "summary": dict(snapshot.summary.additional_properties),
            }
            for snapshot in metadata.snapshots
            if snapshot.summary is not None
        ],
    }


def read(cold: IcebergCold, pin: Any, logs: list[list[int]], **log: str) -> dict[str, Any]:
    """Plan a cut of what is pinned, and read the part of it that is cold."""
    assert pin.watermark is not None
    cut = cuts.plan_cut(pin, bounds(*[(start, end) for start, end in logs], **log))
    assert cut.hot is not None
    table: pa.Table = cold.read(cold_slice(pin))
    names = ("kafka_partition", "kafka_offset", "host", "bytes")
    return {
        "watermark": [offset for _, offset in pin.watermark.next],
        "run": pin.watermark.run,
        "snapshot_id": pin.snapshot_id,
        "hot": sorted((span.partition, span.start, span.stop) for span in cut.hot.ranges),
        "rows": sorted(zip(*(table[name].to_pylist() for name in names), strict=True)),
    }


def state(cold: IcebergCold, logs: list[list[int]]) -> dict[str, Any]:
    return {"snapshots": snapshots(cold), "read": read(cold, cold.store.pin(FLOWS), logs)}


def main() -> None:
    source, fields = sys.argv[1], json.loads(sys.argv[2])
    for package in (planner, connectors):
        assert str(package.__file__).startswith(source), package.__file__
    with tempfile.TemporaryDirectory() as folder:
        cold = IcebergCold(Path(fields["lake"]), duck(folder))
        if "table" in fields:
            # Another catalog's, which others write.
            with contextlib.closing(IcebergStore(fields["catalogs"])) as store:
                pin = store.pin(TableName.parse(fields["table"]))
                print(json.dumps(read(cold, pin, fields["logs"], **fields["log"])))
            cold.close()
            return
        answer: dict[str, Any] = {}
        if fields.get("before"):
            answer["before"] = state(cold, fields["logs"])
        for move, *arguments in fields["moves"]:
            match move:
                case "create":
                    cold.create()
                case "tier":
                    write(cold, *arguments)
                case _:
                    getattr(cold, move)(*arguments)
        answer |= state(cold, fields["logs"])
        cold.close()
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
