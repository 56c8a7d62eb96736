#!/usr/bin/env bash
# Spark 4.1.4: a table made by CREATE TABLE ... USING a Python data source reads with empty options.
#
# Expected: the options of the statement, as load() and CREATE TEMPORARY VIEW give them ("OPTIONS: options of the data
#   source which will be injected to storage properties", Spark SQL reference, CREATE DATASOURCE TABLE).
# Seen: the statement succeeds, and the reader gets no option at all: it reads by its defaults, silently. Needs Java 17.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet pyspark==4.1.4 pyarrow==26.0.1
cd "$work"

PYSPARK_PYTHON="$work/venv/bin/python" "$work/venv/bin/python" - >"$work/output" <<'PY'
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader


class Reader(DataSourceReader):
    def __init__(self, region):
        self.region = region

    def read(self, partition):
        yield (self.region,)


class Orders(DataSource):
    @classmethod
    def name(cls):
        return "orders"

    def schema(self):
        return "region string"

    def reader(self, schema):
        return Reader(self.options.get("region", "the default"))


spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.dataSource.register(Orders)

spark.sql("CREATE TEMPORARY VIEW v USING orders OPTIONS (region 'north')")
spark.sql("CREATE TABLE t USING orders OPTIONS (region 'north')")
for title, frame in (
    ("load()", spark.read.format("orders").option("region", "north").load()),
    ("view", spark.table("v")),
    ("table", spark.table("t")),
):
    print(title, frame.first().region)
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
load() north
view north
table the default
SEEN
