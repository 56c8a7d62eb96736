#!/usr/bin/env bash
# Kafka Connect 4.3.1, JsonConverter with schemas.enable=false: a delete becomes the four bytes "null" where the record kept its schema.
#
# Expected: a value of NULL is a NULL value of the record, a tombstone, which log compaction removes its key by, as StringConverter
#   and, without a schema, JsonConverter itself have it.
# Seen: b"null". A compacted topic keeps it as the newest value of its key for ever. Transformations that take a row out of its
#   event (Debezium's ExtractNewRecordState) set the value to NULL and leave its schema.
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
schemas = java.org.apache.kafka.connect.data
row = schemas.SchemaBuilder.struct().optional().field("id", schemas.Schema.INT64_SCHEMA).build()


def converter(kind, **settings):
    one = loader.loadClass(kind).getDeclaredConstructor(nothing(java.java.lang.Class)).newInstance(nothing(java.java.lang.Object))
    one.configure({name.replace("_", "."): text for name, text in settings.items()}, False)
    return one


json = "org.apache.kafka.connect.json.JsonConverter"
string = "org.apache.kafka.connect.storage.StringConverter"
for name, one in (("JSON", converter(json, schemas_enable="false")), ("text", converter(string))):
    for what, schema in (("no schema", None), ("schema", row)):
        value = one.fromConnectData("topic", schema, None)
        print(f"{name}, {what}:", None if value is None else bytes(value))
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
JSON, no schema: None
JSON, schema: b'null'
text, no schema: None
text, schema: None
SEEN
