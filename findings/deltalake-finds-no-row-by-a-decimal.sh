#!/usr/bin/env bash
# deltalake 1.6.6: a table with one row 90071992547409.93, a decimal(16, 2), has no row where v = 90071992547409.93.
#
# Expected: the row. Delta's protocol ("Per-file Statistics") has the smallest and largest value of a file's columns, by
#   which readers leave out files that cannot have a row.
# Seen: the writer puts decimals into the log as JSON numbers by way of a double, so both bounds are 90071992547409.92, and a
#   decimal(38, 0) beyond 2^63 has the bounds 9223372036854775807. SQL and pyarrow's dataset then leave out the file. Numbers
#   that a double has exactly are found, and without the condition every row is there.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet deltalake==1.6.6 pyarrow==25.0.1

"$work/venv/bin/python" - "$work" >"$work/output" <<'PY'
import json
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder, write_deltalake


def bounds(folder):
    (log,) = (folder / "_delta_log").glob("*.json")
    (added,) = (line["add"] for line in map(json.loads, log.read_text().splitlines()) if "add" in line)
    stats = json.loads(added["stats"])
    return stats["minValues"]["v"], stats["maxValues"]["v"]


for name, text, digits, scale in (
    ("a", "90071992547409.92", 16, 2),
    ("b", "90071992547409.93", 16, 2),
    ("c", "12345678901234567890", 38, 0),
):
    folder, kind = Path(sys.argv[1], name), pa.decimal128(digits, scale)
    write_deltalake(folder, pa.table({"v": pa.array([Decimal(text)], kind)}))
    table = DeltaTable(folder)
    condition = f"v = CAST('{text}' AS DECIMAL({digits}, {scale}))"
    found = QueryBuilder().register("t", table).execute(f"SELECT * FROM t WHERE {condition}").read_all()
    dataset = table.to_pyarrow_dataset()
    equal = dataset.to_table(filter=pc.field("v") == pa.scalar(Decimal(text), kind))
    print(text, "bounds", *bounds(folder))
    print("  SQL", pa.table(found).num_rows, "dataset", equal.num_rows, "all", dataset.count_rows())
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
90071992547409.92 bounds 90071992547409.92 90071992547409.92
  SQL 1 dataset 1 all 1
90071992547409.93 bounds 90071992547409.92 90071992547409.92
  SQL 0 dataset 0 all 1
12345678901234567890 bounds 9223372036854775807 9223372036854775807
  SQL 0 dataset 0 all 1
SEEN
