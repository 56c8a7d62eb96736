"""Pictures of what the runs found, as SVG beside the results: read from the JSON files, measured nowhere else."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.sizes import DUCK, ENGINE, FLIGHT

_COLORS = {ENGINE: "#0b7285", DUCK: "#868e96", FLIGHT: "#e8590c"}
# The same input gives the same bytes: no dates, no random ids.
_STYLE: Any = {"svg.hashsalt": "thermocline", "svg.fonttype": "none", "font.size": 9}


def draw(results: Path) -> list[Path]:
    """Draw every picture whose result is there; return the files written."""
    written = []
    for name, (source, picture) in _PICTURES.items():
        path = results / f"{source}.json"
        if not path.exists():
            continue
        with mpl.rc_context(_STYLE):
            figure = picture(json.loads(path.read_text()))
            target = results / f"{name}.svg"
            figure.savefig(target, metadata={"Date": None})
        written.append(target)
    return written


def _latency(side: str) -> Callable[[Mapping[str, Any]], Figure]:
    """Latency of every statement against the rows of one side."""

    def picture(result: Mapping[str, Any]) -> Figure:
        series = result["details"]["series"][side]
        rows = [value["hot_rows" if side == "tail" else "cold_rows"] for value in series]
        names = list(series[0]["ms"])
        figure = Figure(figsize=(11, 3.2), layout="constrained")
        for axes, name in zip(_row(figure, len(names)), names, strict=True):
            for what, color in _COLORS.items():
                values = [value["ms"][name][what]["median"] for value in series]
                axes.plot(rows, values, marker="o", markersize=3, color=color, label=what)
            axes.set(title=name, xscale="log", yscale="log", xlabel=f"{_SIDES[side]} rows")
            axes.yaxis.set_major_formatter("{x:g}")
        figure.axes[0].set_ylabel("median, ms")
        figure.legend(
            *figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3
        )
        return figure

    return picture


def _freshness(result: Mapping[str, Any]) -> Figure:
    """The price of freshness, cumulated: the statement less its twin over a quiet topic."""
    price: Sequence[float] = result["details"]["price, ms"]
    figure = Figure(figsize=(5.5, 3.2), layout="constrained")
    axes = figure.subplots()
    shares = [(index + 1) / len(price) for index in range(len(price))]
    axes.plot(price, shares, color=_COLORS[ENGINE])
    axes.axvline(0, color="#ced4da", linewidth=1)
    for share in (0.5, 0.99):
        axes.axhline(share, color="#ced4da", linewidth=1, linestyle=":")
    low, high = price[int(len(price) * 0.005)], price[int(len(price) * 0.995)]
    margin = (high - low) / 20
    axes.set(
        xlim=(low - margin, high + margin),
        xlabel="at the acknowledgement, less the same statement on a quiet topic, ms",
        ylabel="share of statements",
    )
    return figure


def _throughput(result: Mapping[str, Any]) -> Figure:
    """Rows per second of each publish of the tiering run."""
    publishes = result["details"]["publishes"]
    figure = Figure(figsize=(5.5, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.bar(
        [str(index + 1) for index in range(len(publishes))],
        [publish["rows_per_s"] for publish in publishes],
        color=_COLORS[ENGINE],
    )
    axes.set(xlabel="publish", ylabel="rows per second, fetch to publish")
    return figure


def _row(figure: Figure, count: int) -> Sequence[Axes]:
    axes: Sequence[Axes] = figure.subplots(1, count, squeeze=False, sharey=True)[0]
    return axes


_SIDES = {"tail": "hot", "cold": "cold"}
_PICTURES: dict[str, tuple[str, Callable[[Mapping[str, Any]], Figure]]] = {
    "latency-by-tail": ("sizes", _latency("tail")),
    "latency-by-cold": ("sizes", _latency("cold")),
    "freshness": ("freshness", _freshness),
    "tiering": ("tiering", _throughput),
}
