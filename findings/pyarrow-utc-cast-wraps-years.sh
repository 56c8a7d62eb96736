#!/usr/bin/env bash
# pyarrow 26.0.1: a UTC timestamp of the year 58,877 is cast to the text of another year, -6657.
#
# Expected: the marker that a timestamp without zone gives, "<value out of range: ...>", or an error. Type timestamp holds
#   64 bits of microseconds, years up to 294,247 (Arrow's Schema.fbs), and that zone is UTC changes no digit.
# Seen: the year wraps at 16 bits, in text if there is a zone and in year() always: 65,536 years away. Such values are
#   nanoseconds taken for microseconds, and some show a plausible year, here 3931 for 69467.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet pyarrow==26.0.1

"$work/venv/bin/python" - "$work" >"$work/output" <<'PY'
import pyarrow as pa
import pyarrow.compute as pc

for micros in (1_795_883_856_000_000, 1_795_883_856_000_000_000, 2_130_000_000_000_000_000):
    value = pa.array([micros])
    for zone in (None, "UTC"):
        stamp = value.cast(pa.timestamp("us", zone))
        print(zone, stamp.cast(pa.string())[0], "year", pc.year(stamp)[0])
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
None 2026-11-28 16:37:36.000000 year 2026
UTC 2026-11-28 16:37:36.000000Z year 2026
None <value out of range: 1795883856000000000> year -6657
UTC -6657-04-17 18:40:00.000000Z year -6657
None <value out of range: 2130000000000000000> year 3931
UTC 3931-01-05 18:40:00.000000Z year 3931
SEEN
