"""A server process that the kernel keeps from all files it does not need: tried from within, without any other wall."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog

from proxy.process.landlock import NoLandlock, version
from tests.fixtures.certificates import Authority
from tests.fixtures.server import settings_of, sqlite_catalog
from tests.harness.configurations import write_locked_configuration
from tests.harness.server_process import ServerProcess
from thermocline.config.settings import load
from thermocline.doctor.machine import file_system_lock
from thermocline.serve.assembly import running_server
from thermocline.serve.sandbox import confined

MARK = "do-not-read-me"

try:
    ABI = version()
except NoLandlock as error:
    pytest.skip(f"a kernel with Landlock: {error}", allow_module_level=True)

#: Is ``thermocline serve``, and tries what statements must never do once it serves: in Python, in a program, and in a
#: DuckDB that nobody has locked. Prints what came of it, and stops.
INSIDE = """
import contextlib, json, os, signal, subprocess, sys, threading
from pathlib import Path
from thermocline.cli import main
from thermocline.commands import serve

tries = json.loads(sys.argv[2])
came = {}
started = serve._started

def attempt(name, work):
    try:
        came[name] = str(work())
    except Exception as error:
        came[name] = f"{type(error).__name__}: {error}"

def all_of_them():
    import duckdb
    for path in tries["read"]:
        attempt(f"open {path}", lambda: len(Path(path).read_bytes()))
        attempt(f"duckdb {path}", lambda: duckdb.sql(f"SELECT size FROM read_text('{path}')").fetchall())
    for path in tries["write"]:
        attempt(f"write {path}", lambda: Path(path).write_text("x"))
        attempt(f"append {path}", lambda: open(path, "a").close())
        attempt(f"copy {path}", lambda: duckdb.sql(f"COPY (SELECT 1) TO '{path}'"))
    for path in tries["remove"]:
        attempt(f"remove {path}", lambda: os.unlink(path))
    for path in tries["run"]:
        attempt(f"run {path}", lambda: subprocess.run([path], check=True))
    for path in tries["scan"]:
        attempt(f"scan {path}", lambda: duckdb.sql(f"SELECT count(*) FROM '{path}'").fetchall())
    scratch = Path(os.environ["TMPDIR"], "spilled")
    attempt("scratch", lambda: scratch.write_text("x"))
    spilling = duckdb.connect(config={"memory_limit": "50MB", "threads": "2", "temp_directory": str(scratch) + "s"})
    attempt("spill", lambda: spilling.execute(
        "SELECT count(*) FROM (SELECT hash(i) h, i FROM range(3000000) t(i) ORDER BY h)").fetchall())

@contextlib.contextmanager
def trying(settings, read, lock, *rest, **others):
    with started(settings, read, lock, *rest, **others) as running:
        late = threading.Thread(target=all_of_them)
        late.start()
        late.join()
        print(json.dumps({"says": str(lock), "came": came}), flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        yield running

serve._started = trying
sys.argv = ["thermocline", "--config", sys.argv[1], "serve", "--no-supervisor", *sys.argv[3:]]
main()
"""


def python(script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env=os.environ | variables,
        cwd=Path(__file__).parents[2],
    )


def test_nothing_in_the_process_reaches_files_it_does_not_need(tmp_path: Path) -> None:
    config = write_locked_configuration(tmp_path)
    outside = tmp_path / "outside.txt"
    outside.write_text(MARK)
    link = tmp_path / "lake" / "warehouse" / "link.txt"
    link.symlink_to(outside)
    data = tmp_path / "lake" / "warehouse" / "x.parquet"
    pq.write_table(_rows(), data)
    before = data.read_bytes()
    refused: Mapping[str, list[Path]] = {
        "read": [outside, link, Path("/etc/passwd"), Path("/proc/self/environ")],
        "write": [outside, data, config, tmp_path / "new.txt", data.with_name("new.parquet"),
                  tmp_path / "lake" / "catalog.db"],
        "remove": [outside, data, config],
        "run": [Path("/bin/true"), Path(sys.executable)],
    }  # fmt: skip
    tries = {kind: [str(path) for path in paths] for kind, paths in refused.items()}
    done = python(
        INSIDE,
        str(config),
        json.dumps(tries | {"scan": [str(data)]}),
        "--port",
        "0",
        TMPDIR=str(tmp_path / "tmp"),
    )
    assert done.returncode == 0, done.stderr
    fields: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    came = fields["came"]
    assert fields["says"] == f"file system locked: Landlock ABI {ABI}"
    assert came.pop(f"scan {data}") == "[(3,)]"
    assert came.pop("scratch") == "1"
    assert came.pop("spill") == "[(3000000,)]"
    assert len(came) == 2 * 4 + 3 * 6 + 3 + 2
    for what, reply in came.items():
        assert re.match(r"PermissionError|IOException: .*Permission denied", reply), (
            what,
            reply,
        )
    assert (outside.read_text(), data.read_bytes()) == (MARK, before)
    assert not list((tmp_path / "tmp").iterdir())


def test_it_can_be_required_and_turned_off(tmp_path: Path) -> None:
    config = write_locked_configuration(tmp_path, server='landlock = "required"\n')
    threaded = (
        "import sys, threading; threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "from thermocline.cli import main\n"
        "sys.argv = ['thermocline', '--config', sys.argv[1], 'serve', '--no-supervisor']\n"
        "main()"
    )
    done = python(threaded, str(config))
    assert done.returncode == 78
    assert done.stderr == (
        'thermocline: server.landlock is "required", and the file system cannot be locked: other threads run '
        "already, which it would not hold for.\n"
    )
    config.write_text(config.read_text().replace("required", "off"))
    off = (
        "import sys\nfrom thermocline.config.settings import load\nfrom thermocline.serve.sandbox import confined\n"
        "with confined(load(sys.argv[1]), sys.argv[1]) as told: print(told, len(open('/etc/passwd').read()) > 0)"
    )
    assert python(off, str(config)).stdout == (
        "file system not locked: server.landlock is off True\n"
    )


def test_a_served_process_is_locked_in_all_its_threads_and_reads_what_is_replaced(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    served = ServerProcess(tmp_path)
    try:
        assert served.lock == f"file system locked: Landlock ABI {ABI}"
        (child,) = map(int, _children(served.process.pid))
        states = [
            (task / "status").read_text() for task in Path(f"/proc/{child}/task").iterdir()
        ]
        # Only ``restrict`` asks the kernel for it.
        assert len(states) > 10
        assert all("NoNewPrivs:\t1\n" in state for state in states)

        with closing(load_catalog("lake", **sqlite_catalog(tmp_path))) as catalog:
            catalog.create_namespace("default")
            catalog.create_table("default.flows", _rows().schema).append(_rows())
            away = tmp_path_factory.mktemp("away") / "table"
            catalog.create_table("default.away", _rows().schema, location=away.as_uri())
        with served.cursor() as cursor:
            cursor.execute("SELECT sum(bytes)::BIGINT FROM flows")
            assert cursor.fetchall() == [(6,)]
            with pytest.raises(adbc.Error, match="may not be read by this process") as refused:
                cursor.execute("SELECT * FROM away")
            assert str(away) not in str(refused.value)

        served.authority = Authority("the second")
        issued = served.authority.server()
        for name, content in (("pem", issued.certificate), ("key", issued.key)):
            (tmp_path / "new").write_bytes(content)
            (tmp_path / "new").rename(tmp_path / f"server.{name}")
        served.says("the certificate was replaced")
        new = tmp_path / "new"
        new.write_text(served.config.read_text() + '[server.users]\nada = "secret"\n')
        new.rename(served.config)
        served.process.send_signal(signal.SIGHUP)
        served.says("settings read again; taken over: server.users")
        with served.cursor(username="ada", password="secret") as cursor:
            cursor.execute("SELECT 1")
            assert cursor.fetchall() == [(1,)]
    finally:
        served.stop()


def _rows() -> pa.Table:
    return pa.table({"bytes": pa.array([1, 2, 3], pa.int64())})


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_doctor_starts_a_server_to_say_whether_it_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = tmp_path / "audit.log"
    config = write_locked_configuration(
        tmp_path, server=f'audit_log = "{audit}"\nlandlock = "required"\n'
    )

    def finding() -> tuple[str, str]:
        it = file_system_lock(load(str(config)), str(config))
        return it.state, it.what

    assert finding() == (
        "ok", f"tried by starting a server: file system locked: Landlock ABI {ABI}",
    )  # fmt: skip
    config.write_text(config.read_text().replace("required", "auto"))
    # A library that starts a thread as it is loaded, before the server is locked.
    (tmp_path / "early").mkdir()
    (tmp_path / "early" / "sitecustomize.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "early"))
    why = "other threads run already, which it would not hold for"
    assert finding() == (
        "warn", f"a server may reach all its user's files: file system not locked: {why}",
    )  # fmt: skip
    assert not audit.exists()
    config.write_text(config.read_text().replace("auto", "off"))
    assert finding() == (
        "ok", "server.landlock is off: a server may reach all its user's files",
    )  # fmt: skip


def test_automatic_that_fails_where_the_kernel_could_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """This process has other threads, so it stays as it is."""
    config = write_locked_configuration(tmp_path)
    settings = settings_of(load(str(config)).catalogs, {}, http_port=0)
    keep_waiting = threading.Event()
    waiting = threading.Thread(target=keep_waiting.wait)
    waiting.start()
    temporary, variable = tempfile.tempdir, os.environ.get("TMPDIR")
    try:
        with confined(settings, str(config)) as lock, running_server(settings, lock=lock) as at:
            assert not lock.holds
            ready = json.loads(page(at.http_port, "/readyz"))
            metrics = page(at.http_port, "/metrics")
    finally:
        keep_waiting.set()
        waiting.join()
        tempfile.tempdir = temporary
        os.environ.pop("TMPDIR") if variable is None else os.environ.update(TMPDIR=variable)
    said = "file system not locked: other threads run already, which it would not hold for"
    assert (ready["file_system"], ready["file_system_locked"]) == (said, False)
    assert "thermocline_file_system_locked 0.0" in metrics
    (warned,) = (line for line in caplog.records if line.name == "thermocline.serve.sandbox")
    assert (warned.levelname, warned.getMessage()) == (
        "WARNING",
        f"{said}; this kernel has Landlock",
    )


def page(port: int | None, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        text: str = answer.read().decode()
        return text
