"""Cells of a notebook: what a magic answers, draws and refuses, in a shell of IPython without a screen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("IPython")

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from thermocline_client import AnswerError, StatementAnswer


@pytest.fixture
def shell(uri: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("THERMOCLINE_URI", uri)
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "thermocline_client")
    yield shell
    magics = shell.magics_manager.registry["ThermoclineMagics"]
    for connection in magics._connections.values():
        connection.close()
    shell.run_line_magic("reset", "-f")
    InteractiveShell.clear_instance()


def test_a_cell_gives_an_answer(shell: Any) -> None:
    answer = shell.run_cell_magic("thermocline", "", "SELECT id FROM lake.net.flows;\n")
    assert isinstance(answer, StatementAnswer)
    assert sorted(answer.arrow()["id"].to_pylist()) == [1, 2, 3]
    again = shell.run_cell_magic(
        "thermocline",
        f"--cut {answer.cut} --into rows",
        "SELECT count(*) AS n FROM lake.net.flows",
    )
    assert again is None
    assert shell.user_ns["rows"].arrow()["n"].to_pylist() == [3]


def test_a_line_says_which_server_later_cells_ask(
    shell: Any, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.run_line_magic("thermocline", f"--server {uri}")
    monkeypatch.setenv("THERMOCLINE_URI", "grpc://127.0.0.1:1")
    assert len(shell.run_cell_magic("thermocline", "", "SELECT 1")) == 1


def test_a_cell_is_not_filled_in_with_variables(shell: Any) -> None:
    shell.user_ns["name"] = "x' OR 'a' = 'a"
    answer = shell.run_cell_magic("thermocline", "", "SELECT '{name} $name' AS v")
    assert answer.arrow()["v"].to_pylist() == ["{name} $name"]


REFUSED = [
    ("--server ftp://x", "is not a server's address"),
    ("--into 1x", "--into takes the name of a variable, and not '1x'"),
    ("--colour", "unrecognized arguments"),
]


@pytest.mark.parametrize(("line", "sentence"), REFUSED)
def test_what_a_cell_may_not_say_is_refused(shell: Any, line: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        shell.run_cell_magic("thermocline", line, "SELECT 1")


def test_without_a_server_the_sentence_says_what_to_run(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("THERMOCLINE_URI")
    with pytest.raises(UsageError, match="run %thermocline --server grpc://HOST:PORT"):
        shell.run_cell_magic("thermocline", "", "SELECT 1")


def test_an_error_of_the_server_is_one_line_of_text(shell: Any) -> None:
    with capture_output() as drawn:
        done = shell.run_cell("%%thermocline\nSELEC <script>1</script>")
    assert isinstance(done.error_in_exec, AnswerError)
    assert 'syntax error at or near "SELEC"' in drawn.stdout
    assert "Traceback" not in drawn.stdout


def test_progress_is_drawn_after_half_a_second_and_wiped(shell: Any) -> None:
    from thermocline_client.magics import _Progress

    progress = _Progress()
    with capture_output() as drawn:
        progress(0, 0.4)
        assert not drawn.outputs
        progress(1_200_000, 0.6)
        progress(1_300_000, 0.7)
        progress(1_400_000, 1.2)
        progress.wipe()
    lines = [output.data["text/plain"] for output in drawn.outputs]
    assert [line.partition(";")[0] for line in lines] == [
        "1,200,000 rows, 1 s",
        "1,400,000 rows, 1 s",
        "",
    ]
    assert drawn.outputs[1].update


def test_a_seam_takes_a_tables_name_and_a_time(shell: Any) -> None:
    with pytest.raises(
        UsageError, match="--live takes a time such as 10s or 5m, and not 'soon'"
    ):
        shell.run_line_magic("seam", "lake.net.flows --live soon")
    with pytest.raises(UsageError, match="is not a table's name"):
        shell.run_line_magic("seam", "lake..flows")
    with pytest.raises(AnswerError, match="is not bound to a topic"):
        shell.run_line_magic("seam", "lake.net.flows --live 10s")
