"""One benchmark of two checkouts in turns: did a change cost it time? The other one runs twice a turn, which shows the noise."""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import click

from benchmarks.report import recorded

_THIS = Path(__file__).resolve().parents[1]
#: What a run is, and whose: the other checkout's first and second, and this one's.
_ROLES = ("other", "again", "this")
#: Figures of one moment say nothing in so few turns.
_MOMENTS = ("p99", "longest")
_RATES = ("rows/s",)
_SIZES = ("", "B", "MiB", "files")


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
@click.option("--other", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True,
              help="The checkout to compare with; it has a .venv of its own.")  # fmt: skip
@click.option("--turns", type=click.IntRange(1), default=20, show_default=True)
@click.option("--seed", default=1, show_default=True, help="Of the order inside a turn.")
@click.pass_obj
def command(
    results: Path, name: str, options: tuple[str, ...], other: Path, turns: int, seed: int
) -> None:
    """Benchmark NAME of this checkout and of another one in turns; OPTIONS are the benchmark's.

    A ratio above 1 means that this one takes longer.
    """
    checkouts = {"other": other, "again": other, "this": _THIS}
    chance = random.Random(seed)
    with recorded(results, f"turns-{name}") as report:
        ratios: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for turn in range(turns):
            order = chance.sample(_ROLES, len(_ROLES))
            runs = {role: _run(checkouts[role], name, options) for role in order}
            for what, pair in _ratios(runs):
                ratios[what].append(pair)
            click.echo(f"turn {turn + 1} of {turns}", err=True)
        for what, pairs in ratios.items():
            for role, values in zip(
                ("", ", other / other"), zip(*pairs, strict=True), strict=True
            ):
                low, high = _interval(values, chance)
                report.figure(f"{what}{role}", median(values), f"({low:.3f} to {high:.3f})")
        medians = [median(this for this, _ in pairs) for pairs in ratios.values()]
        report.figure("median of all", median(medians), "", at_most=1.05)
        report.details |= {"turns": turns, "benchmark": [name, *options]}


def _run(checkout: Path, name: str, options: Sequence[str]) -> dict[str, tuple[float, str]]:
    """Return values and units by figure."""
    with tempfile.TemporaryDirectory(prefix="thermocline-turns-") as folder:
        python = checkout / ".venv" / "bin" / "python"
        arguments = ["-m", "benchmarks", "--results", folder, name, *options]
        subprocess.run(
            [python, *arguments], cwd=checkout, stdout=subprocess.DEVNULL, check=True
        )
        (written,) = Path(folder).glob("*.json")
        figures = json.loads(written.read_text())["figures"]
    return {each["what"]: (each["value"], each["unit"]) for each in figures}


def _ratios(
    runs: dict[str, dict[str, tuple[float, str]]],
) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield for each figure this checkout's value over the mean of the other's two, and these two over each other."""
    for what, (_, unit) in runs["this"].items():
        if not all(what in each for each in runs.values()):
            continue
        this, other, again = (runs[role][what][0] for role in ("this", "other", "again"))
        if (
            unit in _SIZES
            or any(word in what for word in _MOMENTS)
            or not all((this, other, again))
        ):
            continue
        pair = this / ((other + again) / 2), again / other
        yield what, (1 / pair[0], 1 / pair[1]) if unit in _RATES else pair


def _interval(values: Sequence[float], chance: random.Random) -> tuple[float, float]:
    """Return the bounds of the median with nine chances in ten, by resampling."""
    medians = sorted(median(chance.choices(values, k=len(values))) for _ in range(2_000))
    return medians[100], medians[1_900]
