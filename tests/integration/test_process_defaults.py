"""What a server's process is like with the settings users get: limits of memory, how long one thread keeps the lock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from proxy.process.watchdog import EXIT_MEMORY

MEMORY = """
import logging, sys, time
import thermocline.serve.assembly as assembly
from proxy.process.watchdog import resident_bytes
from thermocline.config.settings import load
logging.basicConfig()
total = 2 * resident_bytes()  # a small machine
assembly.total_memory = lambda: total
with assembly.running_components(load(sys.argv[1])) as parts:
    connection = parts.engine._connection
    print(connection.execute("SELECT system.main.current_setting('memory_limit')").fetchone()[0])
    print(total, flush=True)
    rows = b"x" * total
    time.sleep(30)
"""

#: Is ``thermocline serve`` up to where it would listen.
SWITCHING = """
import sys
from planner.errors import RequestError
from thermocline.cli import main
from thermocline.commands import serve

def refusing(*_, **__):
    print(sys.getswitchinterval(), flush=True)
    raise RequestError("as far as this")

serve._started = refusing
main(["--config", sys.argv[1], "serve", "--no-supervisor", "--port", "0"])
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "thermocline.toml"
    path.write_text(
        f'[catalogs.lake]\ntype = "sql"\nuri = "sqlite:///{tmp_path}/c.db"\n'
        f'warehouse = "file://{tmp_path}"\n'
    )
    return path


def run(program: str, config: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, str(config)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_server_has_limits_of_memory_by_default(config: Path) -> None:
    done = run(MEMORY, config)
    assert done.returncode == EXIT_MEMORY, done.stderr
    assert "over max_process_bytes" in done.stderr
    limit, total = done.stdout.splitlines()
    number, unit = limit.split()
    assert unit == "MiB"
    assert float(number) * (1 << 20) == pytest.approx(int(total) / 2, rel=0.01)


def test_a_thread_that_computes_does_not_keep_the_lock_for_5_ms(config: Path) -> None:
    done = run(SWITCHING, config)
    assert "as far as this" in done.stderr
    assert float(done.stdout) == 0.0005
