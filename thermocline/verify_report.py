"""What ``verify`` found, as text for people and as a document for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape

from planner.offsets import OffsetRange
from planner.verification.findings import Report

#: Lines of findings shown to people; ``--json`` has up to 1,000 with their places.
MAX_FAULTS = 50


def say(console: Console, report: Report) -> None:
    """Print a report: the verdict first, then findings, then what was not checked."""
    style = "green" if report.is_clean else "red"
    console.print(
        f"[bold]{escape(report.table)}[/bold]  snapshot {report.snapshot_id}  "
        f"[{style}]{verdict(report)}[/{style}]",
        soft_wrap=True,
    )
    for finding in report.findings[:MAX_FAULTS]:
        files = f"  ({', '.join(finding.files)})" if finding.files else ""
        console.print(
            f"  [red]{finding.kind}[/red]: {escape(finding.message)}{escape(files)}",
            soft_wrap=True,
        )
    left = len(report.findings) - MAX_FAULTS
    if left > 0:
        console.print(f"  ... and {left} more; --json lists them")
    for kind, rows in report.more:
        console.print(f"  [red]{kind}[/red]: {rows:,} more rows, not listed")
    for change in report.changes:
        partition, offset = change.example
        console.print(
            f"  changed since tiering, by snapshot {change.snapshot_id} ({change.operation}): {change.changed:,} "
            f"rows changed, {change.deleted:,} deleted, first at partition {partition}, offset {offset}",
            soft_wrap=True,
        )
    for decision in report.decisions:
        console.print(f"  {escape(decision)}", soft_wrap=True)
    for note in report.unchecked:
        console.print(f"  not checked: {escape(note)}", soft_wrap=True)


def verdict(report: Report) -> str:
    """Say in one line what was found, and how sure that is."""
    faults = len(report.findings) + len(report.more)
    summary = "no faults" if report.is_clean else f"{faults} finding{'s' * (faults != 1)}"
    return f"{summary}: {sureness(report)}"


def sureness(report: Report) -> str:
    compared, covered = report.compared_offsets, report.covered_offsets
    what = "value by value" if report.with_values else "offset by offset"
    if not covered:
        return "no offset of this table lies below its watermark"
    percent = 100 * compared / covered
    amount = "all" if compared == covered else f"{compared:,} ({percent:.1f} %)"
    rows, *others = report.outcomes.texts
    counts = ", ".join([rows, *reversed(others)])
    return (
        f"{amount} of {covered:,} offsets below the watermark compared with the log {what}; {counts}; "
        f"{report.cold_rows:,} rows in cold"
    )


def document(report: Report) -> dict[str, Any]:
    """Return the report as JSON values. Ranges are half-open: ``stop`` is exclusive."""
    return {
        "table": report.table,
        "topic": report.topic,
        "snapshot_id": report.snapshot_id,
        "clean": report.is_clean,
        "sureness": sureness(report),
        "compared": "values" if report.with_values else "offsets",
        "compared_offsets": report.compared_offsets,
        "covered_offsets": report.covered_offsets,
        "outcomes": asdict(report.outcomes),
        "cold_rows": report.cold_rows,
        "findings": [
            {
                "kind": finding.kind.value,
                "message": finding.message,
                **_range(finding.offsets),
                "rows": finding.rows,
                "snapshot_id": finding.snapshot_id,
                "files": list(finding.files),
            }
            for finding in report.findings
        ],
        "more": {kind.value: rows for kind, rows in report.more},
        "changed_since_tiering": [asdict(change) for change in report.changes],
        "partitions": [
            {**_range(each.compared), "first_covered": each.floor, "watermark": each.watermark}
            for each in report.coverage
        ],
        "decisions": list(report.decisions),
        "not_checked": list(report.unchecked),
    }


def _range(offsets: OffsetRange | None) -> dict[str, int | None]:
    if offsets is None:
        return {"partition": None, "start": None, "stop": None}
    return {"partition": offsets.partition, "start": offsets.start, "stop": offsets.stop}
