#!/usr/bin/env bash
# DuckDB 2.0.1: in list_transform(l, lambda e: e.a), e is the element, unless the table has a column e: then e.a is that column's.
#
# Expected: the element in both. A parameter hides a column of its name, as a bare e shows in the same lambda.
# Seen: with a struct column e its member a comes back for each element, and a filter keeps what it should leave out. With a number e
#   the statement is an error. struct_extract(e, 'a') is right. 1.5.5 does the same.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet duckdb==2.0.1

"$work/venv/bin/python" - >"$work/output" <<'PY'
import duckdb

for other in ("NULL AS f", "{'a': 99} AS e", "7 AS e"):
    print(other)
    for body in ("list_transform(l, lambda e: e)", "list_transform(l, lambda e: e.a)",
                 "list_transform(l, lambda e: struct_extract(e, 'a'))", "list_filter(l, lambda e: e.a > 1)"):
        try:
            ((value,),) = duckdb.sql(f"SELECT {body} FROM (SELECT [{{'a': 1}}, {{'a': 2}}] AS l, {other})").fetchall()
        except duckdb.BinderException as error:
            value = str(error).split(" from ")[0]
        print(" ", body, value)
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
NULL AS f
  list_transform(l, lambda e: e) [{'a': 1}, {'a': 2}]
  list_transform(l, lambda e: e.a) [1, 2]
  list_transform(l, lambda e: struct_extract(e, 'a')) [1, 2]
  list_filter(l, lambda e: e.a > 1) [{'a': 2}]
{'a': 99} AS e
  list_transform(l, lambda e: e) [{'a': 1}, {'a': 2}]
  list_transform(l, lambda e: e.a) [99, 99]
  list_transform(l, lambda e: struct_extract(e, 'a')) [1, 2]
  list_filter(l, lambda e: e.a > 1) [{'a': 1}, {'a': 2}]
7 AS e
  list_transform(l, lambda e: e) [{'a': 1}, {'a': 2}]
  list_transform(l, lambda e: e.a) Binder Error: Cannot extract field 'a'
  list_transform(l, lambda e: struct_extract(e, 'a')) [1, 2]
  list_filter(l, lambda e: e.a > 1) Binder Error: Cannot extract field 'a'
SEEN
