"""What one version writes, another reads: that of the last release of formats, and this one."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from planner.seam.binding import parse_binding
from planner.seam.resolver import base_snapshot, resolve
from planner.seam.snapshots import TAG, History, Snapshot
from planner.seam.watermark import SUMMARY_KEY, Outcomes, format_watermark, parse_watermark
from tests.fixtures.spark import BoundTable
from tests.harness.builders import BINDING, FLOWS, vector
from tests.harness.earlier_version import ROOT, unpack
from tests.harness.forked_python import plain_python
from tests.harness.generated_log import (
    CLUSTER,
    TOPIC,
    TOPIC_ID,
    expected_outcomes,
    expected_rows,
)

#: Its formats are promised; newer versions read them, and it reads theirs.
OLD = "0061fed"
SAMPLE = ROOT / "tests" / "data" / f"written-by-{OLD}.json"
#: Both ways, a tierer's publishes and what other writers do between them.
MOVES: list[list[Any]] = [
    ["create"],
    ["tier", [[0, 0, "a", 1], [0, 1, "b", 2], [1, 0, "c", 3]], [2, 1]],
    ["tier", [[0, 2, "d", 4], [1, 2, "e", 5]], [3, 3]],
    ["delete", 1],
    ["compact"],
]
#: Where the log starts and ends, of both partitions.
LOGS = [[1, 7], [3, 3]]
#: Offset 1 was deleted in partition 0; of partition 1, offset 1 never was a record.
ROWS = [[0, 0, "a", 1], [0, 2, "d", 4], [1, 0, "c", 3], [1, 2, "e", 5]]
MORE: list[list[Any]] = [["tier", [[0, 5, "f", 6]], [6, 3]]]


def run(source: Path, **request: Any) -> dict[str, Any]:
    """Make moves with the packages of ``source`` and say what they made."""
    done = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).with_name("moves.py")),
            source,
            json.dumps(request),
        ],
        cwd=source,
        env={**plain_python(), "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of the old version and its tests, as git has them."""
    return unpack(OLD, tmp_path_factory.mktemp("old"))


@pytest.fixture
def new() -> Path:
    return ROOT


@pytest.fixture(scope="module")
def written(
    old: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[str, dict[str, Any]]]:
    """A table of either version: where it is, and what its writer says of it."""
    tables = {}
    for name, source in (("old", old), ("new", ROOT)):
        lake = str(tmp_path_factory.mktemp(name))
        tables[name] = lake, run(source, lake=lake, moves=MOVES, logs=LOGS)
    return tables


@pytest.mark.parametrize(("writer", "reader"), [("new", "old"), ("old", "new")])
def test_what_one_writes_the_other_reads_and_goes_on_with(
    writer: str,
    reader: str,
    written: dict[str, tuple[str, dict[str, Any]]],
    request: pytest.FixtureRequest,
) -> None:
    lake, own = written[writer]
    writing, reading = (
        functools.partial(run, request.getfixturevalue(name), lake=lake, logs=LOGS)
        for name in (writer, reader)
    )
    # The reader's own tierer takes over, and the writer reads what it makes.
    again = reading(moves=MORE, before=True)
    answer = again.pop("before")
    assert answer == own
    assert (answer["read"]["watermark"], answer["read"]["run"]) == ([3, 3], "compatible")
    assert answer["read"]["hot"] == [[0, 3, 7]]
    assert answer["read"]["rows"] == ROWS
    assert writing(moves=[]) == again
    assert (again["read"]["watermark"], again["read"]["hot"]) == ([6, 3], [[0, 6, 7]])
    assert again["read"]["rows"] == sorted([*ROWS, [0, 5, "f", 6]])


def test_both_write_the_same_texts(written: dict[str, tuple[str, dict[str, Any]]]) -> None:
    (_, old), (_, new) = written["old"], written["new"]
    assert texts(old["snapshots"]) == texts(new["snapshots"])


def texts(written: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Watermarks and properties, with each snapshot's number in place of its id."""
    ids = {
        str(fields["snapshot_id"]): f"<{n}>" for n, fields in enumerate(written["snapshots"])
    }

    def numbered(text: str) -> str:
        for snapshot_id, number in ids.items():
            text = text.replace(snapshot_id, number)
        return text

    marks = [numbered(each["summary"].get(SUMMARY_KEY, "")) for each in written["snapshots"]]
    return marks, {key: numbered(text) for key, text in written["properties"].items()}


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_tierers_of_both_take_turns_on_spark_and_each_reads_the_others_rows(
    old: Path, new: Path, flows: BoundTable, tmp_path: Path
) -> None:
    """The new one's Spark tasks write Parquet by Arrow, the old one's by Iceberg."""
    lake = {
        "lake": str(tmp_path),
        "catalogs": flows.catalogs,
        "table": str(flows.name),
        "log": {"cluster_id": CLUSTER, "topic": TOPIC, "topic_id": TOPIC_ID},
    }

    def check(reader: Path, *ends: int) -> None:
        answer = run(reader, **lake, logs=[[0, end + 10] for end in ends])
        assert answer["watermark"] == list(ends)
        assert answer["hot"] == [[n, end, end + 10] for n, end in enumerate(ends)]
        assert answer["rows"] == [list(row) for row in expected_rows(*ends)]

    flows.tier(300, 200)
    check(old, 300, 200)
    request = {"catalogs": flows.catalogs, "table": str(flows.name), "ends": [[500, 200]]}
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.tierer", json.dumps(request)],
        cwd=old,
        env={**plain_python(), "PYTHONPATH": str(old)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (said,) = map(json.loads, done.stdout.splitlines())
    earlier = expected_outcomes(300, 200)
    assert earlier + Outcomes(**said["published"]) == expected_outcomes(500, 200)
    assert (flows.rows(), flows.watermark()) == (expected_rows(500, 200), {0: 500, 1: 200})
    check(new, 500, 200)
    flows.tier(600, 300)
    assert (flows.rows(), flows.watermark()) == (expected_rows(600, 300), {0: 600, 1: 300})


def test_a_sample_of_what_the_old_one_wrote_is_understood() -> None:
    """Without git too."""
    sample = json.loads(SAMPLE.read_text())
    binding = parse_binding(FLOWS, sample["properties"])
    assert binding == BINDING
    snapshots = [
        Snapshot(
            each["snapshot_id"],
            each["parent_id"],
            each["sequence_number"],
            each["operation"],
            each["summary"],
            # What its files' statistics say: the rows that a DELETE rewrote are those of offset 0.
            vector(1, 1) if each["operation"] == "overwrite" else None,
        )
        for each in sample["snapshots"]
    ]
    for snapshot in snapshots:
        if (text := snapshot.watermark_text) is not None:
            assert format_watermark(parse_watermark(text)) == text
    history = History({each.snapshot_id: each for each in snapshots}, sample["refs"][TAG])
    head = sample["refs"]["main"]
    watermark = resolve(history, head, table=str(FLOWS))
    assert (watermark.next.as_dict(), watermark.run) == ({0: 3, 1: 3}, "compatible")
    assert base_snapshot(history, head) == history.snapshots[sample["refs"][TAG]]
