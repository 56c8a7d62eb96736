"""The scratch folder: gone with its process, however that ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from thermocline.serve.sandbox import scratch_folder

HOLDER = """
import sys, time
from pathlib import Path
from thermocline.serve.sandbox import scratch_folder
with scratch_folder(Path(sys.argv[1])) as folder:
    (folder / "tails.duckdb").write_text("x")
    print(folder, flush=True)
    time.sleep(60)
"""


def test_it_is_empty_and_gone_afterwards(tmp_path: Path) -> None:
    with scratch_folder(tmp_path) as folder:
        assert list(folder.iterdir()) == []
        (folder / "spilled").write_text("x")
    assert list(tmp_path.iterdir()) == []


def test_a_killed_servers_folder_goes_at_the_next_start_a_running_ones_never(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        value = Path(process.stdout.readline().strip())
        try:
            with scratch_folder(tmp_path):
                assert (value / "tails.duckdb").exists()
        finally:
            process.send_signal(signal.SIGKILL)
    assert value.exists()
    with scratch_folder(tmp_path) as folder:
        assert not value.exists()
        assert [result.name for result in tmp_path.iterdir()] == [folder.parent.name]
