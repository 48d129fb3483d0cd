"""The charts of the report, drawn by matplotlib, as SVG."""

import math
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from statistics import mean
from typing import Any, TypeVar

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator, NullLocator

from serpette.files import write_text
from serpette.records import METHODS, PARTS, Candidate, Cost, Method, Profile, Selection, Site
from serpette.report.formats import PART_NAMES, interval, number, percent
from serpette.report.importance import importance, importance_range
from serpette.report.palette import light
from serpette.report.svg import TIP, inline, standalone, style
from serpette.report.uncertainty import baseline_interval

A = TypeVar("A", bound=Artist)
MARKERS: dict[Method, str] = {
    "block": "s",
    "attention": "o",
    "mlp": "^",
    "joint": "D",
    "contiguous": "v",
    "random": "X",
    "deepest": "P",
    "manual": "h",
}
_WIDTH = 8.0
_ZOOM = 10.0  # percentage points below the baseline that the decision chart shows


def redundancy_heatmap(profile: Profile, removed: Collection[Site] = ()) -> str:
    """How much each site changes the stream, 1 - cos, on a logarithmic scale; `removed` sites are framed."""
    return inline(_heatmap(profile, removed), _heatmap_label(profile))


def write_heatmap(profile: Profile, path: Path) -> Path:
    """Write the heatmap as an SVG file of its own.

    Raises:
        SerpetteError: the folder cannot be written.
    """
    return write_text(path, standalone(_heatmap(profile, ()), _heatmap_label(profile), profile.model.name))


def accuracy_against_drop(selection: Selection) -> str:
    """Validation accuracy and FLOPs reduction against the drop count, one line per method."""
    with style():
        figure = Figure(figsize=(_WIDTH, 3.6), layout="constrained")
        accuracy, flops = figure.subplots(1, 2, width_ratios=(3, 2))
        accuracy.set_title("Validation accuracy (%)")
        flops.set_title("FLOPs removed (%)")
        _draw_baseline(accuracy, selection)
        for method, candidates in _by_method(selection).items():
            for axes, start, heights in (
                (accuracy, selection.baseline.validation_top1, [c.validation_top1 for c in candidates]),
                (flops, 0.0, [c.gflops_reduction for c in candidates]),
            ):
                _draw_line(axes, method, candidates, start, heights)
        _ring(accuracy, float(selection.winner.drop), selection.winner.validation_top1)
        _ring(flops, float(selection.winner.drop), selection.winner.gflops_reduction)
        for axes in (accuracy, flops):
            axes.set_xlabel("sites removed")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.set_xlim(left=-0.2)
        _legend(figure, selection)
    return inline(figure, "Validation accuracy and FLOPs removed against the number of sites removed, per method.")


def accuracy_against_flops(selection: Selection) -> str:
    """Validation accuracy against FLOPs reduction for all candidates, near the baseline.

    Candidates far below the baseline lie as open marks on the lower edge.
    """
    with style():
        figure = Figure(figsize=(_WIDTH, 3.6), layout="constrained")
        axes = figure.subplots()
        axes.set_title("Validation accuracy (%)")
        axes.set_xlabel("FLOPs removed (%)")
        _draw_baseline(axes, selection)
        floor = selection.baseline.validation_top1 - _ZOOM
        for method, candidates in _by_method(selection).items():
            for candidate in candidates:
                top1, flops = candidate.validation_top1, candidate.gflops_reduction
                if top1 is not None and flops is not None:
                    _mark(axes, method, flops, max(top1, floor), candidate, hollow=top1 < floor)
        _ring(axes, selection.winner.gflops_reduction, max(selection.winner.validation_top1, floor))
        _legend(figure, selection)
    return inline(figure, "Validation accuracy against FLOPs removed, one mark per candidate.")


def measured_speed(selection: Selection) -> str:
    """Images per second of baseline and winner, measured, with 95 % intervals."""
    costs = {"baseline": selection.baseline_cost, "winner": selection.winner_cost}
    colours = {"baseline": (light("muted"), 0.4), "winner": (light("accent"), 0.6)}
    with style():
        figure = Figure(figsize=(4.5, 1.1), layout="constrained")
        axes = figure.subplots()
        axes.set_title(f"Images per second at batch {selection.winner_cost.infer_batch_size}, with 95 % interval")
        for row, (name, cost) in enumerate(costs.items()):
            bar = axes.barh(row, cost.infer_samples_per_sec, height=0.5, color=colours[name])[0]
            _tip(bar, f"{name}: {_speed(cost)}")
            ends = (cost.infer_samples_per_sec_low, cost.infer_samples_per_sec_high)
            axes.plot(ends, (row, row), color=light("ink"), linewidth=1.4, marker="|", markersize=7)
            axes.annotate(
                number(cost.infer_samples_per_sec),
                (max(ends[1], cost.infer_samples_per_sec), row),
                (8, 0),
                textcoords="offset points",
                va="center",
            )
        axes.set_yticks(range(len(costs)), list(costs))
        axes.tick_params(axis="y", length=0, labelcolor=light("ink"))
        axes.invert_yaxis()
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(False)
        axes.xaxis.set_major_locator(NullLocator())
        axes.margins(x=0.15)
    label = "; ".join(f"{name} {_speed(cost)}" for name, cost in costs.items())
    return inline(figure, f"Measured speed: {label}.")


def _speed(cost: Cost) -> str:
    ends = interval(cost.infer_samples_per_sec_low, cost.infer_samples_per_sec_high)
    return f"{number(cost.infer_samples_per_sec)} images per second, 95 % interval {ends}"


def _heatmap_label(profile: Profile) -> str:
    return f"Heatmap of 1 minus cosine for the block, attention and MLP of each of the {profile.depth} blocks."


def _heatmap(profile: Profile, removed: Collection[Site]) -> Figure:
    low, high = importance_range(profile)
    norm, colours = LogNorm(low, high, clip=True), mpl.colormaps["viridis"].resampled(32)
    whole = {site.block for site in removed if site.part == "block"}
    scores = {(site.block, site.part): site for site in profile.sites}
    with style():
        figure = Figure(figsize=(_WIDTH, 2.3), layout="constrained")
        axes = figure.subplots()
        for row, part in enumerate(PARTS):
            for block in range(profile.depth):
                site, score = Site(block, part), scores.get((block, part))
                value = importance(score) if score else None
                gone = site in removed or block in whole
                cell = _cell(block, row, inset=0.13 if gone else 0.03)
                if value is None:
                    cell.set(facecolor="none", edgecolor=light("muted"), hatch="////", linewidth=0.6)
                    text = "not ranked" if score else "not measured"
                else:
                    shade = colours(norm(value))
                    cell.set(facecolor=shade, edgecolor="none")
                    bright = 0.299 * shade[0] + 0.587 * shade[1] + 0.114 * shade[2] > 0.5
                    axes.text(
                        block,
                        row,
                        _short(value),
                        ha="center",
                        va="center",
                        fontsize=min(8.5, 8.5 * 18 / profile.depth + 2),
                        rotation=90 if profile.depth > 14 else 0,
                        color="#101014" if bright else "#fafafa",
                        in_layout=False,
                    )
                    text = f"1 - cos = {number(value)}"
                axes.add_patch(_tip(cell, f"{site}: {text}{', removed' if gone else ''}"))
                if gone:
                    axes.add_patch(_cell(block, row, inset=0.04, fill=False, edgecolor=light("accent"), linewidth=1.8))
        axes.set(xlim=(-0.5, profile.depth - 0.5), ylim=(len(PARTS) - 0.5, -0.5), xlabel="block")
        axes.set_yticks(range(len(PARTS)), [PART_NAMES[part] for part in PARTS])
        axes.xaxis.set_major_locator(MaxNLocator("auto" if profile.depth > 24 else profile.depth, integer=True))
        axes.tick_params(length=0)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        bar = figure.colorbar(ScalarMappable(norm, colours), ax=axes, fraction=0.03, pad=0.015, aspect=12)
        ticks = [tick for tick in (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0) if low <= tick <= high]
        bar.ax.yaxis.set_major_locator(FixedLocator(ticks))
        bar.ax.yaxis.set_major_formatter(FixedFormatter([f"{tick:g}" for tick in ticks]))
        bar.ax.yaxis.set_minor_locator(NullLocator())
        bar.ax.set_title("1 \N{MINUS SIGN} cos", fontsize=8.5, color=light("muted"))
        bar.outline.set_visible(False)
    return figure


def _cell(block: int, row: int, inset: float, **look: Any) -> Rectangle:
    return Rectangle((block - 0.5 + inset / 2, row - 0.5 + inset / 2), 1 - inset, 1 - inset, **look)


def _short(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}" if value >= 0.001 else f"{value:.0e}".replace("e-0", "e-")


def _by_method(selection: Selection) -> dict[Method, list[Candidate]]:
    """The candidates that did not fail, by method, in the order of METHODS, then of the drop count."""
    groups: dict[Method, list[Candidate]] = {}
    for method in (*METHODS, "manual"):
        ran = [c for c in selection.candidates if c.method == method and c.validation_top1 is not None]
        if ran:
            groups[method] = sorted(ran, key=lambda c: c.drop)
    return groups


def _draw_line(
    axes: Axes, method: Method, candidates: list[Candidate], start: float, heights: list[float | None]
) -> None:
    """A mark per candidate, and a line from the baseline through the mean at each drop count."""
    at_drop: dict[int, list[float]] = defaultdict(list, {0: [start]})
    for candidate, height in zip(candidates, heights, strict=True):
        if height is not None:
            at_drop[candidate.drop].append(height)
            _mark(axes, method, float(candidate.drop), height, candidate)
    axes.plot(list(at_drop), [mean(values) for values in at_drop.values()], color=light(method), zorder=2)


def _mark(axes: Axes, method: Method, x: float, y: float, candidate: Candidate, hollow: bool = False) -> None:
    face = light("paper") if hollow else light(method)
    (mark,) = axes.plot([x], [y], MARKERS[method], color=light(method), markerfacecolor=face, zorder=3)
    mark.set_clip_on(False)
    _tip(
        mark,
        f"{candidate.plan.label}: accuracy {percent(candidate.validation_top1)}, "
        f"FLOPs removed {percent(candidate.gflops_reduction)}",
    )


def _ring(axes: Axes, x: float, y: float) -> None:
    axes.plot([x], [y], "o", markersize=14, fillstyle="none", color=light("ink"), markeredgewidth=1.3, clip_on=False)


def _draw_baseline(axes: Axes, selection: Selection) -> None:
    top1 = selection.baseline.validation_top1
    axes.axhline(top1, color=light("muted"), linestyle=(0, (4, 3)), linewidth=1.1, zorder=1)
    ends = baseline_interval(selection)
    if ends:
        axes.axhspan(*ends, color=light("muted"), alpha=0.13, linewidth=0, zorder=0)


def _legend(figure: Figure, selection: Selection) -> None:
    handles = [
        Line2D([], [], color=light(method), marker=MARKERS[method], label="MLP" if method == "mlp" else method)
        for method in _by_method(selection)
    ]
    ring: dict[str, Any] = {"marker": "o", "markersize": 11, "fillstyle": "none", "linestyle": "none"}
    handles.append(Line2D([], [], color=light("muted"), linestyle=(0, (4, 3)), linewidth=1.1, label="baseline"))
    handles.append(Line2D([], [], color=light("ink"), label="winner", **ring))
    columns = len(handles) if len(handles) <= 8 else math.ceil(len(handles) / 2)
    figure.legend(handles=handles, loc="outside upper left", ncols=columns, columnspacing=1.3)


def _tip(artist: A, text: str) -> A:
    artist.set_gid(TIP + text)
    artist.set_in_layout(False)
    return artist
