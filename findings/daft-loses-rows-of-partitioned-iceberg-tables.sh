#!/usr/bin/env bash
# Daft 0.7.26: NOT over a partitioned Iceberg table loses rows; over a partition added later it excludes none.
#
# Expected: the rows of the table without partitions, which is the control here. To prune by a bucket, day or truncate
#   the specification asks for an inclusive projection ("Scan Planning": a partition that may hold a row is read).
# Seen: the condition is projected and then negated, so a partition that holds a single excluded value is passed over as a
#   whole. In "identity later" the first file is older than the partition, and neither != nor NOT excludes a row. No
#   error; log lines are about pushdown only.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet daft==0.7.26 'pyiceberg[sql-sqlite,pyarrow,pyiceberg-core]==0.12.0'

"$work/venv/bin/python" - "$work" >"$work/output" <<'PY'
import sys
from datetime import UTC, datetime, timedelta

import daft
import pyarrow as pa
from daft import col
from pyiceberg.catalog import load_catalog
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform

work = sys.argv[1]
catalog = load_catalog("c", type="sql", uri=f"sqlite:///{work}/c.db", warehouse=f"file://{work}")
catalog.create_namespace("n")
start = datetime(2026, 1, 1, tzinfo=UTC)
data = pa.table({"x": list(range(10)), "t": [start + timedelta(hours=6 * i) for i in range(10)]})
no_3 = {"x != 3": col("x") != 3, "NOT x = 3": ~(col("x") == 3), "NOT x IN (1, 2)": ~col("x").is_in([1, 2])}
days = {"NOT t < 2 Jan 03:00": ~(col("t") < start + timedelta(hours=27))}
for name, term, first, conditions in (
    ("no partitions", None, 0, no_3 | days),
    ("bucket", ("x", BucketTransform(4)), 0, no_3),
    ("truncate", ("x", TruncateTransform(3)), 0, no_3),
    ("day", ("t", DayTransform()), 0, days),
    ("identity", ("x", IdentityTransform()), 0, no_3),
    ("identity later", ("x", IdentityTransform()), 5, no_3),
):
    table = catalog.create_table(("n", name.replace(" ", "_")), schema=data.schema)
    if first:
        table.append(data.slice(0, first))
    if term:
        with table.update_spec() as update:
            update.add_field(*term)
    table.append(data.slice(first))
    for text, condition in conditions.items():
        rows = daft.read_iceberg(table).where(condition).sort("x").to_pydict()["x"]
        print(f"{name}, {text}:", *rows)
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
no partitions, x != 3: 0 1 2 4 5 6 7 8 9
no partitions, NOT x = 3: 0 1 2 4 5 6 7 8 9
no partitions, NOT x IN (1, 2): 0 3 4 5 6 7 8 9
no partitions, NOT t < 2 Jan 03:00: 5 6 7 8 9
bucket, x != 3: 0 1 2 4 5 6 7 8 9
bucket, NOT x = 3: 0 1 2 4 6
bucket, NOT x IN (1, 2): 3 4 5 6 7 8 9
truncate, x != 3: 0 1 2 4 5 6 7 8 9
truncate, NOT x = 3: 0 1 2 6 7 8 9
truncate, NOT x IN (1, 2): 3 4 5 6 7 8 9
day, NOT t < 2 Jan 03:00: 8 9
identity, x != 3: 0 1 2 4 5 6 7 8 9
identity, NOT x = 3: 0 1 2 4 5 6 7 8 9
identity, NOT x IN (1, 2): 0 3 4 5 6 7 8 9
identity later, x != 3: 0 1 2 3 4 5 6 7 8 9
identity later, NOT x = 3: 0 1 2 3 4 5 6 7 8 9
identity later, NOT x IN (1, 2): 0 1 2 3 4 5 6 7 8 9
SEEN
