#!/usr/bin/env bash
# ClickHouse 26.9 (chdb 4.4.0): an Avro decimal in a fixed of more bytes than its digits need is an error.
#
# Expected: 1.27. Avro's decimal is two's complement in a fixed of any size that is large enough (specification, Logical
# Types: Decimal), and writers with one size for all precisions make such files. fastavro reads it.
# Seen: nine digits in five bytes cannot be parsed, in four they can.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet chdb==4.4.0 chdb-core==26.9.0 fastavro==1.13.1 pyarrow==25.0.1

cd "$work"
"$work/venv/bin/python" - >"$work/output" <<'PY'
from decimal import Decimal

import chdb
import fastavro

for size in (4, 5):
    amount = {"type": "fixed", "name": "F", "size": size, "logicalType": "decimal", "precision": 9, "scale": 2}
    schema = {"type": "record", "name": "R", "fields": [{"name": "amount", "type": amount}]}
    with open(f"{size}.avro", "wb") as file:
        fastavro.writer(file, fastavro.parse_schema(schema), [{"amount": Decimal("1.27")}])
    with open(f"{size}.avro", "rb") as file:
        print(size, "fastavro", [str(row["amount"]) for row in fastavro.reader(file)])
    try:
        print(size, "ClickHouse", str(chdb.query(f"SELECT amount FROM file('{size}.avro', 'Avro')")).strip())
    except Exception as error:
        print(size, "ClickHouse", str(error).split("Exception: ")[1].split(":")[0])
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
4 fastavro ['1.27']
4 ClickHouse 1.27
5 fastavro ['1.27']
5 ClickHouse Cannot parse type Decimal(9, 2), expected non-empty binary data with size equal to or less than 4, got 5
SEEN
