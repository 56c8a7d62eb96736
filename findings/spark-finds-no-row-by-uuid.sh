#!/usr/bin/env bash
# Iceberg 1.12.0 in Spark 4.1.4: `WHERE u = ...` finds no row of a file whose uuids lie on both sides of 80000000-...
#
# Expected: one row for each of the two ids. Parquet's UUID type is ordered "by unsigned byte-wise comparison" (Logical
#   Types), and so are the bounds in the file and in the manifest.
# Seen: Java's UUID.compareTo is signed, so the lower bound 1... is above the upper bound f...: the file is passed over,
#   by =, IN and <. Without a condition, and with one id to a file, the rows are there. Random ids nearly always do it.
#   Public: apache/iceberg issue 14216. Needs Java 17.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet pyspark==4.1.4 'pyiceberg[sql-sqlite,pyarrow]==0.12.0'
cd "$work"

"$work/venv/bin/python" - >"$work/output" <<'PY'
import uuid
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

here = Path.cwd()
low, high = (uuid.UUID(f"{digit}0000000-0000-4000-8000-000000000000") for digit in "1f")
catalog = load_catalog("c", type="sql", uri=f"sqlite:///{here}/c.db", warehouse=f"file://{here}")
catalog.create_namespace("n")

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.jars.ivy", f"{here}/ivy")
    .config("spark.jars.packages", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0")
    .config("spark.sql.catalog.files", "org.apache.iceberg.spark.SparkCatalog")
    .config("spark.sql.catalog.files.type", "hadoop")
    .config("spark.sql.catalog.files.warehouse", f"file://{here}")
    .getOrCreate()
)
for title, files in (("one file", [[low, high]]), ("two files", [[low], [high]])):
    column = pa.schema([("u", pa.uuid())])
    table = catalog.create_table(("n", title.replace(" ", "_")), schema=column)
    for ids in files:
        table.append(pa.table({"u": pa.array([i.bytes for i in ids], pa.uuid())}, schema=column))
    frame = spark.read.format("iceberg").load(table.metadata_location)
    counts = [frame.where(f"u = '{i}'").count() for i in (low, high)]
    print(f"{title}: all {frame.count()}, by id {counts}, IN {frame.where(f'''u IN ('{low}', '{high}')''').count()}")
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
one file: all 2, by id [0, 0], IN 0
two files: all 2, by id [1, 1], IN 2
SEEN
