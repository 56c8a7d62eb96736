#!/usr/bin/env bash
# pyiceberg 0.12.0: `x < 1099511627776` over an int column deletes rows where x is NULL.
#
# Expected: NULL < anything is not true: `x < 5` leaves the NULL row, and so should any larger literal.
# Seen: a literal beyond the column's type makes the condition always true or always false. Always true takes NULL and
#   NaN with it, in scans and in delete(), which rewrites the table without these rows. For a float column, infinity is
#   such a literal: `x < inf` takes NULL and inf itself, `x = inf` finds nothing. A double column is right.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet 'pyiceberg[sql-sqlite,pyarrow]==0.12.0'

"$work/venv/bin/python" - "$work" >"$work/output" <<'PY'
import math
import sys

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import EqualTo, LessThan

work = sys.argv[1]
catalog = load_catalog("c", type="sql", uri=f"sqlite:///{work}/c.db", warehouse=f"file://{work}")
catalog.create_namespace("n")


def table(name: str, values: pa.Array):
    data = pa.table({"x": values})
    created = catalog.create_table(f"n.{name}", schema=data.schema)
    created.append(data)
    return created


def rows(source, condition) -> list:
    return source.scan(row_filter=condition).to_arrow()["x"].to_pylist()


ints = table("ints", pa.array([1, None, 3], pa.int32()))
for condition in ("x < 5", "x < 1099511627776", "x != 1099511627776"):
    print(condition, rows(ints, condition))
ints.delete("x < 1099511627776")
print("after the delete", ints.scan().to_arrow()["x"].to_pylist())

for kind in (pa.float64(), pa.float32()):
    numbers = table(str(kind), pa.array([1.0, None, math.inf], kind))
    print(kind, "x < inf", rows(numbers, LessThan("x", math.inf)), "x = inf", rows(numbers, EqualTo("x", math.inf)))
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
x < 5 [1, 3]
x < 1099511627776 [1, None, 3]
x != 1099511627776 [1, None, 3]
after the delete []
double x < inf [1.0] x = inf [inf]
float x < inf [1.0, None, inf] x = inf []
SEEN
