#!/usr/bin/env bash
# pyarrow 25.0.1: read_table with the filter is_nan(v) returns no row of a Parquet file that holds 0.5 and NaN.
#
# Expected: the row. Parquet's format ("ColumnOrder" in parquet.thrift): statistics leave NaN out, and "when looking for NaN
#   values, min and max should be ignored".
# Seen: the row group's bounds become a guarantee that v = 0.5 or that v <= 1, by which the filter is simplified to false. The same
#   filter on the table in memory finds the row. Arrow's issue 28074 named it in 2021 and is closed.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet pyarrow==25.0.1

"$work/venv/bin/python" - "$work/t.parquet" >"$work/output" <<'PY'
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

v = pc.field("v")
for values, name, filter in (
    ([0.5, float("nan")], "is_nan(v)", pc.is_nan(v)),
    ([0.5, float("nan")], "v != 0.5", v != 0.5),
    ([0.5, 1.0, float("nan")], "not v <= 1", ~(v <= 1.0)),
    ([0.5, 1.0, float("nan")], "is_nan(v)", pc.is_nan(v)),
):
    table = pa.table({"v": values})
    pq.write_table(table, sys.argv[1])
    found = pq.read_table(sys.argv[1], filters=filter)
    print(values, name, "| file", found["v"].to_pylist(), "| memory", table.filter(filter)["v"].to_pylist())
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
[0.5, nan] is_nan(v) | file [] | memory [nan]
[0.5, nan] v != 0.5 | file [] | memory [nan]
[0.5, 1.0, nan] not v <= 1 | file [] | memory [nan]
[0.5, 1.0, nan] is_nan(v) | file [nan] | memory [nan]
SEEN
