#!/usr/bin/env bash
# pyiceberg 0.12.0: a scan for v = 0.1 finds nothing in a table that is partitioned by the double v itself.
#
# Expected: the row. Iceberg's specification ("Avro", "Appendix A") writes a double partition value as an Avro double, of 8
#   bytes, and Avro 1.12 ("Binary Encoding") reads it back as it was.
# Seen: the compiled decoder of manifests returns the double as the nearest float, so 0.1 is 0.10000000149 and the file's
#   partition cannot hold 0.1. Values that a float has exactly (0.5) are found, and every row is there without a condition.
#   Fixed after the release (apache/iceberg-python, pull request 3808).
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet 'pyiceberg[sql-sqlite,pyarrow]==0.12.0'

"$work/venv/bin/python" - "$work" >"$work/output" <<'PY'
import struct
import sys

import pyarrow as pa
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import EqualTo

work = sys.argv[1]
catalog = load_catalog("c", type="sql", uri=f"sqlite:///{work}/c.db", warehouse=f"file://{work}")
catalog.create_namespace("n")
data = pa.table({"v": pa.array([0.1, 0.5], pa.float64())})
table = catalog.create_table("n.t", schema=data.schema)
with table.update_spec() as spec:
    spec.add_identity("v")
table.append(data)

decoder = new_decoder(struct.pack("<d", 0.1))
print(type(decoder).__name__, decoder.read_double())
print("all", *sorted(table.scan().to_arrow()["v"].to_pylist()))
for value in (0.1, 0.5):
    print(f"v = {value}:", *table.scan(row_filter=EqualTo("v", value)).to_arrow()["v"].to_pylist())
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
CythonBinaryDecoder 0.10000000149011612
all 0.1 0.5
v = 0.1:
v = 0.5: 0.5
SEEN
