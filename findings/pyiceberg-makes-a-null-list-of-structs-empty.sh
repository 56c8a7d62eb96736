#!/usr/bin/env bash
# pyiceberg 0.12.0: a NULL list whose elements are structs becomes an empty list, and so does a NULL map of structs.
#
# Expected: NULL, as for a list of numbers. Guess before the run: wrong in reading only, so the file is right.
# Seen: append() writes [] into the file, where every engine then reads it. A file with NULL that another writer made
#   (add_files) is read as [] too. Lists of numbers keep their NULL both ways.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet 'pyiceberg[sql-sqlite,pyarrow]==0.12.0'

"$work/venv/bin/python" - "$work" >"$work/output" <<'PY'
import sys

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog

work = sys.argv[1]
catalog = load_catalog("c", type="sql", uri=f"sqlite:///{work}/c.db", warehouse=f"file://{work}")
catalog.create_namespace("n")
item = pa.struct([("a", pa.int64())])
data = pa.table(
    {
        "numbers": pa.array([[1], None, []], pa.list_(pa.int64())),
        "structs": pa.array([[{"a": 1}], None, []], pa.list_(item)),
        "map": pa.array([[("k", {"a": 1})], None, []], pa.map_(pa.string(), item)),
    }
)
pq.write_table(data, f"{work}/foreign.parquet")

for way in ("append", "add_files"):
    table = catalog.create_table(f"n.{way}", schema=data.schema)
    if way == "append":
        table.append(data)
    else:
        table.add_files([f"file://{work}/foreign.parquet"])
    [task] = table.scan().plan_files()
    file = pq.read_table(task.file.file_path.removeprefix("file://"))
    for name in data.column_names:
        print(way, name, "file", file[name].to_pylist(), "scan", table.scan().to_arrow()[name].to_pylist())
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
append numbers file [[1], None, []] scan [[1], None, []]
append structs file [[{'a': 1}], [], []] scan [[{'a': 1}], [], []]
append map file [[('k', {'a': 1})], [], []] scan [[('k', {'a': 1})], [], []]
add_files numbers file [[1], None, []] scan [[1], None, []]
add_files structs file [[{'a': 1}], None, []] scan [[{'a': 1}], [], []]
add_files map file [[('k', {'a': 1})], None, []] scan [[('k', {'a': 1})], [], []]
SEEN
