import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import pytest

from serpette.errors import SerpetteError
from serpette.records import Method, Profile, Selection, Site
from serpette.report import charts

from .factory import profile, selection

OF_SELECTION = [charts.accuracy_against_drop, charts.accuracy_against_flops, charts.measured_speed]


def ids(svg: str) -> list[str]:
    return re.findall(r'\bid="([^"]*)"', svg)


@pytest.mark.parametrize("draw", OF_SELECTION)
@pytest.mark.parametrize("method", ["joint", None])
def test_a_chart_is_labelled_svg_without_fixed_ink(draw: Callable[[Selection], str], method: Method | None) -> None:
    svg = draw(selection(method=method, drop=2))
    root = ElementTree.fromstring(svg)
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"]
    assert "width" not in root.attrib
    assert "var(--ink, #1b1d21)" in svg
    assert not re.search(r"(?<!, )#1b1d21", svg)
    assert "<style" not in svg
    assert "DejaVu" not in svg
    assert "<image" not in svg


def test_charts_are_deterministic_and_leave_matplotlib_alone() -> None:
    before = dict(mpl.rcParams)
    assert charts.accuracy_against_drop(selection()) == charts.accuracy_against_drop(selection())
    assert dict(mpl.rcParams) == before


def test_the_users_matplotlibrc_does_not_matter() -> None:
    plain = charts.redundancy_heatmap(profile())
    with mpl.rc_context({"font.size": 30, "axes.grid": False, "svg.fonttype": "path"}):
        assert charts.redundancy_heatmap(profile()) == plain


def test_ids_are_unique_across_charts_and_every_reference_resolves() -> None:
    chosen = selection()
    page = charts.redundancy_heatmap(chosen.profile) + "".join(draw(chosen) for draw in OF_SELECTION)
    assert len(ids(page)) == len(set(ids(page)))
    references = set(re.findall(r'(?:url\(#|href="#)([^")]+)', page))
    assert references == set(ids(page))


@pytest.mark.parametrize("depth", [1, 40])
def test_heatmap_has_a_tooltip_per_site(depth: int) -> None:
    if depth == 1:
        deep = profile().model_copy(update={"depth": 1, "sites": profile().sites[::12]})
    else:
        deep = profile(depth=depth)
    titles = re.findall(r"<title>([^<]*)</title>", charts.redundancy_heatmap(deep))
    assert len(titles) == 3 * depth
    assert titles[0].startswith("block 0: 1 - cos = 0.")


def test_heatmap_marks_sites_that_cannot_be_ranked_or_were_not_measured() -> None:
    broken = profile(unranked=4)
    broken = broken.model_copy(update={"sites": broken.sites[:-1]})
    svg = charts.redundancy_heatmap(broken)
    assert "<title>block 4: not ranked</title>" in svg
    assert "<title>mlp of block 11: not measured</title>" in svg
    assert "<pattern" in svg


def test_heatmap_frames_removed_sites_and_the_sublayers_of_removed_blocks() -> None:
    svg = charts.redundancy_heatmap(profile(), {Site(3, "block"), Site(5, "mlp")})
    framed = re.findall(r"<title>([^:]*):[^<]*, removed</title>", svg)
    assert framed == ["block 3", "attention of block 3", "mlp of block 3", "mlp of block 5"]


def test_equal_or_absent_scores_still_draw() -> None:
    same = profile()
    equal = [site.model_copy(update={"cosine": 1.0}) for site in same.sites]
    none = [site.model_copy(update={"cosine": None}) for site in same.sites]
    nan = [site.model_copy(update={"cosine": float("nan")}) for site in same.sites]
    for sites in (equal, none, nan, []):
        assert "<svg" in charts.redundancy_heatmap(same.model_copy(update={"sites": tuple(sites)}))


def test_every_candidate_that_ran_has_a_mark_and_one_far_below_is_kept_on_the_edge() -> None:
    chosen = selection()
    svg = charts.accuracy_against_flops(chosen)
    ran = [c for c in chosen.candidates if c.error is None]
    assert svg.count("<title>") == len(ran)
    assert "<title>block-6: accuracy 77.8" in svg


def test_a_selection_without_candidates_still_draws() -> None:
    empty = selection(method=None).model_copy(update={"candidates": ()})
    for draw in OF_SELECTION:
        assert "<svg" in draw(empty)


@pytest.mark.parametrize("name", ["a$b$ <b>&", "$\\frac{1}{2}$ %%", "\u6a21\u578b"])
def test_write_heatmap_shows_the_models_name_as_it_is(name: str, tmp_path: Path) -> None:
    path = charts.write_heatmap(profile(name), tmp_path / "new" / "heat.svg")
    texts = [element.text for element in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]
    assert name in texts


def test_write_heatmap_says_when_it_cannot(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(SerpetteError, match="cannot write"):
        charts.write_heatmap(profile(), blocked / "heat.svg")


def test_standalone_needs_no_css_variables(tmp_path: Path) -> None:
    chosen: Profile = profile()
    assert "var(" not in charts.write_heatmap(chosen, tmp_path / "heat.svg").read_text()
