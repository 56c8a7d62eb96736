#!/usr/bin/env bash
# DuckDB's Iceberg extension over a REST catalog does not look at current-snapshot-id (1.5.0, 1.5.5; 1.4.4 did).
#
# Expected: the snapshot that `current-snapshot-id` names, which "must be the same as the current ID of the main branch in
#   refs" (Iceberg specification, "Table Metadata Fields"), whatever its time. pyiceberg reads that.
# Seen: 1.5.0 reads the newest snapshot listed, so it undoes a rollback and reads the head of another branch. 1.5.5
#   reads the last entry of `snapshot-log` instead. Both compare with their own clock and pass over a commit by a
#   machine whose clock is a minute ahead. AT (TIMESTAMP) from before the table: an error, 0 rows in 1.5.5.
# Exits 0 while this is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/run.py" <<'PY'
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import duckdb
import pyarrow as pa
from pyiceberg.catalog import load_catalog

folder = sys.argv[1]
catalog = load_catalog("c", type="sql", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
catalog.create_namespace("n")
row = pa.table({"x": [1]})
tables = {name: catalog.create_table(f"n.{name}", schema=row.schema) for name in ("rolled_back", "branch", "ahead")}
for name, table in tables.items():
    table.append(row)
    first = table.current_snapshot().snapshot_id
    if name == "branch":
        table.manage_snapshots().create_branch(first, "audit").commit()
    time.sleep(0.1)
    table.append(row, branch="audit" if name == "branch" else "main")
    if name == "rolled_back":
        time.sleep(0.1)
        table.manage_snapshots().rollback_to_snapshot(first).commit()

files = {name: catalog.load_table(f"n.{name}").metadata_location for name in tables}
metadata = {name: json.loads(Path(file.removeprefix("file://")).read_text()) for name, file in files.items()}
for entry in (metadata["ahead"]["snapshots"][-1], metadata["ahead"]["snapshot-log"][-1]):
    entry["timestamp-ms"] += 60_000
metadata["ahead"]["last-updated-ms"] += 60_000


class Catalog(BaseHTTPRequestHandler):
    def do_GET(self):
        parent, name = self.path.split("?")[0].split("/")[-2:]
        answer = {"defaults": {}, "overrides": {}, "namespaces": [["n"]], "namespace": ["n"], "properties": {}}
        if name == "tables":
            answer = {"identifiers": [{"namespace": ["n"], "name": n} for n in tables]}
        if parent == "tables":
            answer = {"metadata-location": files[name], "metadata": metadata[name], "config": {}}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Catalog)
threading.Thread(target=server.serve_forever, daemon=True).start()
connection = duckdb.connect()
for name in ("avro", "httpfs", "iceberg"):
    extension = Path(__import__(f"duckdb_extension_{name}").__file__).parent
    connection.load_extension(str(next(extension.rglob("*.duckdb_extension"))))
address = f"http://127.0.0.1:{server.server_port}"
connection.execute(f"ATTACH '' AS c (TYPE iceberg, ENDPOINT '{address}', AUTHORIZATION_TYPE 'none')")
for name, table in tables.items():
    rows = connection.execute(f"SELECT count(*) FROM c.n.{name}").fetchone()[0]
    print(f"DuckDB {duckdb.__version__} {name}: {rows}, pyiceberg {catalog.load_table(f'n.{name}').scan().to_arrow().num_rows}")
try:
    before = "AT (TIMESTAMP => TIMESTAMP '2020-01-01 00:00:00')"
    print(f"  in 2020: {connection.execute(f'SELECT count(*) FROM c.n.rolled_back {before}').fetchone()[0]} rows")
except duckdb.Error as e:
    print("  in 2020:", e)
PY
for version in 1.4.4 1.5.0 1.5.5; do
  mkdir "$work/$version"
  python3 -m venv "$work/$version/venv"
  "$work/$version/venv/bin/pip" install --quiet duckdb==$version duckdb-extension-{avro,httpfs,iceberg}==$version \
    'pyiceberg[sql-sqlite,pyarrow]==0.12.0'
  "$work/$version/venv/bin/python" "$work/run.py" "$work/$version" >>"$work/output"
done
cat "$work/output"
diff "$work/output" - <<'SEEN'
DuckDB 1.4.4 rolled_back: 1, pyiceberg 1
DuckDB 1.4.4 branch: 1, pyiceberg 1
DuckDB 1.4.4 ahead: 2, pyiceberg 2
  in 2020: Could not find latest snapshots for timestamp 2020-01-01 00:00:00
DuckDB 1.5.0 rolled_back: 2, pyiceberg 1
DuckDB 1.5.0 branch: 2, pyiceberg 1
DuckDB 1.5.0 ahead: 1, pyiceberg 2
  in 2020: Could not find latest snapshots for timestamp 2020-01-01 00:00:00
DuckDB 1.5.5 rolled_back: 1, pyiceberg 1
DuckDB 1.5.5 branch: 1, pyiceberg 1
DuckDB 1.5.5 ahead: 1, pyiceberg 2
  in 2020: 0 rows
SEEN
