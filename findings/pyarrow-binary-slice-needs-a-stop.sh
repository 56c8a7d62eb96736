#!/usr/bin/env bash
# pyarrow 26.0.1: binary_slice without `stop` raises "Negative buffer resize" for an even number of values.
#
# Expected: each value from `start` on: "If not given, slicing will stop at the end" (docs of pyarrow.compute.binary_slice).
#   utf8_slice_codeunits does that.
# Seen: right for 1 and 3 values, ArrowInvalid for 2 and 4. A stop of 2**31 - 1 helps.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet pyarrow==26.0.1

"$work/venv/bin/python" - "$work" >"$work/output" <<'PY'
import pyarrow as pa
import pyarrow.compute as pc

for count in (1, 2, 3, 4):
    values = pa.array([b"12345body"] * count)
    for options in ({}, {"stop": 2**31 - 1}):
        try:
            print(count, options, pc.binary_slice(values, 5, **options)[-1])
        except pa.ArrowInvalid as e:
            print(count, options, e)
print("utf8", pc.utf8_slice_codeunits(pa.array(["12345body"] * 2), 5).to_pylist())
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
1 {} b'body'
1 {'stop': 2147483647} b'body'
2 {} Negative buffer resize: -12
2 {'stop': 2147483647} b'body'
3 {} b'body'
3 {'stop': 2147483647} b'body'
4 {} Negative buffer resize: -24
4 {'stop': 2147483647} b'body'
utf8 ['body', 'body']
SEEN
