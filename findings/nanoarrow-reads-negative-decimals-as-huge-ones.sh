#!/usr/bin/env bash
# nanoarrow 0.9.0 (Python): a negative decimal becomes a positive number of 37 digits.
#
# Expected: -1.25. Arrow's decimals are two's complement (Columnar format, Decimal layout; Schema.fbs, Decimal).
# Seen: their bytes are taken for an unsigned number, cut to the precision of Python's decimal context besides.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet nanoarrow==0.9.0 pyarrow==25.0.1

"$work/venv/bin/python" - >"$work/output" <<'PY'
from decimal import Decimal

import nanoarrow
import pyarrow as pa

for kind in (pa.decimal128(9, 2), pa.decimal256(9, 2)):
    amounts = pa.array([Decimal("1.25"), Decimal("-1.25")], kind)
    print(amounts.to_pylist(), nanoarrow.Array(amounts).to_pylist())
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
[Decimal('1.25'), Decimal('-1.25')] [Decimal('1.25'), Decimal('3.40282367E+36')]
[Decimal('1.25'), Decimal('-1.25')] [Decimal('1.25'), Decimal('1.15792089E+75')]
SEEN
