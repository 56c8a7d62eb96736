#!/usr/bin/env bash
# Apache avro 1.12.2 for Python writes Decimal("5") into decimal(9, 2) as 0.05, and Decimal("1E+3") as 0.01.
#
# Expected: the same bytes for equal numbers. The specification (1.12, "Decimal") stores "the two's-complement
#   representation of the unscaled integer value" at the schema's scale, so 5 is 500 = 01 f4. fastavro does that.
# Seen: the digits of the Python object are written as they are. Digits that the scale lacks are refused, digits that
#   the object lacks are not filled in: no error, and another amount.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet avro==1.12.2 fastavro==1.13.1

"$work/venv/bin/python" - >"$work/output" <<'PY'
import io
import json
from decimal import Decimal

import avro.io
import avro.schema
import fastavro

money = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
apache, fast = avro.schema.parse(json.dumps(money)), fastavro.parse_schema(money)


def read(data: bytes) -> Decimal:
    return avro.io.DatumReader(apache).read(avro.io.BinaryDecoder(io.BytesIO(data)))


for text in ("5.00", "5.0", "5", "-5", "1E+3"):
    a, f = io.BytesIO(), io.BytesIO()
    avro.io.DatumWriter(apache).write(Decimal(text), avro.io.BinaryEncoder(a))
    fastavro.schemaless_writer(f, fast, Decimal(text))
    print(f"{text}: avro {read(a.getvalue())}, fastavro {read(f.getvalue())}")
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
5.00: avro 5.00, fastavro 5.00
5.0: avro 0.50, fastavro 5.00
5: avro 0.05, fastavro 5.00
-5: avro -0.05, fastavro -5.00
1E+3: avro 0.01, fastavro 1000.00
SEEN
