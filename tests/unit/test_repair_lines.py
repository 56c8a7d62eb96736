"""What the repair commands show before they ask, and what they print once they have committed."""

from __future__ import annotations

import json

import click
import pytest
from click.testing import CliRunner

from planner.covering import PartitionRows, RowsOfHead
from planner.errors import BadParameter
from planner.offsets import OffsetRange, OffsetVector
from planner.repairs import AddedRows
from planner.seam.watermark import Skip
from tests.harness.builders import FLOWS, watermark
from thermocline.commands.repair import (
    Repair,
    _added,
    _covered,
    _lost,
    _named,
)


def test_offsets_that_are_given_up_are_listed_by_partition() -> None:
    assert list(_lost(FLOWS, (OffsetRange(0, 5, 6), OffsetRange(2, 0, 2_000)))) == [
        "lake.net.flows: Kafka removed 2,001 offsets before they were tiered:",
        "  partition 0, offset 5 (1)",
        "  partition 2, offsets 0 to 1999 (2,000)",
    ]


def test_rows_of_another_writer_are_counted_with_what_cannot_be_checked() -> None:
    added = {7: AddedRows(3, OffsetVector.of([(1, 40)]), 2)}
    assert list(_added(FLOWS, added)) == [
        "lake.net.flows: snapshot 7 added 3 rows",
        "  2 without kafka_partition or kafka_offset: `verify` cannot check them",
        "  partition 1: offsets up to 39, below the watermark; rows of records that cold has already are doubled, "
        "`verify` finds them",
    ]


def test_what_a_table_has_is_shown_beside_what_it_would_cover() -> None:
    rows = RowsOfHead(7, (PartitionRows(0, rows=5, distinct=4, lowest=10, highest=15),), 1)
    after = watermark(20, 3, skips=(Skip(1, 2, "a test"), Skip(1, 0)))
    assert list(_covered(FLOWS, rows, after)) == [
        "lake.net.flows: partition 0: 5 rows, offsets 10 to 15, 2 offsets between without a row",
        "  1 rows are there twice, and will be in answers",
        "  would be covered below 20: 4 offsets up to there have no row",
        "lake.net.flows: partition 1: no rows",
        "  would be covered below 3: 3 offsets up to there have no row",
        "lake.net.flows: partition 1, offset 2: somebody gave this record up (a test), so no answer has it",
        "lake.net.flows: partition 1, offset 0: somebody gave this record up (no reason given), so no answer has it",
        "lake.net.flows: 1 rows without kafka_partition or kafka_offset: `verify` cannot check them",
    ]


def test_an_offset_is_named_with_its_partition() -> None:
    assert _named("3=1204") == (3, 1204)
    for text in ("1204", "a=1", "1=-1"):
        with pytest.raises(BadParameter, match="is not PARTITION=OFFSET, for instance 0=1204"):
            _named(text)


@pytest.mark.parametrize(
    ("question", "yes", "answer", "commits", "prompt"),
    [
        ("Go on?", False, "y\n", 1, "what changes\nGo on? [y/N]: "),
        ("Go on?", False, "n\n", 0, "what changes\nGo on? [y/N]: "),
        ("Go on?", True, "", 1, ""),
        ("", False, "", 1, ""),
    ],
)
def test_a_repair_is_committed_once_it_is_said_to_be_meant(
    question: str, yes: bool, answer: str, commits: int, prompt: str
) -> None:
    marks = []

    @click.command()
    def command() -> None:
        commit = lambda: marks.append(1) or watermark(1)  # type: ignore[func-returns-value]  # noqa: E731
        repair = Repair(FLOWS, yes, as_json=False)
        assert repair.carry_out(question, ["what changes"], commit) == watermark(1)

    result = CliRunner().invoke(command, input=answer)
    assert len(marks) == commits
    assert result.exit_code == (0 if commits else 1)
    assert result.stderr.startswith(prompt)


def test_what_was_done_is_lines_or_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    mark = watermark(1)
    Repair(FLOWS, yes=True, as_json=False).report(mark, {"shape": "s"}, ["one", "two"])
    assert capsys.readouterr().out == "lake.net.flows: one\nlake.net.flows: two\n"
    Repair(FLOWS, yes=True, as_json=True).report(mark, {"shape": "s"}, ["one"])
    assert json.loads(capsys.readouterr().out) == {
        "table": "lake.net.flows",
        "shape": "s",
        "run": "run-1",
    }
