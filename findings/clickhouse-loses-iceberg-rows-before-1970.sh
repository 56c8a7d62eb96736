#!/usr/bin/env bash
# ClickHouse 26.9 (chdb 4.4.0): an Iceberg table partitioned by year, month, day or hour has its rows of before 1970, but a
# filter for one of them finds none.
#
# Expected: each row by its own value. The transforms of such values are negative numbers (Iceberg spec, Partition Transforms:
# days, months, years, hours from 1970), as pyiceberg writes them.
# Seen: only the row of 1970-01-01 is found, by each transform; by an identity partition all are.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet chdb==4.4.0 chdb-core==26.9.0 'pyiceberg[sql-sqlite]==0.12.0' pyiceberg-core==0.11.0 pyarrow==25.0.1

cd "$work"
"$work/venv/bin/python" - "$work" >"$work/output" <<'PY'
import sys
from datetime import date

import chdb
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

catalog = SqlCatalog("c", uri=f"sqlite:///{sys.argv[1]}/c.db", warehouse=f"file://{sys.argv[1]}/w")
catalog.create_namespace("n")
dates = [date(1969, 12, 31), date(1955, 3, 1), date(1970, 1, 1)]
for transform in ("identity", "year", "month", "day"):
    table = catalog.create_table(f"n.{transform}", schema=pa.schema([("born", pa.date32())]))
    with table.update_spec() as update:
        update.add_field("born", transform, "p")
    table.append(pa.table({"born": dates}))
    read = f"SELECT count() FROM icebergLocal('{table.location().removeprefix('file://')}')"
    counts = [int(str(chdb.query(read)))]
    counts += [int(str(chdb.query(f"{read} WHERE born = '{each}'"))) for each in dates]
    print(transform, counts)
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
identity [3, 1, 1, 1]
year [3, 0, 0, 1]
month [3, 0, 0, 1]
day [3, 0, 0, 1]
SEEN
