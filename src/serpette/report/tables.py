"""Records as tables for the terminal. What users named is shown as it is, never read as markup."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from serpette.records import PARTS, Cost, Part, Profile, Scan, Scores, Selection, SiteScore
from serpette.report.costs import cost_rows
from serpette.report.formats import DASH, PART_NAMES, TIMES, count, hundredths, number, percent
from serpette.report.importance import importance, importance_position, importance_range
from serpette.report.verdict import sites_in_words

_BAR = 12
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_BAD = 10  # files and duplicates that are listed one by one


def profile_table(profile: Profile) -> Table:
    """Importance, 1 - cosine, of every site, with bars on a logarithmic scale; the least of each kind in bold."""
    low, high = importance_range(profile)
    scores = {(site.block, site.part): site for site in profile.sites}
    table = _table(f"Importance (1 - cosine) of {profile.model.name} on {count(profile.images, 'image')}", "block")
    least: dict[Part, float] = {}
    for part in PARTS:
        table.add_column(PART_NAMES[part], justify="right")
        table.add_column("", min_width=_BAR)
        least[part] = min((v for site in profile.part(part) if (v := importance(site)) is not None), default=0.0)
    for block in range(profile.depth):
        cells: list[Text] = []
        for part in PARTS:
            value = _importance(scores.get((block, part)))
            style = "bold" if value == least[part] else ""
            cells.append(Text(number(value), style=style))
            bar = "" if value is None else _bar(importance_position(value, low, high))
            cells.append(Text(bar, style=f"{style} green".strip()))
        table.add_row(Text(str(block)), *cells)
    stability = ", ".join(f"{PART_NAMES[part]} {hundredths(tau)}" for part, tau in profile.stability.items())
    table.caption = Text(f"Stability of the ranking (Kendall's tau between halves): {stability}")
    return table


def candidates_table(selection: Selection) -> Table:
    """Every candidate with its validation accuracy, the baseline first, the winner in bold."""
    name = selection.model.name
    table = _table(f"Candidates for {name}", "candidate", "removed", "validation", "GFLOPs", "FLOPs removed")
    for column in table.columns[2:]:
        column.justify = "right"
    baseline, winner = selection.baseline, selection.winner
    best = "bold green" if winner.method == "baseline" else ""
    top1, flops = percent(baseline.validation_top1), number(baseline.gflops)
    table.add_row("baseline", "nothing", top1, flops, percent(0.0), style=best)
    for candidate in selection.candidates:
        label, sites = Text(candidate.plan.label), Text(sites_in_words(candidate.plan))
        if candidate.error is not None:
            table.add_row(label, sites, Text(f"failed: {candidate.error}"), DASH, DASH, style="dim")
            continue
        table.add_row(
            label,
            sites,
            percent(candidate.validation_top1),
            number(candidate.gflops),
            percent(candidate.gflops_reduction),
            style="bold green" if candidate.plan == winner.plan and winner.method != "baseline" else "",
        )
    return table


def cost_table(cost: Cost) -> Table:
    """The cost of one model; beside that of the model that it was compared against, if there is one."""
    name = cost.model.name
    if cost.baseline is None:
        table = _table(f"Cost of {name}", "", "measured", "note")
        rows: list[tuple[str, ...]] = [(row.name, row.after, row.note) for row in cost_rows(cost, cost)]
    else:
        base = cost.baseline.model.name
        title = f"Cost of {name}" if name == base else f"Cost of {name} against {base}"
        table = _table(title, "", "baseline", "pruned", "change", "note")
        rows = [tuple(row) for row in cost_rows(cost.baseline, cost)]
    for column in table.columns[1:-1]:
        column.justify = "right"
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def scores_table(scores: Scores) -> Table:
    """The accuracy of one model on one split."""
    title = f"{scores.model.name} on {scores.data.name}, {scores.data.split}: {count(scores.n, 'image')}"
    table = _table(title, "", "percent")
    table.columns[1].justify = "right"
    for name, value in (
        ("top-1", scores.top1),
        (f"top-{scores.top_k}", scores.top5),
        ("balanced accuracy", scores.balanced_accuracy),
        ("macro precision", scores.macro_precision),
        ("macro recall", scores.macro_recall),
        ("macro F1", scores.macro_f1),
        ("majority-class baseline", scores.majority_baseline),
    ):
        table.add_row(name, f"{value:.2f}")
    left_out = f", {count(scores.n_bad, 'bad file')} left out" if scores.n_bad else ""
    table.caption = Text(f"{scores.head} head{left_out}")
    return table


def scan_table(scan: Scan) -> RenderableType:
    """Counts per split and class, sizes and modes, then bad files, duplicates across splits and notes."""
    splits = _table(
        f"{scan.name} ({scan.layout})", "split", "images", "width", "height", "modes", "imbalance", "majority"
    )
    classes = _table(f"Images per class ({scan.class_order})", "class")
    for split in scan.splits:
        splits.add_row(
            Text(split.split),
            f"{split.n:,}",
            _sizes(split.width),
            _sizes(split.height),
            Text(", ".join(f"{mode} {n:,}" for mode, n in split.modes.items())),
            DASH if split.imbalance is None else f"{split.imbalance:.1f}{TIMES}",
            percent(split.majority_baseline),
        )
        classes.add_column(Text(split.split), justify="right")
    for name in scan.classes:
        classes.add_row(Text(name), *(f"{split.per_class.get(name, 0):,}" for split in scan.splits))
    bad = [f"{file.path}: {file.reason}" for file in scan.bad]
    twins = [f"{' = '.join(twin.paths)} ({', '.join(twin.splits)})" for twin in scan.duplicates]
    return Group(
        splits,
        classes,
        *_lines(count(len(bad), "bad file"), bad, "red"),
        *_lines(count(len(twins), "duplicate") + " across splits", twins, "red"),
        *_lines(count(len(scan.notes), "note"), scan.notes, "yellow"),
    )


def _table(title: str, *columns: str) -> Table:
    table = Table(*columns, title=Text(title, style="bold"), title_justify="left", caption_justify="left", box=None)
    table.padding = (0, 2, 0, 0)
    table.min_width = min(len(title), 72)  # a narrow table does not fold its title
    return table


def _bar(position: float) -> str:
    """A bar of eighths of a character; the lowest position still shows one eighth."""
    full, rest = divmod(max(round(position * _BAR * 8), 1), 8)
    return "█" * full + _EIGHTHS[rest].strip()


def _importance(site: SiteScore | None) -> float | None:
    return None if site is None else importance(site)


def _sizes(sizes: tuple[int, int, int]) -> str:
    smallest, median, largest = sizes
    return f"{median}" if smallest == largest else f"{median} ({smallest} to {largest})"


def _lines(heading: str, lines: list[str] | tuple[str, ...], style: str) -> list[Text]:
    if not lines:
        return []
    more = [f"and {len(lines) - _BAD:,} more"] if len(lines) > _BAD else []
    return [Text(f"\n{heading}", style=style), *(Text(f"  {line}") for line in [*lines[:_BAD], *more])]
