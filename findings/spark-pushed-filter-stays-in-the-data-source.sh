#!/usr/bin/env bash
# Spark 4.1.4: a filter pushed into a Python data source stays there and is in force in the DataFrame's next query.
#
# Expected: the filter of one query ends with it. A reader may apply what it is pushed, and yields the rest to Spark (docs of
#   DataSourceReader.pushFilters, whose own example keeps the filters on self).
# Seen: after `where id = 1`, count() of everything is 1, and the union of two conditions has one of them twice. No
#   error, no warning. spark.sql.python.filterPushdown.enabled has to be set for it. Needs Java 17.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet pyspark==4.1.4 pyarrow==26.0.1
cd "$work"

PYSPARK_PYTHON="$work/venv/bin/python" "$work/venv/bin/python" - >"$work/output" <<'PY'
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo


class Reader(DataSourceReader):
    def __init__(self):
        self.ids = [1, 2, 3, 10]

    def pushFilters(self, filters):
        for f in filters:
            if isinstance(f, EqualTo) and f.attribute == ("id",):
                self.ids = [i for i in self.ids if i == f.value]
            else:
                yield f

    def read(self, partition):
        yield from ((i,) for i in self.ids)


class Ids(DataSource):
    @classmethod
    def name(cls):
        return "ids"

    def schema(self):
        return "id int"

    def reader(self, schema):
        return Reader()


builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.sql.python.filterPushdown.enabled", "true").getOrCreate()
spark.dataSource.register(Ids)

frame = spark.read.format("ids").load()
print("count before", frame.count())
print("where id = 1", [row.id for row in frame.where("id = 1").collect()])
print("count after", frame.count())

frame = spark.read.format("ids").load()
print("id = 1 or 10", [row.id for row in frame.where("id = 1").union(frame.where("id = 10")).collect()])
PY
cat "$work/output"
diff "$work/output" - <<'SEEN'
count before 4
where id = 1 [1]
count after 1
id = 1 or 10 [10, 10]
SEEN
