"""``python -m benchmarks``: run one benchmark, all of them, or print the table of what they found."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import click

from benchmarks import (
    attacks,
    backfill,
    backlog,
    chaos,
    checkouts,
    closed_loop,
    concurrency,
    cut,
    evolving,
    face,
    federated,
    fetch,
    file_count,
    formats,
    freshness,
    keyed,
    live,
    live_engines,
    maintain_hour,
    maintain_idle,
    maintain_pace,
    maintain_serving,
    maintain_year,
    planning,
    plots,
    protocol,
    publishes,
    publishes_rest,
    report,
    sizes,
    soak,
    spark,
    statements,
    store,
    store_readers,
    tabs,
    tail,
    tier_bounds,
    tiering,
    tiering_s3,
    turns,
)

#: In the order of ``all``: the quick ones first.
NAMES = {
    "planning": planning.command,
    "cut": cut.command,
    "protocol": protocol.command,
    "face": face.command,
    "fetch": fetch.command,
    "formats": formats.command,
    "freshness": freshness.command,
    "keyed": keyed.command,
    "live": live.command,
    "live-engines": live_engines.command,
    "file-count": file_count.command,
    "tier-bounds": tier_bounds.command,
    "maintain-idle": maintain_idle.command,
    "maintain-year": maintain_year.command,
    "publishes": publishes.command,
    "publishes-rest": publishes_rest.command,
    "store": store.command,
    "store-readers": store_readers.command,
    "backlog": backlog.command,
    "evolving": evolving.command,
    "maintain-hour": maintain_hour.command,
    "maintain-pace": maintain_pace.command,
    "maintain-serving": maintain_serving.command,
    "tiering": tiering.command,
    "tiering-s3": tiering_s3.command,
    "federated": federated.command,
    "sizes": sizes.command,
    "spark": spark.command,
    "statements": statements.command,
    "tail": tail.command,
    "closed-loop": closed_loop.command,
    "concurrency": concurrency.command,
    "tabs": tabs.command,
}
#: No part of ``all``: two want a folder of its own or another checkout, the others tell of what soaks have left.
ON_REQUEST = {
    "attacks": attacks.command,
    "backfill": backfill.command,
    "chaos": chaos.command,
    "checkouts": checkouts.command,
    "soak": soak.command,
    "turns": turns.command,
}


@click.group(context_settings={"max_content_width": 100})
@click.option(
    "--results",
    type=click.Path(file_okay=False, path_type=Path),
    default=report.RESULTS,
    show_default="benchmarks/results",
    help="Where results go: another folder for runs that are not meant for the README.",
)
@click.pass_context
def main(context: click.Context, results: Path) -> None:
    """Measure Thermocline on real parts; each run leaves <name>.json."""
    context.obj = results


@main.command("all")
@click.pass_obj
def run_all(results: Path) -> None:
    """Run every benchmark at its full size, each in a process of its own; then write the table."""
    failed = [
        name
        for name in NAMES
        if subprocess.run(
            [sys.executable, "-m", "benchmarks", "--results", str(results), name]
        ).returncode
    ]
    if results == report.RESULTS:
        report.write_table()
    plots.draw(results)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


@main.command("table")
@click.option("--write", is_flag=True, help="Put it into benchmarks/README.md too.")
@click.pass_obj
def show_table(results: Path, write: bool) -> None:
    """Print the Markdown table of all results."""
    if write:
        report.write_table()
    click.echo(report.table(report.results(results)))


@main.command("plots")
@click.pass_obj
def draw_plots(results: Path) -> None:
    """Draw what the results say, as SVG beside them."""
    for path in plots.draw(results):
        click.echo(path.name)


for _name, _command in (NAMES | ON_REQUEST).items():
    main.add_command(_command, _name)

if __name__ == "__main__":
    # An exit like any other: brokers stop and folders of gigabytes go.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
