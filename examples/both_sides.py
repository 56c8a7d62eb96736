"""How many rows of one table are in Iceberg and how many in Kafka: one answer, of one moment.

    python examples/both_sides.py grpc://127.0.0.1:31337

asks a server that has the demo's tables. Without an address it starts ``thermocline demo`` and ends it again: half a minute.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import adbc_driver_flightsql.dbapi as flight_sql

SQL = """SELECT (SELECT count(*) FROM lake.edr."flows$cold") AS iceberg,
                (SELECT count(*) FROM lake.edr."flows$tail") AS kafka, count(*) AS all_rows
         FROM lake.edr.flows"""


def main(address: str) -> None:
    with flight_sql.connect(address, autocommit=True) as db, db.cursor() as rows:
        print(rows.execute(SQL).fetch_arrow_table().to_pylist())


@contextlib.contextmanager
def demo() -> Iterator[str]:
    """Run the demo until its first rows are in Iceberg; yield its address."""
    command = [sys.executable, "-m", "thermocline", "demo", "--seconds", "600"]
    print("starting Kafka, Iceberg, Spark and a server …", file=sys.stderr)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            lines = iter(process.stdout or ())
            address = next(word for line in lines for word in line.split() if "grpc://" in word)
            next(line for line in lines if ".flows: " in line and " 0 cold" not in line)
            yield address
        finally:
            process.terminate()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with demo() as started:
            main(started)
