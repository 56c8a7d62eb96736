"""Python workers of Spark, each a fork of one process that has loaded what they load.

Spark starts an interpreter for each session, each kind of worker and each reader of a stream; loading was half of the
processor time of a test of Spark. What Spark is given for Python is a file that asks here for a fork and stays for
its exit code; without somebody to ask it becomes the interpreter that it stands for. Commands and examples of the docs
are such forks, too.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

#: Where pyspark looks for it.
VARIABLE = "PYSPARK_PYTHON"
ROOT = Path(__file__).parents[2]
#: What workers load, apart from their own few lines. None of it starts a thread.
PRELOADED = (
    *("pyspark.worker", "pyspark.cloudpickle", "pyspark.sql.pandas.serializers"),
    *("pyspark.sql.worker.create_data_source", "pyspark.sql.worker.plan_data_source_read"),
    "pyspark.sql.worker.lookup_data_sources",
    *("pyspark.sql.streaming.python_streaming_source_runner", "pyspark.sql.datasource"),
    *("confluent_kafka.admin", "duckdb", "msgspec", "numpy", "pandas", "pyarrow.parquet"),
    *("pyiceberg.catalog.sql", "pyiceberg.catalog.rest", "pyiceberg.io.pyarrow", "sqlalchemy"),
    *(
        "connectors.spark.lake.source",
        "connectors.spark.lake.stream",
        "connectors.spark.publish.stage",
    ),
)
#: What commands load, apart from what each of them begins with, and examples in Python.
OF_COMMANDS = (
    *("adbc_driver_flightsql.dbapi", "confluent_kafka.admin", "duckdb", "msgspec", "pandas"),
    *("pyiceberg.catalog.sql", "pyiceberg.catalog.rest", "pyiceberg.io.pyarrow", "sqlalchemy"),
    *("pyarrow.parquet", "rich.progress", "rich.table", "thermocline.cli"),
    *("py4j.java_gateway", "pyspark.sql", "pyspark.java_gateway"),
)
#: Standard library alone: it is read by an interpreter without site-packages, in some 15 ms.
STANDIN = """\
#!{python} -SE
import json, os, signal, socket, sys
asked = socket.socket(socket.AF_UNIX)
try:
    asked.connect({address!r})
except OSError:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
request = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
socket.send_fds(asked, [len(request).to_bytes(8, "big")], [0, 1, 2])
asked.sendall(request)
for descriptor in (0, 1):
    os.close(descriptor)
pid = int.from_bytes(asked.recv(8, socket.MSG_WAITALL), "big")
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda number, frame: os.kill(pid, number))
os._exit(int.from_bytes(asked.recv(8, socket.MSG_WAITALL) or b"\\1", "big"))
"""


def plain_python() -> dict[str, str]:
    """The environment without it: for a program whose Spark has packages of its own, not those of this checkout."""
    return {name: value for name, value in os.environ.items() if name != VARIABLE}


@dataclass(frozen=True)
class Programs:
    """``path`` is a folder for ``PATH``, with a ``thermocline`` alone: Spark looks for a Python there."""

    path: Path
    python: Path


@contextmanager
def forked_programs(folder: Path) -> Iterator[Programs]:
    """What runs in forks, until the end of the block."""
    with forked_python(folder, OF_COMMANDS) as python:
        program = folder / "bin" / "thermocline"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec "{python}" -m thermocline "$@"\n')
        program.chmod(0o755)
        yield Programs(program.parent, python)


@contextmanager
def forked_python(folder: Path, preloaded: Sequence[str] = PRELOADED) -> Iterator[Path]:
    """A file to give to Spark as Python, until the end of the block."""
    address, executable = folder / "forks.sock", folder / "python"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(address))
    listener.listen(64)
    # Spark starts its workers so: what is loaded here must have hashed alike.
    environment = os.environ | {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = str(ROOT)
    with (
        listener,
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(listener.fileno()), *preloaded],
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            env=environment,
            cwd=folder,
        ) as process,
    ):
        # Whoever asks is refused when that process ends, and does not wait for ever.
        listener.close()
        executable.write_text(STANDIN.format(python=sys.executable, address=str(address)))
        executable.chmod(0o755)
        try:
            yield executable
        finally:
            process.terminate()


class _Forks:
    """The process with everything loaded: one thread, and a connection for each child that lives."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._callers: dict[int, socket.socket] = {}
        self._ended, wakeup = os.pipe()
        os.set_blocking(wakeup, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Until standard input ends: whoever started this is gone then."""
        while True:
            readable: list[int] = [0, self._listener.fileno(), self._ended]
            readable, _, _ = select.select(readable, [], [])
            if 0 in readable:
                return
            if self._ended in readable:
                os.read(self._ended, 4096)
                self._report()
            if self._listener.fileno() in readable:
                self._fork()

    def _report(self) -> None:
        while self._callers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            code = os.waitstatus_to_exitcode(status)
            with self._callers.pop(pid) as caller, suppress(OSError):
                caller.sendall((code if code >= 0 else 128 - code).to_bytes(8, "big"))

    def _fork(self) -> None:
        caller, _ = self._listener.accept()
        length, descriptors, _, _ = socket.recv_fds(caller, 8, 3)
        request = caller.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)
        pid = os.fork()
        if not pid:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in (self._listener, caller, *self._callers.values()):
                each.close()
            for standard, descriptor in enumerate(descriptors):
                os.dup2(descriptor, standard)
                os.close(descriptor)
            _become(*json.loads(request))
        for descriptor in descriptors:
            os.close(descriptor)
        self._callers[pid] = caller
        caller.sendall(pid.to_bytes(8, "big"))


def _become(arguments: list[str], environment: dict[str, str], folder: str) -> None:
    """Do what ``python *arguments`` does, for ``-m MODULE …``, ``-c TEXT`` and ``FILE …``; never return."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    paths = [each for each in environment.get("PYTHONPATH", "").split(":") if each]
    sys.path[:0] = [folder, *(each for each in paths if each not in sys.path)]
    while arguments and arguments[0] in ("-u", "-B"):
        arguments.pop(0)
    if arguments[:2] == ["-W", "error"]:
        warnings.simplefilter("error")
        del arguments[:2]
    code = 0
    try:
        if arguments[0] == "-m":
            sys.argv = arguments[1:]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        elif arguments[0] == "-c":
            sys.argv = ["-c", *arguments[2:]]
            text = compile(arguments[1], "<string>", "exec", dont_inherit=True)
            exec(text, {"__name__": "__main__"})
        else:
            sys.argv = arguments
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    finally:
        if arguments[:2] == ["-m", "thermocline"]:
            # A forked process ends without them.
            with suppress(Exception):
                atexit._run_exitfuncs()
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def main() -> None:
    for name in sys.argv[2:]:
        importlib.import_module(name)
    # Spark's workers collect after each task: not what was loaded here.
    gc.freeze()
    _Forks(socket.socket(fileno=int(sys.argv[1]))).serve()


if __name__ == "__main__":
    main()
