#!/usr/bin/env bash
# protarrow 0.16.0: a negative Duration that went to Arrow and back has seconds and nanos of different signs.
#
# Expected: -1 s and -500,000,000 ns, as it was (duration.proto: nanos must be of the same sign as seconds).
# Seen: -2 s and +500,000,000 ns: the same time by the sum, but protobuf's own JSON refuses it.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet protarrow==0.16.0 protobuf==6.33.1 pyarrow==25.0.1

"$work/venv/bin/python" - >"$work/output" <<'PY'
import protarrow
from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory

file = descriptor_pb2.FileDescriptorProto(name="m.proto", syntax="proto3")
file.dependency.append("google/protobuf/duration.proto")
field = file.message_type.add(name="M").field.add(name="took", number=1, type=11, label=1)
field.type_name = ".google.protobuf.Duration"
pool = descriptor_pool.Default()
pool.Add(file)
message = message_factory.GetMessageClass(pool.FindMessageTypeByName("M"))

before = message(took=duration_pb2.Duration(seconds=-1, nanos=-500_000_000))
table = protarrow.messages_to_table([before], message)
(after,) = protarrow.table_to_messages(table, message)
for each in (before, after):
    try:
        text = each.took.ToJsonString()
    except ValueError as error:
        text = error
    print(each.took.seconds, each.took.nanos, text)
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
-1 -500000000 -1.500s
-2 500000000 Duration is not valid: Sign mismatch.
SEEN
