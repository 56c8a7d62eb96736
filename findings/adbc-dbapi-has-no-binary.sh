#!/usr/bin/env bash
# ADBC 1.13.0: its DBAPI modules have every constructor of PEP 249 (Date, Time, Timestamp and three of ticks) but `Binary`.
#
# Expected: `Binary(string)`, by PEP 249, "Type Objects and Constructors"; the modules say apilevel 2.0.
# Seen: no such name, in any driver's module. What goes by the standard, as SQLAlchemy's LargeBinary, ends in AttributeError.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet adbc-driver-manager==1.13.0 adbc-driver-flightsql==1.13.0 adbc-driver-sqlite==1.13.0 pyarrow==25.0.1

"$work/venv/bin/python" - >"$work/output" <<'PY'
from importlib import import_module

CONSTRUCTORS = "Date", "Time", "Timestamp", "DateFromTicks", "TimeFromTicks", "TimestampFromTicks", "Binary"
for driver in ("adbc_driver_flightsql", "adbc_driver_sqlite"):
    module = import_module(f"{driver}.dbapi")
    print(driver, module.apilevel, [name for name in CONSTRUCTORS if not hasattr(module, name)])
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
adbc_driver_flightsql 2.0 ['Binary']
adbc_driver_sqlite 2.0 ['Binary']
SEEN
