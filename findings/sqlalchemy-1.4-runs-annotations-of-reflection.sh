#!/usr/bin/env bash
# SQLAlchemy 1.4.54: a dialect whose reflection method is annotated `-> list[str]` cannot be imported, if the module
# postpones its annotations.
#
# Expected: `from __future__ import annotations` leaves them as text that is not run (PEP 563).
# Seen: `reflection.cache` writes the text into the source of a wrapper and runs that: SyntaxError. 2.0.45 imports it.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/dialect.py" <<'PY'
from __future__ import annotations

from sqlalchemy.engine import default, reflection


class Dialect(default.DefaultDialect):
    @reflection.cache
    def get_schema_names(self, connection: object, **kw: object) -> list[str]:
        return []
PY
for version in 1.4.54 2.0.45; do
  python3 -m venv "$work/$version"
  "$work/$version/bin/pip" install --quiet "sqlalchemy==$version"
  (cd "$work" && "$work/$version/bin/python" - "$version" >>"$work/output") <<'PY'
import sys

try:
    import dialect
    print(sys.argv[1], "imported", dialect.Dialect.__name__)
except Exception as error:
    print(sys.argv[1], type(error).__name__)
PY
done
cat "$work/output"
diff "$work/output" - <<'SEEN'
1.4.54 SyntaxError
2.0.45 imported Dialect
SEEN
