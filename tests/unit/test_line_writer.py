"""The one thread that writes audit lines: in order, none lost, and what a disk does to statements."""

from __future__ import annotations

import itertools
import logging
import os
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from proxy.ops.audit_log import MAX_CHARS, LineWriter
from proxy.ops.call_record import CallRecord
from tests.fixtures.server import settings_of
from thermocline.serve.auditing import _File, open_journal

SOON_S = 30
THREADS, LINES = 6, 2_000


class Disk:
    """Takes lines when it is let."""

    def __init__(self, *, is_ready: bool = True) -> None:
        self.ready = threading.Event()
        self.began = threading.Event()
        self.texts: list[str] = []
        if is_ready:
            self.ready.set()

    def write(self, text: str) -> None:
        self.began.set()
        assert self.ready.wait(SOON_S)
        self.texts.append(text)

    @property
    def lines(self) -> list[str]:
        return "".join(self.texts).splitlines()


@pytest.fixture(autouse=True)
def no_handler_stays() -> Iterator[None]:
    yield
    assert not [each for each in threading.enumerate() if each.name == "audit-log"]


def test_lines_are_written_once_in_the_order_of_each_thread(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with closing(_File(str(path))) as file, closing(LineWriter(file.write, "it")) as writer:

        def put(thread: int) -> None:
            for number in range(LINES):
                writer.put(f"{thread} {number}")

        threads = [threading.Thread(target=put, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    written = [tuple(map(int, line.split())) for line in path.read_text().splitlines()]
    for number in range(THREADS):
        assert [n for thread, n in written if thread == number] == list(range(LINES))
    assert len(written) == THREADS * LINES


def test_a_line_is_written_by_itself(tmp_path: Path) -> None:
    written = threading.Event()
    with closing(LineWriter(lambda _: written.set(), "it")) as writer:
        writer.put("a")
        assert written.wait(SOON_S)


def test_a_slow_disk_keeps_nothing_waiting_until_there_are_too_many_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = Disk(is_ready=False)
    line = "x" * (MAX_CHARS // 16)
    with closing(LineWriter(disk.write, "it")) as writer:
        writer.put("first")
        assert disk.began.wait(SOON_S)
        for _ in range(16):
            writer.put(line)  # while the disk does not answer
        assert caplog.messages == []
        late = [threading.Thread(target=writer.put, args=("last",)) for _ in range(2)]
        for thread in late:
            thread.start()
        late[0].join(0.3)
        assert all(thread.is_alive() for thread in late)
        assert caplog.messages == [
            "server.audit_log: it is too slow; calls that end wait for it"
        ]
        disk.ready.set()
        for thread in late:
            thread.join(SOON_S)
    # Nothing was left out for it.
    assert disk.lines == ["first", *[line] * 16, "last", "last"]


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (OSError(28, "No space left on device"), "No space left on device"),
        (ValueError("I/O operation on closed file"), "I/O operation on closed file"),
    ],
)
def test_lines_that_cannot_be_written_are_counted_by_name(
    caplog: pytest.LogCaptureFixture, error: Exception, why: str
) -> None:
    disk = Disk()
    full, failed = iter([error]), threading.Event()

    def write(text: str) -> None:
        for each in full:
            failed.set()
            raise each
        disk.write(text)

    with closing(LineWriter(write, "/logs/audit")) as writer:
        writer.put("a")
        writer.put("b")
        assert failed.wait(SOON_S)
        writer.put("c")
    assert disk.lines == ["c"]
    assert caplog.messages == [
        f"server.audit_log: /logs/audit cannot be written ({why}); lines lost: 2"
    ]


def test_a_full_disk_is_told_and_calls_go_on(caplog: pytest.LogCaptureFixture) -> None:
    """The kernel's own full disk, with the settings users have."""
    with open_journal(settings_of({}, {}, audit_log="/dev/full")) as journal:
        record = CallRecord("DO_GET")
        record.ended()
        journal(record)
    assert caplog.messages == [
        "server.audit_log: /dev/full cannot be written (No space left on device); lines lost: 1"
    ]


def test_a_closed_log_takes_no_line_in_silence() -> None:
    writer = LineWriter(Disk().write, "/logs/audit")
    writer.close()
    writer.close()
    with pytest.raises(OSError, match="the audit log /logs/audit is closed"):
        writer.put("late")


def test_a_disk_that_does_not_answer_is_waited_for_and_told_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is stopped closes the log, and ends itself by ``logging.shutdown`` where it is stuck."""
    monkeypatch.setattr("proxy.ops.audit_log._DRAIN_S", 0.01)
    disk = Disk(is_ready=False)
    writer = LineWriter(disk.write, "/logs/audit")
    writer.put("a")
    assert disk.began.wait(SOON_S)
    logging.shutdown([weakref.ref(writer)])
    writer.close()
    assert caplog.messages == [
        "server.audit_log: /logs/audit cannot be written (it does not answer); lines lost: 1"
    ]
    disk.ready.set()
    writer._thread.join(SOON_S)


ENDING = """
import logging, os, sys
from proxy.ops.audit_log import LineWriter
from thermocline.serve.auditing import _File
writer = LineWriter(_File(sys.argv[1]).write, "it")
for number in range(1_000):
    writer.put(str(number))
logging.shutdown()
os._exit(0)
"""


def test_a_process_that_ends_itself_writes_all(tmp_path: Path) -> None:
    """As the watchdog ends it, and a server that cannot be stopped."""
    path = tmp_path / "audit.jsonl"
    subprocess.run([sys.executable, "-c", ENDING, str(path)], check=True, timeout=SOON_S)
    assert path.read_text().splitlines() == list(map(str, range(1_000)))


TORN = """
import resource, signal, sys
from thermocline.serve.auditing import _File
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
file = _File(sys.argv[1])
file.write("one\\n")
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (6, hard))
try:
    file.write("two\\n")
except OSError as error:
    print(error.strerror)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
file.write("three\\n")
file.write("four\\n")
"""


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", TORN, str(path)],
        check=True, timeout=SOON_S, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "File too large\n"
    assert path.read_text().splitlines() == ["one", "tw", "three", "four"]


def test_a_file_that_was_moved_away_is_opened_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with closing(_File(str(path))) as file:
        file.write("one\n")
        path.rename(tmp_path / "audit.1")
        file.write("two\n")
    assert path.read_text() == "two\n"
    assert (tmp_path / "audit.1").read_text() == "one\n"


def test_a_pipe_whose_reader_waits_gets_all_lines_in_order(tmp_path: Path) -> None:
    """More than a pipe holds, so the writer waits for the reader and calls do not."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    numbers = itertools.count()
    with closing(_File(str(pipe))) as file:
        writer = LineWriter(file.write, "it")
        for _ in range(1_000):
            writer.put(f"{next(numbers)} " + "x" * 500)
        chunks: list[bytes] = []

        def read() -> None:
            while chunk := os.read(reader, 1 << 16):
                chunks.append(chunk)

        reading = threading.Thread(target=read)
        reading.start()
        writer.close()
    reading.join(SOON_S)
    os.close(reader)
    lines = re.findall(rb"^(\d+) x{500}$", b"".join(chunks), re.MULTILINE)
    assert list(map(int, lines)) == list(range(1_000))


def test_logging_does_not_wait_for_a_line_that_waits() -> None:
    disk = Disk(is_ready=False)
    writer = LineWriter(disk.write, "it")
    assert writer.lock is None
    assert writer in [each() for each in logging._handlerList]  # type: ignore[attr-defined]
    disk.ready.set()
    writer.close()
