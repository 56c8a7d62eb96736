"""What ``thermocline_client`` adds to the bare ADBC driver: a million rows to pandas, one row, the first answer after connecting.

    python -m benchmarks.python_client

Processor time of this process, the server being another one: a machine that does other things changes it little.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import adbc_driver_flightsql.dbapi as flight_sql
import pandas  # noqa: F401 - loaded before anything is timed

import thermocline_client

MANY = "SELECT range AS id, range % 1000 AS port, range * 0.5 AS bytes, 'tcp' AS protocol FROM range(1000000)"
ONE = "SELECT 1 AS n"
ROUNDS, SHORT_ROUNDS = 7, 200

_SERVER = """
import sys
from tests.fixtures.server import serving, settings_of, sqlite_catalog
from pathlib import Path
with serving(settings_of({"lake": sqlite_catalog(Path(sys.argv[1]))}, {})) as server:
    print('port', server.port, flush=True)
    sys.stdin.read()
"""


@contextmanager
def server_elsewhere() -> Iterator[str]:
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            [sys.executable, "-c", _SERVER, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stdin is not None
        port = next(line.split()[1] for line in process.stdout if line.startswith("port "))
        yield f"grpc://127.0.0.1:{port}"
        process.stdin.close()


def cost(work: Callable[[], object]) -> tuple[float, float]:
    """Processor and wall time, in ms."""
    processor_s, wall_s = time.process_time(), time.perf_counter()
    work()
    return 1_000 * (time.process_time() - processor_s), 1_000 * (time.perf_counter() - wall_s)


def compare(
    name: str, ours: Callable[[], object], bare: Callable[[], object], rounds: int
) -> None:
    """In turns, so that both meet the same machine; medians."""
    ours(), bare()
    pairs = [(cost(ours), cost(bare)) for _ in range(rounds)]
    for index, what in enumerate(("processor", "wall")):
        our, their = (statistics.median(pair[side][index] for pair in pairs) for side in (0, 1))
        print(
            f"{name:24} {what:9} ours {our:8.2f} ms  bare {their:8.2f} ms  {our / their:5.2f}  {our - their:+.2f} ms"
        )


def imported() -> None:
    """Time and memory of the import alone, in a new process; the median of five."""
    program = (
        "import re, time; began = time.process_time(); import thermocline_client;"
        "print(time.process_time() - began, re.search(r'VmRSS:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    )
    done = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(5)
    ]
    seconds, kib = (statistics.median(float(each[index]) for each in done) for index in (0, 1))
    print(
        f"import                   processor {1_000 * seconds:.0f} ms, {kib / 1_024:.0f} MB in all"
    )


def main() -> None:
    imported()
    with server_elsewhere() as uri, thermocline_client.connect(uri) as lake:
        with flight_sql.connect(uri, autocommit=True) as connection:

            def bare(sql: str) -> object:
                with connection.cursor() as cursor:
                    cursor.execute(sql)
                    return cursor.fetch_df()

            compare(
                "1,000,000 rows, pandas",
                lambda: lake.ask(MANY).pandas(),
                lambda: bare(MANY),
                ROUNDS,
            )
            compare(
                "one row, pandas",
                lambda: lake.ask(ONE).pandas(),
                lambda: bare(ONE),
                SHORT_ROUNDS,
            )

        def first() -> object:
            with thermocline_client.connect(uri) as new:
                return new.ask(ONE).arrow()

        def first_bare() -> object:
            with flight_sql.connect(uri, autocommit=True) as new, new.cursor() as cursor:
                cursor.execute(ONE)
                return cursor.fetch_arrow_table()

        compare("first after connecting", first, first_bare, SHORT_ROUNDS)


if __name__ == "__main__":
    main()
