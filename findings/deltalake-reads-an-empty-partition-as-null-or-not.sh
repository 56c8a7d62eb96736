#!/usr/bin/env bash
# deltalake 1.6.6: a row written with the partition value '' is '' in SQL and NULL in Arrow, in one and the same table.
#
# Expected: one of the two everywhere. Delta's protocol ("Partition Value Serialization") has no empty text: an empty
#   string means NULL, so the value cannot be stored, and a writer could refuse it.
# Seen: the writer takes it. to_pyarrow_table returns NULL, SQL finds the row by p = '' and not by p IS NULL.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet deltalake==1.6.6 pyarrow==25.0.1

"$work/venv/bin/python" - "$work/t" >"$work/output" <<'PY'
import sys

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

data = pa.table({"p": ["", "a", None], "v": [1, 2, 3]})
write_deltalake(sys.argv[1], data, partition_by=["p"])
table = DeltaTable(sys.argv[1])
engine = QueryBuilder().register("t", table)
print("Arrow", table.to_pyarrow_table().sort_by("v").to_pylist())
for condition in ("p = ''", "p IS NULL"):
    rows = engine.execute(f"SELECT v FROM t WHERE {condition}").read_all()
    print(condition, pa.table(rows).to_pylist())
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
Arrow [{'p': None, 'v': 1}, {'p': 'a', 'v': 2}, {'p': None, 'v': 3}]
p = '' [{'v': 1}]
p IS NULL [{'v': 3}]
SEEN
