#!/usr/bin/env bash
# pypaimon 2.1.0: times beyond the years 1677 to 2262 that it writes to ORC files are read as others.
#
# Expected: the value that was written, as from its Parquet and Avro files, or an error.
# Seen: it asks for pyarrow below 20, which counts an ORC file's times in nanoseconds of 64 bits and lets them wrap, without
#   an error. The end of time that many systems write (9999-12-31) becomes the year 1816, and a condition finds it there.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet 'pypaimon==2.1.0' 'pyarrow==19.0.1'

"$work/venv/bin/python" - "$work" 2>"$work/errors" >"$work/output" <<'PY' || { cat "$work/errors"; exit 1; }
import sys
from datetime import datetime

import pyarrow as pa
from pypaimon import CatalogFactory, Schema

print("pyarrow", pa.__version__.split(".")[0])
catalog = CatalogFactory.create({"warehouse": sys.argv[1]})
catalog.create_database("d", True)
rows = pa.table({"until": pa.array([datetime(2026, 1, 1), datetime(9999, 12, 31)], pa.timestamp("us"))})
for form in ("parquet", "avro", "orc"):
    schema = Schema.from_pyarrow_schema(rows.schema, options={"file.format": form})
    catalog.create_table(f"d.{form}", schema, False)
    table = catalog.get_table(f"d.{form}")
    builder = table.new_batch_write_builder()
    write, commit = builder.new_write(), builder.new_commit()
    write.write_arrow(rows)
    commit.commit(write.prepare_commit())
    reader = table.new_read_builder()
    past = table.new_read_builder()
    past = past.with_filter(past.new_predicate_builder().less_than("until", datetime(2026, 1, 1)))
    answers = [
        each.new_read().to_arrow(each.new_scan().plan().splits())["until"].cast(pa.int64()).to_pylist()
        for each in (reader, past)
    ]
    print(form, answers[0], "before 2026:", answers[1])
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
pyarrow 19
parquet [1767225600000000, 253402214400000000] before 2026: []
avro [1767225600000000, 253402214400000000] before 2026: []
orc [1767225600000000, -4852202631933722] before 2026: [-4852202631933722]
SEEN
