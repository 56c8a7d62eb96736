#!/usr/bin/env bash
# DuckDB 1.5.5: one text with an offset is two different TIMESTAMPs, by whether read_json guessed the type.
#
# Expected: the same value, or an error where a TIMESTAMP without zone cannot hold the offset. Naming the type that
#   would be guessed should change nothing.
# Seen: if the type is guessed, the offset is applied (22:00 the day before, which is UTC). If the same type is named in
#   `columns`, or by CAST and from_json, the offset is dropped: two hours off, no error.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet duckdb==1.5.5

"$work/venv/bin/python" - "$work" >"$work/output" <<'PY'
import sys
from pathlib import Path

import duckdb

moment = "2026-01-01T00:00:00+02:00"
file = Path(sys.argv[1]) / "events.json"
file.write_text(f'{{"ts": "{moment}"}}\n')
for title, sql in (
    ("read_json, type guessed", f"SELECT ts, typeof(ts) FROM read_json('{file}')"),
    ("read_json, type named", f"SELECT ts, typeof(ts) FROM read_json('{file}', columns = {{ts: 'TIMESTAMP'}})"),
    ("from_json", f"""SELECT t.ts, typeof(t.ts) FROM (SELECT from_json('{{"ts": "{moment}"}}', '{{"ts": "TIMESTAMP"}}') AS t)"""),
    ("CAST", f"SELECT '{moment}'::TIMESTAMP, typeof('{moment}'::TIMESTAMP)"),
):
    print(title, *duckdb.sql(sql).fetchone(), sep="; ")
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
read_json, type guessed; 2025-12-31 22:00:00; TIMESTAMP
read_json, type named; 2026-01-01 00:00:00; TIMESTAMP
from_json; 2026-01-01 00:00:00; TIMESTAMP
CAST; 2026-01-01 00:00:00; TIMESTAMP
SEEN
