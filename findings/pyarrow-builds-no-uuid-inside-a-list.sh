#!/usr/bin/env bash
# pyarrow 26.0.1: no array of a type with a uuid inside a list, a struct or a map is built from Python values, not even an empty one.
#
# Expected: what to_pylist gives of such an array makes it again, as it does for a column of uuids itself; at the least that an
#   empty list makes an empty array (pyarrow's documentation, "Extending PyArrow", "Canonical extension types").
# Seen: ArrowNotImplementedError "extension" for any values, none and NULL too, while pa.nulls and arrays put together from
#   their storage are there, and are written to Parquet and read back as such.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet pyarrow==26.0.1

"$work/venv/bin/python" >"$work/output" <<'PY'
import uuid

import pyarrow as pa
import pyarrow.parquet as pq

ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([uuid.UUID(int=1).bytes], pa.binary(16)))
lists = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), ids)
structs = pa.StructArray.from_arrays([ids], ["id"])
maps = pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["a"]), ids)
sink = pa.BufferOutputStream()
pq.write_table(pa.table({"lists": lists}), sink)
read = pq.read_table(pa.BufferReader(sink.getvalue())).column("lists")


def made(values, kind):
    try:
        return f"{len(pa.array(values, kind))} values"
    except Exception as error:
        return f"{type(error).__name__} {error}"


print("uuid, again:", made(ids.to_pylist(), ids.type))
for array in (lists, structs, maps):
    name = str(array.type).partition("<")[0]
    again = made(array.to_pylist(), array.type)
    print(f"{name}, again: {again}; none: {made([], array.type)}; NULL: {made([None], array.type)}")
    print(f"{name}, by pa.nulls: {len(pa.nulls(2, array.type))} values")
print("list, from Parquet:", read.type == lists.type, "; again:", made(read.to_pylist(), read.type))
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
uuid, again: 1 values
list, again: ArrowNotImplementedError extension; none: ArrowNotImplementedError extension; NULL: ArrowNotImplementedError extension
list, by pa.nulls: 2 values
struct, again: ArrowNotImplementedError extension; none: ArrowNotImplementedError extension; NULL: ArrowNotImplementedError extension
struct, by pa.nulls: 2 values
map, again: ArrowNotImplementedError extension; none: ArrowNotImplementedError extension; NULL: ArrowNotImplementedError extension
map, by pa.nulls: 2 values
list, from Parquet: True ; again: ArrowNotImplementedError extension
SEEN
