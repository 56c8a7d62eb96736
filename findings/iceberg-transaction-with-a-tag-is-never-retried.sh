#!/usr/bin/env bash
# Iceberg 1.12.0 (Java): a transaction that moves a tag fails as soon as another writer commits anything, a property even.
#
# Expected: it is applied again on the newer metadata, up to commit.retry.num-retries times, and succeeds: nothing of the other
#   commit conflicts with it (Iceberg's documentation, "Reliability", "Concurrent write operations"), as a transaction does
#   that sets a property.
# Seen: CommitFailedException "Table metadata refresh is required", at every try. The operation that moves references keeps the
#   metadata it was made on.
# Exits 0 while this is so. Needs Java 17.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet pyspark==4.1.4

"$work/venv/bin/python" - "$work" >"$work/output" 2>"$work/log" <<'PY'
import sys

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

work = sys.argv[1]
catalog = "spark.sql.catalog.lake"
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.jars.packages", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0")
    .config(catalog, "org.apache.iceberg.spark.SparkCatalog")
    .config(f"{catalog}.type", "hadoop")
    .config(f"{catalog}.warehouse", f"{work}/lake")
    .getOrCreate()
)
spark.sql("CREATE TABLE lake.n.t (v INT) USING iceberg")
spark.sql("INSERT INTO lake.n.t VALUES (1)")
java = spark._jvm
named = lambda: java.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, "lake.n.t")
head = named().currentSnapshot().snapshotId()


def commit(name, change):
    transaction = named().newTransaction()
    change(transaction)
    named().updateProperties().set("other", name).commit()
    try:
        transaction.commitTransaction()
    except Py4JJavaError as error:
        return error.java_exception.toString()
    return "committed"


print("property:", commit("a", lambda t: t.updateProperties().set("ours", "1").commit()))
print("tag:", commit("b", lambda t: t.manageSnapshots().createTag("ours", head).commit()))
print("tags:", *sorted(r.name for r in spark.sql("SELECT name FROM lake.n.t.refs").collect()))
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
property: committed
tag: org.apache.iceberg.exceptions.CommitFailedException: Table metadata refresh is required
tags: main
SEEN
