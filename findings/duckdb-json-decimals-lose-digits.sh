#!/usr/bin/env bash
# DuckDB 1.5.5: a JSON number read as DECIMAL(38, 2) is not the number in the text, although it fits.
#
# Expected: 12345678901234567.89, as from CAST of the same text and from the same digits in quotes. JSON numbers are
#   decimal text of any precision (RFC 8259 section 6), whole numbers of DuckDB are exact to 128 bits, and the column
#   asked for is a decimal.
# Seen: a number with a fraction passes through a double, from files too. A number beyond 15 digits loses the last ones;
#   `->>`, which returns text, gives the rounded number as well.
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

number = "12345678901234567.89"
file = Path(sys.argv[1]) / "payments.json"
file.write_text(f'{{"amount": {number}}}\n')
for title, sql in (
    ("CAST of the text", f"SELECT '{number}'::DECIMAL(38, 2)"),
    ("read_json", f"FROM read_json('{file}', columns = {{amount: 'DECIMAL(38, 2)'}})"),
    ("from_json", f"""SELECT from_json('{{"amount": {number}}}', '{{"amount": "DECIMAL(38, 2)"}}').amount"""),
    ("in quotes", f"""SELECT from_json('{{"amount": "{number}"}}', '{{"amount": "DECIMAL(38, 2)"}}').amount"""),
    ("->> 'amount'", f"""SELECT '{{"amount": {number}}}'::JSON ->> 'amount'"""),
    ("whole number", """SELECT from_json('{"n": 12345678901234567890123}', '{"n": "DECIMAL(38, 0)"}').n"""),
):
    print(f"{title}: {duckdb.sql(sql).fetchone()[0]}")
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
CAST of the text: 12345678901234567.89
read_json: 12345678901234567.68
from_json: 12345678901234567.68
in quotes: 12345678901234567.89
->> 'amount': 12345678901234568.0
whole number: 12345678901234567890123
SEEN
