"""The C library keeps no more than four heaps for each processor, however many threads allocate."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.process.memory import bound_arenas

COUNT = """
import ctypes, sys, threading

from proxy.process.memory import bound_arenas

print(bound_arenas())
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
together = threading.Barrier(40)


def allocate():
    together.wait(60)
    libc.malloc(ctypes.c_size_t(1000))
    together.wait(60)


threads = [threading.Thread(target=allocate) for _ in range(40)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
told = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, told)
libc.fclose(told)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc's to bound")
@pytest.mark.parametrize("said", [{}, {"MALLOC_ARENA_MAX": "1"}])
def test_threads_share_the_heaps(tmp_path: Path, said: dict[str, str]) -> None:
    file = tmp_path / "malloc.xml"
    unsaid = {key: value for key, value in os.environ.items() if "MALLOC" not in key}
    done = subprocess.run(
        [sys.executable, "-c", COUNT, str(file)],
        env={**unsaid, **said},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(not said)]
    most = 1 if said else 4 * len(os.sched_getaffinity(0))
    assert file.read_text().count("<heap nr=") <= most


def test_an_environment_that_says_it_is_heeded() -> None:
    assert not bound_arenas({"MALLOC_ARENA_MAX": "4"})
    assert not bound_arenas({"GLIBC_TUNABLES": "glibc.malloc.arena_max=4"})
