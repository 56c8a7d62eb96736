"""The command line as a whole: what it lists, what it ends with, what its help shows."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from planner import errors
from thermocline import cli

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cli.md").read_text()
#: Loading any of these for a help text would show: each takes longer than the whole of it may.
HEAVY = (
    "pyarrow",
    "pyiceberg",
    "duckdb",
    "confluent_kafka",
    "pyspark",
    "rich",
    "pydantic",
    "prompt_toolkit",
    "msgspec",
)


def leaves(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(command)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            result = command.get_command(context, name)
            assert result is not None
            yield from leaves(result, (*path, name))
    else:
        yield path, command


LEAVES = dict(leaves(cli.app))


def help_of(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str:
    cli.main([*path, "--help"])
    return capsys.readouterr().out


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_has_help_that_fits_with_an_example(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    text = help_of(path, capsys)
    assert text.startswith(f"Usage: thermocline {' '.join(path)} ")
    assert "\n  -h, --help" in text
    assert max(map(len, text.splitlines())) <= 110
    above = [help_of(path[:depth], capsys) for depth in range(1, len(path))]
    assert any(re.search(r"Examples?:", value) for value in (text, *above))


def examples(text: str) -> list[list[str]]:
    """The command lines of a help text, up to a pipe or a redirection."""
    matches = re.findall(r"^\s*(?:Examples?:\s+)?thermocline (.+)$", text, re.MULTILINE)
    return [
        shlex.split(re.split(r"\s+(?:\||>>?)\s+|\s{3,}|\.$", line)[0], comments=True)
        for line in matches
    ]


@pytest.mark.parametrize(
    "path", [("sql",), ("explain",), ("tail",), ("status",), ("completion",)]
)
def test_examples_are_command_lines_their_command_takes(
    path: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report.sql").touch()
    items = examples(help_of(path, capsys))
    assert len(items) > 2
    for arguments in items:
        assert tuple(arguments[: len(path)]) == path
        LEAVES[path].make_context("thermocline", arguments[len(path) :])


@pytest.mark.parametrize("name", sorted({path[0] for path in LEAVES if len(path) > 1}))
def test_the_list_of_a_group_has_whole_sentences(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, listed = help_of((name,), capsys).partition("Commands:\n")
    lines = [line for line in listed.split("\n\n")[0].splitlines() if line]
    assert lines
    assert all(line.endswith(".") and not line.endswith("...") for line in lines), lines


def test_all_commands_are_listed_by_help_and_by_the_page(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cli.main(["--help"])
    text = capsys.readouterr().out
    for name in {path[0] for path in LEAVES}:
        assert re.search(rf"^  {name} ", text, re.MULTILINE)
        assert f"`{name}`" in PAGE


def test_all_exit_codes_are_on_the_page() -> None:
    rows = dict(re.findall(r"^\| (\d+) \| (.+) \|$", PAGE, re.MULTILINE))
    assert {int(code): text for code, text in rows.items()} == cli.EXIT_CODES


def test_every_family_of_errors_has_its_code() -> None:
    families = errors.FederationError.__subclasses__()
    ours = [kind for kind in families if kind.__module__ == errors.__name__]
    codes = {kind.__name__: cli.exit_code(kind("")) for kind in ours}
    assert codes == {
        "RequestError": 2,
        "Unavailable": 3,
        "StalePlan": 4,
        "LimitExceeded": 5,
        "Inconsistent": 6,
        "InternalError": 70,
    }
    assert set(codes.values()) < set(cli.EXIT_CODES)


def test_help_loads_no_heavy_library() -> None:
    code = (
        "import sys; from thermocline import cli; cli.main(['--help']); "
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stderr.strip() == "[]"


def test_a_wrong_option_is_told_with_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["sql", "--fromat", "csv", "SELECT 1"])
    assert ended.value.code == 2
    reply = capsys.readouterr().err
    assert reply.startswith("Usage: thermocline sql ")
    assert "Did you mean" in reply


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_call_back_the_program(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["completion", shell])
    script = capsys.readouterr().out
    assert f"_THERMOCLINE_COMPLETE={shell}_complete" in script


def test_names_and_options_are_completed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def completed(words: str) -> list[str]:
        monkeypatch.setenv("_THERMOCLINE_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
        with pytest.raises(SystemExit):
            cli.main([])
        return [line.split(",")[1] for line in capsys.readouterr().out.split()]

    assert completed("thermocline st") == ["status"]
    assert set(completed("thermocline ")) == {path[0] for path in LEAVES}
    assert completed("thermocline sql --fo") == ["--format"]
    assert completed("thermocline sql --format j") == ["json", "jsonl"]
