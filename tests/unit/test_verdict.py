import datetime as dt
import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from planner.errors import BadParameter
from planner.offsets import OffsetRange
from planner.seam.watermark import Outcomes
from planner.verification.findings import Coverage, Fault, ForeignChange, Kind, Report
from thermocline.commands.verify import parse_since
from thermocline.verify_report import MAX_FAULTS, document, say, verdict

NOW_S = 1_790_000_000.0
SOUND = Report(
    table="lake.net.flows",
    topic="flows",
    snapshot_id=7,
    with_values=True,
    findings=(),
    more=(),
    changes=(),
    coverage=(Coverage(OffsetRange(0, 0, 1000), 0, 1000),),
    outcomes=Outcomes(rows=990, skipped=1, tombstones=9),
    cold_rows=990,
    unchecked=(),
    decisions=(),
)
HOLE = Fault(Kind.MISSING, "partition 0, offset 3: gone", OffsetRange(0, 3, 4), 1, None, ("a",))


def said(report: Report) -> str:
    out = io.StringIO()
    say(Console(file=out, width=500, highlight=False), report)
    return out.getvalue()


def test_a_sound_table_is_said_in_one_line_with_how_sure_it_is() -> None:
    assert said(SOUND) == (
        "lake.net.flows  snapshot 7  no faults: all of 1,000 offsets below the watermark compared with the log "
        "value by value; 990 rows, 9 tombstones, 1 skipped; 990 rows in cold\n"
    )


def test_what_was_not_compared_lowers_how_sure_it_is() -> None:
    partly = replace(
        SOUND, with_values=False, coverage=(Coverage(OffsetRange(0, 250, 1000), 0, 1000),)
    )
    assert "750 (75.0 %) of 1,000 offsets" in verdict(partly)
    assert "offset by offset" in verdict(partly)
    assert "no offset of this table" in verdict(replace(SOUND, coverage=()))


def test_findings_changes_and_what_was_not_checked_follow() -> None:
    report = replace(
        SOUND,
        findings=(HOLE,),
        more=((Kind.VALUE, 12_000),),
        changes=(ForeignChange(9, "overwrite", 2, 1, (0, 5)),),
        decisions=("foreign snapshot 4 accepted",),
        unchecked=("the moon",),
    )
    assert said(report).splitlines()[1:] == [
        "  missing: partition 0, offset 3: gone  (a)",
        "  value: 12,000 more rows, not listed",
        "  changed since tiering, by snapshot 9 (overwrite): 2 rows changed, 1 deleted, first at partition 0, "
        "offset 5",
        "  foreign snapshot 4 accepted",
        "  not checked: the moon",
    ]
    assert "2 findings" in verdict(report)


def test_many_findings_are_cut_for_people_and_not_for_programs() -> None:
    report = replace(SOUND, findings=(HOLE,) * (MAX_FAULTS + 3))
    assert "  ... and 3 more; --json lists them" in said(report)
    fields = document(report)
    assert len(fields["findings"]) == MAX_FAULTS + 3
    assert fields["findings"][0] == {
        "kind": "missing",
        "message": "partition 0, offset 3: gone",
        "partition": 0,
        "start": 3,
        "stop": 4,
        "rows": 1,
        "snapshot_id": None,
        "files": ["a"],
    }
    assert (fields["clean"], fields["compared_offsets"], fields["compared"]) == (
        False,
        1000,
        "values",
    )
    json.dumps(fields)


@pytest.mark.parametrize(
    ("text", "before_s"),
    [("90m", 5400), ("24h", 86_400), ("1.5 d", 129_600), ("2w", 1_209_600)],
)
def test_since_takes_durations(text: str, before_s: float) -> None:
    assert parse_since(text, NOW_S) == int((NOW_S - before_s) * 1000)


def test_since_takes_times_and_nothing_else() -> None:
    moment = dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC)
    assert parse_since("2026-01-02T03:00Z", NOW_S) == int(moment.timestamp() * 1000)
    for text, why in (("yesterday", "neither a duration"), ("2999-01-01", "in the future")):
        with pytest.raises(BadParameter, match=why):
            parse_since(text, NOW_S)
