#!/usr/bin/env bash
# confluent-kafka 2.16.1: AvroSerializer with the schema "bytes" sends the bytes without Avro's length before them.
#
# Expected: magic byte 0, the schema's id in four bytes, then an Avro datum (Confluent's wire format). Avro's
#   specification (1.12, "Primitive Types"): "bytes are encoded as a long followed by that many bytes of data". With
#   the schema "string" it is so.
# Seen: for "bytes" the payload follows as it is. AvroDeserializer undoes it, an Avro library does not: it takes the first
#   byte of the payload for a length and returns a piece of it, here without an error. An empty payload cannot be read
#   back by AvroDeserializer itself.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet confluent-kafka==2.16.1 fastavro==1.13.1 attrs==26.1.0 authlib==1.9.10 cachetools==8.0.2 \
  certifi httpx2==2.16.2

"$work/venv/bin/python" - >"$work/output" <<'PY'
import io

import fastavro
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError

for schema, value in (('"string"', "\x06abcdef"), ('"bytes"', b"\x06abcdef"), ('"bytes"', b"")):
    registry = SchemaRegistryClient.new_client({"url": "mock://registry"})
    context = SerializationContext("topic", MessageField.VALUE)
    message = AvroSerializer(registry, schema)(value, context)
    print(f"{schema} {value!r} -> {message[5:]!r} after the id")
    try:
        print("  AvroDeserializer", AvroDeserializer(registry)(message, context))
    except SerializationError as e:
        print("  AvroDeserializer", str(e).split(" but ")[0])
    if message[5:]:
        print("  fastavro", fastavro.schemaless_reader(io.BytesIO(message[5:]), fastavro.parse_schema(schema.strip('"'))))
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
"string" '\x06abcdef' -> b'\x0e\x06abcdef' after the id
  AvroDeserializer abcdef
  fastavro abcdef
"bytes" b'\x06abcdef' -> b'\x06abcdef' after the id
  AvroDeserializer b'\x06abcdef'
  fastavro b'abc'
"bytes" b'' -> b'' after the id
  AvroDeserializer Expecting data framing of length 6 bytes or more
SEEN
