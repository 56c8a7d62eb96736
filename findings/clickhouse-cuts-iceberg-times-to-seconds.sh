#!/usr/bin/env bash
# ClickHouse 26.9 (chdb 4.4.0): an Iceberg column of type time, which has microseconds, is read in whole seconds.
#
# Expected: 12:00:00.999999 (spec, Primitive Types: time of day with microsecond precision).
# Seen: a number of seconds, 43200, without a word; of two rows less than a second apart a GROUP BY makes one.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet chdb==4.4.0 chdb-core==26.9.0 'pyiceberg[sql-sqlite]==0.12.0' pyarrow==25.0.1

cd "$work"
"$work/venv/bin/python" - "$work" >"$work/output" <<'PY'
import sys
from datetime import time

import chdb
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

catalog = SqlCatalog("c", uri=f"sqlite:///{sys.argv[1]}/c.db", warehouse=f"file://{sys.argv[1]}/w")
catalog.create_namespace("n")
rows = pa.table({"at": [time(12, 0, 0, 999999), time(12, 0, 0, 1)]})
table = catalog.create_table("n.t", schema=rows.schema)
table.append(rows)
print("pyiceberg", table.scan().to_arrow()["at"].to_pylist())
read = f"FROM icebergLocal('{table.location().removeprefix('file://')}')"
print(str(chdb.query(f"SELECT at, toTypeName(at), count() {read} GROUP BY at")).strip())
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
pyiceberg [datetime.time(12, 0, 0, 999999), datetime.time(12, 0, 0, 1)]
43200,"Nullable(Int64)",2
SEEN
