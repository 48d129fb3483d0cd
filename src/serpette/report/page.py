"""A selection as one self-contained HTML page: no scripts, no network, light and dark."""

from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from serpette.files import write_text
from serpette.records import Plan, Scores, Selection
from serpette.report import charts, formats
from serpette.report.costs import cost_rows
from serpette.report.importance import importance
from serpette.report.palette import css_variables
from serpette.report.uncertainty import baseline_interval, paired_interval, turned
from serpette.report.verdict import inside_noise, sites_in_words, verdict


class ClassChange(NamedTuple):
    """The accuracy of one class before and after pruning, in percent."""

    name: str
    n: int
    before: float | None
    after: float | None

    @property
    def change(self) -> float | None:
        """Points gained; `None` where the class has no images."""
        return None if self.before is None or self.after is None else self.after - self.before


class BlockState(NamedTuple):
    """What is left of one block."""

    block: int
    attention: bool
    mlp: bool

    @property
    def words(self) -> str:
        """The state for readers who do not see the drawing."""
        left = {(True, True): "kept", (False, False): "removed", (False, True): "attention removed"}
        return left.get((self.attention, self.mlp), "MLP removed")


def selection_page(selection: Selection) -> str:
    """The report of one selection as HTML."""
    removed = selection.winner.plan.sites
    return (
        _environment()
        .get_template("selection.html.j2")
        .render(
            s=selection,
            verdict=verdict(selection),
            noise=inside_noise(selection),
            removed_words=sites_in_words(selection.winner.plan),
            blocks=block_states(selection.winner.plan, selection.model.depth),
            heatmap=Markup(charts.redundancy_heatmap(selection.profile, removed)),
            drop_chart=Markup(charts.accuracy_against_drop(selection)),
            flops_chart=Markup(charts.accuracy_against_flops(selection)),
            speed_chart=Markup(charts.measured_speed(selection)),
            baseline_interval=baseline_interval(selection),
            paired_interval=paired_interval(selection.baseline_scores, selection.winner_scores),
            turned=turned(selection.baseline_scores, selection.winner_scores),
            costs=cost_rows(selection.baseline_cost, selection.winner_cost),
            classes=class_changes(selection.baseline_scores, selection.winner_scores),
        )
    )


def write_selection_page(selection: Selection, path: Path) -> Path:
    """Write the report of one selection.

    Raises:
        SerpetteError: the folder cannot be written.
    """
    return write_text(path, selection_page(selection))


def class_changes(before: Scores, after: Scores) -> list[ClassChange]:
    """The classes, joined by name, those that lose most first."""
    pruned = {score.name: score for score in after.per_class}
    changes = [
        ClassChange(old.name, old.n, old.recall, new.recall)
        for old in before.per_class
        if (new := pruned.get(old.name)) is not None
    ]
    return sorted(changes, key=lambda item: float("inf") if item.change is None else item.change)


def block_states(plan: Plan, depth: int) -> list[BlockState]:
    """What a plan leaves of each block."""
    without_attention = {*plan.drop_blocks, *plan.drop_attention}
    without_mlp = {*plan.drop_blocks, *plan.drop_mlp}
    return [BlockState(i, i not in without_attention, i not in without_mlp) for i in range(depth)]


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("serpette", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        name: getattr(formats, name)
        for name in ("number", "percent", "points", "signed", "times", "hundredths", "change")
    }
    environment.globals |= {
        "count": formats.count,
        "css_variables": css_variables,
        "dash": formats.DASH,
        "importance": importance,
        "part_names": formats.PART_NAMES,
        "sites_in_words": sites_in_words,
    }
    return environment
