"""Commands, each a fork of one process that has loaded what they load.

Loading is most of what ``create`` or ``verify`` of a small table costs, and a quarter of what a tierer does that is
killed. That process has no thread, and of ours only what every command begins with.
"""

from __future__ import annotations

import atexit
import gc
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from tests.harness.warm_jvm import warm_jvm

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        *("confluent_kafka", "confluent_kafka.admin", "duckdb", "msgspec", "pyarrow.parquet"),
        *("pyiceberg.catalog.sql", "pyiceberg.catalog.rest", "pyiceberg.table", "rich.table"),
        *("pyiceberg.io.pyarrow", "pydantic_settings", "sqlalchemy", "thermocline.cli"),
        *("py4j.java_gateway", "pyspark.sql", "pyspark.java_gateway"),
    ]
)


def run(arguments: Sequence[str], folder: Path, timeout_s: float) -> tuple[int, str, str]:
    """Run ``thermocline`` with these arguments in ``folder``; return exit code, standard output and error.

    Raises:
        TimeoutError: it did not end, and was killed.
    """
    with tempfile.TemporaryDirectory() as outputs, _spark(arguments) as variables:
        out, err = Path(outputs) / "out", Path(outputs) / "err"
        process = _FORKS.Process(
            target=_command,
            args=(list(arguments), folder, out, err, {**os.environ, **variables}),
        )
        process.start()
        process.join(timeout_s)
        if process.is_alive():
            process.kill()
            raise TimeoutError(
                f"thermocline {' '.join(arguments)} did not end: {err.read_text()}"
            )
        assert process.exitcode is not None
        code = process.exitcode
        process.close()
        return code, out.read_text(), err.read_text()


class Started:
    """A command that runs until it is told to end, in a session of its own; used as ``subprocess.Popen``."""

    def __init__(self, process: ForkServerProcess) -> None:
        assert process.pid is not None
        self._process, self.pid = process, process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout_s: float | None = None) -> int:
        """Raises:
        TimeoutError: it did not end.
        """
        self._process.join(timeout_s)
        if self._process.exitcode is None:
            raise TimeoutError(f"process {self.pid} did not end in {timeout_s} s")
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    arguments: Sequence[str], folder: Path, output: Path, environment: Mapping[str, str]
) -> Started:
    """Start ``thermocline`` with these arguments in ``folder``; what it says is added to ``output``.

    Spark starts a JVM for it: who may be killed shares none.
    """
    process = _FORKS.Process(
        target=_command,
        args=(list(arguments), folder, output, output, dict(environment)),
        kwargs={"leads": True},
        # What a test forgot ends with the tests.
        daemon=True,
    )
    process.start()
    return Started(process)


def _spark(arguments: Sequence[str]) -> AbstractContextManager[Mapping[str, str]]:
    """A JVM for the command. Java looks at whom it trusts once: who brings an authority has one of his own."""
    if "tier" not in arguments or "--config" not in arguments:
        return nullcontext({})
    config = Path(arguments[arguments.index("--config") + 1])
    if not config.exists() or "cabundle" in config.read_text():
        return nullcontext({})
    return warm_jvm()


def _command(
    arguments: list[str],
    folder: Path,
    out: Path,
    err: Path,
    environment: Mapping[str, str],
    *,
    leads: bool = False,
) -> None:
    """``leads``: a session of its own, as what is killed with all its processes has."""
    if leads:
        os.setsid()
    # What was loaded before is not to be collected again and again.
    gc.freeze()
    for path, descriptor in ((out, 1), (err, 2)):
        with path.open("ab") as file:
            os.dup2(file.fileno(), descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["thermocline", *arguments]
    from thermocline.entry import main

    try:
        main()
    finally:
        # A forked process ends without them.
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
