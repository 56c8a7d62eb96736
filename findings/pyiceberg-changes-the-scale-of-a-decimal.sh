#!/usr/bin/env bash
# pyiceberg 0.12.0: update_column from decimal(9, 2) to decimal(9, 4) is accepted, and readers then miss rows.
#
# Expected: an error. Iceberg's specification ("Schema Evolution") allows decimal(P, S) to decimal(P', S) with P' > P,
#   and "scale is fixed". Java refuses it.
# Seen: accepted. The bounds in the manifests are unscaled numbers: 7.50 is 750, which reads as 0.0750 at the new scale,
#   so a reader that prunes by them passes over the file. The rows are there without a condition.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet 'pyiceberg[sql-sqlite,pyarrow]==0.12.0' \
  duckdb==1.5.5 duckdb-extension-avro==1.5.5 duckdb-extension-iceberg==1.5.5

"$work/venv/bin/python" - "$work" >"$work/output" <<'PY'
import sys
from decimal import Decimal
from pathlib import Path

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import GreaterThan
from pyiceberg.types import DecimalType

work = sys.argv[1]
catalog = load_catalog("c", type="sql", uri=f"sqlite:///{work}/c.db", warehouse=f"file://{work}")
catalog.create_namespace("n")
data = pa.table({"m": pa.array([Decimal("1.25"), Decimal("7.50")], pa.decimal128(9, 2))})
table = catalog.create_table("n.t", schema=data.schema)
table.append(data)
with table.update_schema() as update:
    update.update_column("m", DecimalType(9, 4))

connection = duckdb.connect()
for extension in (duckdb_extension_avro, duckdb_extension_iceberg):
    connection.load_extension(str(next(Path(extension.__file__).parent.rglob("*.duckdb_extension"))))
print("type", table.schema().find_type("m"))
print("pyiceberg, all", *table.scan().to_arrow()["m"].to_pylist())
print("pyiceberg, m > 1", *table.scan(row_filter=GreaterThan("m", Decimal("1.0000"))).to_arrow()["m"].to_pylist())
for condition in ("true", "m > 1"):
    rows = connection.execute(f"SELECT m FROM iceberg_scan('{table.metadata_location}') WHERE {condition}").fetchall()
    print("DuckDB,", condition, *(m for [m] in rows))
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
type decimal(9, 4)
pyiceberg, all 1.2500 7.5000
pyiceberg, m > 1
DuckDB, true 1.2500 7.5000
DuckDB, m > 1
SEEN
