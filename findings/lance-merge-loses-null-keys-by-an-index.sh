#!/usr/bin/env bash
# pylance 14.0.2: merge_insert loses rows whose key is null once the key column has a scalar index.
#
# Expected: the same table with and without the index. A null equals no key, so the row is inserted.
# Seen: without an index it is inserted. With a BTREE or BITMAP index it is neither inserted nor counted, without an error,
#   also where rows are only inserted and the table has no null key.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet 'pylance==14.0.2' 'pyarrow==26.0.1'

"$work/venv/bin/python" - "$work" 2>"$work/errors" >"$work/output" <<'PY' || { cat "$work/errors"; exit 1; }
import sys

import lance
import pyarrow as pa


def rows(*keys):
    return pa.table({"k": pa.array(keys, pa.int64()), "v": range(len(keys))})


for index in (None, "BTREE", "BITMAP"):
    lake = f"{sys.argv[1]}/{index}.lance"
    table = lance.write_dataset(rows(1, 3), lake)
    if index:
        table.create_scalar_index("k", index)
    merge = table.merge_insert("k").when_matched_update_all().when_not_matched_insert_all()
    counts = merge.execute(rows(None, 3))
    insert = lance.dataset(lake).merge_insert("k").when_not_matched_insert_all()
    inserted = insert.execute(rows(None, 4))["num_inserted_rows"]
    keys = sorted(map(str, lance.dataset(lake).to_table()["k"].to_pylist()))
    print(index, "updated", counts["num_updated_rows"], "inserted", counts["num_inserted_rows"], "then", inserted, keys)
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
None updated 1 inserted 1 then 2 ['1', '3', '4', 'None', 'None']
BTREE updated 1 inserted 0 then 1 ['1', '3', '4']
BITMAP updated 1 inserted 0 then 1 ['1', '3', '4']
SEEN
