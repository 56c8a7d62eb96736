#!/usr/bin/env bash
# fastavro 1.13.1 writes a datetime into a union's `date` branch although the union has a timestamp: the time is lost.
#
# Expected: the timestamp branch, whose Python type is datetime ("Logical Types" in fastavro's docs: `date` is
#   datetime.date, `timestamp-micros` is datetime.datetime).
# Seen: the first branch that takes the object wins. A datetime is an instance of date, so it goes into `date` if that
#   comes first, without an error.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet fastavro==1.13.1

"$work/venv/bin/python" - >"$work/output" <<'PY'
import io
from datetime import UTC, datetime

import fastavro

DATE = {"type": "int", "logicalType": "date"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

for branches in (["null", DATE, MICROS], ["null", MICROS, DATE]):
    parsed = fastavro.parse_schema(branches)
    data = io.BytesIO()
    fastavro.schemaless_writer(data, parsed, moment)
    data.seek(0)
    print(fastavro.schemaless_reader(data, parsed))
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
2026-01-02
2026-01-02 03:04:05.678901+00:00
SEEN
