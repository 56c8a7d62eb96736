#!/usr/bin/env bash
# Apache avro 1.12.2 for Python has another fingerprint than the specification for each schema with a logical type.
#
# Expected: one fingerprint in all libraries. Parsing Canonical Form (specification 1.12) strips `logicalType` and then
#   says under [PRIMITIVES]: "Convert primitive schemas to their simple form (e.g., int instead of {"type":"int"})".
#   So a date is "int". fastavro gives that.
# Seen: {"type":"int"} stays, while a plain {"type":"int"} becomes "int". Two schemas that differ in nothing that the
#   canonical form keeps have two fingerprints, and a message with such a fingerprint (single-object encoding) is
#   unknown to readers of another library.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet avro==1.12.2 fastavro==1.13.1

"$work/venv/bin/python" - >"$work/output" <<'PY'
import json

import avro.schema
from fastavro.schema import fingerprint, to_parsing_canonical_form

for schema in (
    {"type": "int"},
    {"type": "int", "logicalType": "date"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
):
    parsed = avro.schema.parse(json.dumps(schema))
    canonical = to_parsing_canonical_form(schema)
    print(f"avro     {parsed.fingerprint().hex()} {parsed.canonical_form}")
    print(f"fastavro {fingerprint(canonical, 'CRC-64-AVRO')} {canonical}")
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
avro     8f5c393f1ad57572 "int"
fastavro 8f5c393f1ad57572 "int"
avro     adbf9635b8c70971 {"type":"int"}
fastavro 8f5c393f1ad57572 "int"
avro     2ed03894390068f9 {"type":"bytes"}
fastavro 651920c3da16c04f "bytes"
SEEN
