#!/usr/bin/env bash
# DuckDB 1.5.5: a registered Arrow RecordBatchReader joined with itself gives no row and no error.
#
# Expected: 3 rows, or an error that the stream was read already. A reader is an iterator over batches (pyarrow's docs), good
#   for one scan, and the engine knows that it starts a second one.
# Seen: the second scan of the stream finds its end. A join in one statement is empty, and so is the next statement.
#   With a Table in the place of the reader the answers are right.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet duckdb==1.5.5 pyarrow==26.0.1

"$work/venv/bin/python" - "$work" >"$work/output" <<'PY'
import duckdb
import pyarrow as pa

table = pa.table({"id": [1, 2, 3]})
for title, make in (("Table", lambda: table), ("RecordBatchReader", table.to_reader)):
    connection = duckdb.connect()
    connection.register("t", make())
    [joined] = connection.execute("SELECT count(*) FROM t a JOIN t b USING (id)").fetchone()
    print(title, "joined with itself:", joined)

connection = duckdb.connect()
connection.register("t", table.to_reader())
print("RecordBatchReader twice:", [connection.execute("SELECT count(*) FROM t").fetchone()[0] for _ in range(2)])
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
Table joined with itself: 3
RecordBatchReader joined with itself: 0
RecordBatchReader twice: [3, 0]
SEEN
