#!/usr/bin/env bash
# Kafka Connect 4.3.1, JsonConverter with schemas: NaN and the infinities that it wrote itself are read back as 0.0.
#
# Expected: the same double, which Connect's own data model holds; or DataException, as for other values that do not fit a schema.
# Seen: it writes {"schema":{"type":"double",...},"payload":"NaN"}, as a text, and takes a text where the schema says a number for
#   0.0. A whole number that another program wrote as a text, as JavaScript's do above 2^53, is 0; one beyond its type wraps.
# Exits 0 while this is so. Needs Java 17.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet pyspark==4.1.4

"$work/venv/bin/python" >"$work/output" 2>"$work/log" <<'PY'
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.jars.packages", "org.apache.kafka:connect-json:4.3.1")
    .getOrCreate()
)
java = spark._jvm
nothing = lambda kind: spark.sparkContext._gateway.new_array(kind, 0)
loader = java.java.lang.Thread.currentThread().getContextClassLoader()
schema = java.org.apache.kafka.connect.data.Schema.FLOAT64_SCHEMA
kind = loader.loadClass("org.apache.kafka.connect.json.JsonConverter")
one = kind.getDeclaredConstructor(nothing(java.java.lang.Class)).newInstance(nothing(java.java.lang.Object))
one.configure({"schemas.enable": "true"}, False)

for value in (1.5, float("nan"), float("-inf")):
    written = one.fromConnectData("topic", schema, value)
    print(bytes(written).decode(), "->", one.toConnectData("topic", written).value())
for text in (
    b'{"schema":{"type":"int64"},"payload":"9007199254740993"}',
    b'{"schema":{"type":"int32"},"payload":3000000000}',
    b'{"schema":{"type":"int32"},"payload":2.9}',
):
    print(text.decode(), "->", one.toConnectData("topic", text).value())
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
{"schema":{"type":"double","optional":false},"payload":1.5} -> 1.5
{"schema":{"type":"double","optional":false},"payload":"NaN"} -> 0.0
{"schema":{"type":"double","optional":false},"payload":"-Infinity"} -> 0.0
{"schema":{"type":"int64"},"payload":"9007199254740993"} -> 0
{"schema":{"type":"int32"},"payload":3000000000} -> -1294967296
{"schema":{"type":"int32"},"payload":2.9} -> 2
SEEN
