#!/usr/bin/env bash
# confluent-kafka 2.16.1: ProtobufDeserializer(Payment) returns a Payment for a record that says it is a Refund.
#
# Expected: an error. The wire format has a message index ("Wire format", Confluent's docs) that says which message of
#   the schema the record is. One topic may hold several (RecordNameStrategy).
# Seen: the index is read and skipped. The bytes are parsed as whatever class the reader was made for; where field
#   numbers and types agree, the result looks right, with a registry or without.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet confluent-kafka==2.16.1 protobuf==7.36.2 grpcio-tools==1.85.1 \
  googleapis-common-protos==1.76.0 attrs==26.1.0 authlib==1.9.10 cachetools==8.0.2 \
  certifi httpx2==2.16.2
cat >"$work/ledger.proto" <<'PROTO'
syntax = "proto3";
message Payment { int64 account = 1; int64 cents = 2; }
message Refund { int64 account = 1; int64 cents = 2; }
PROTO
"$work/venv/bin/python" -m grpc_tools.protoc -I"$work" --python_out="$work" "$work/ledger.proto"

PYTHONPATH="$work" "$work/venv/bin/python" - >"$work/output" <<'PY'
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from ledger_pb2 import Payment, Refund

registry = SchemaRegistryClient.new_client({"url": "mock://registry"})
context = SerializationContext("ledger", MessageField.VALUE)
record = ProtobufSerializer(Refund, registry)(Refund(account=7, cents=500), context)
print("index in the record:", record[5:7].hex(" "))
for options in ({"schema_registry_client": registry}, {}):
    value = ProtobufDeserializer(Payment, **options)(record, context)
    print(f"read as {type(value).__name__}: account {value.account}, cents {value.cents}")
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
index in the record: 02 02
read as Payment: account 7, cents 500
read as Payment: account 7, cents 500
SEEN
