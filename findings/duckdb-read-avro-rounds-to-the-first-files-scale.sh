#!/usr/bin/env bash
# DuckDB 1.5.5: read_avro of two files whose decimals differ in scale rounds the values of the second, without a word.
#
# Expected: 1.2345, as a wider decimal, or an error. That is what reading each file by itself and UNION ALL gives: DuckDB
#   takes the wider type there.
# Seen: the first file gives the type, so 1.2345 is 1.23 after a file of scale 2. The order of the names decides.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet duckdb==1.5.5 duckdb-extension-avro==1.5.5 fastavro==1.13.1

"$work/venv/bin/python" - "$work" >"$work/output" <<'PY'
import sys
from decimal import Decimal
from pathlib import Path

import duckdb
import duckdb_extension_avro
import fastavro

work = Path(sys.argv[1])
for name, scale, value in (("a", 2, "1.25"), ("b", 4, "1.2345")):
    money = {"type": "fixed", "name": "m", "size": 8, "logicalType": "decimal", "precision": 18, "scale": scale}
    schema = {"type": "record", "name": "r", "fields": [{"name": "amount", "type": money}]}
    with (work / f"{name}.avro").open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(schema), [{"amount": Decimal(value)}])

connection = duckdb.connect()
[extension] = Path(duckdb_extension_avro.__file__).parent.rglob("*.duckdb_extension")
connection.load_extension(str(extension))
a, b = f"'{work}/a.avro'", f"'{work}/b.avro'"
for title, source in (
    ("a, b", f"read_avro([{a}, {b}])"),
    ("b, a", f"read_avro([{b}, {a}])"),
    ("union", f"(FROM read_avro({a}) UNION ALL FROM read_avro({b}))"),
):
    rows = connection.execute(f"SELECT amount, typeof(amount) FROM {source} ORDER BY amount").fetchall()
    print(title, *(f"{amount} {kind}" for amount, kind in rows), sep="; ")
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
a, b; 1.23 DECIMAL(18,2); 1.25 DECIMAL(18,2)
b, a; 1.2345 DECIMAL(18,4); 1.2500 DECIMAL(18,4)
union; 1.2345 DECIMAL(20,4); 1.2500 DECIMAL(20,4)
SEEN
