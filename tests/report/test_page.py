import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from serpette.records import Plan
from serpette.report.page import block_states, class_changes, selection_page, write_selection_page
from serpette.report.uncertainty import baseline_interval, paired_interval, turned
from serpette.report.verdict import sites_in_words, verdict

from .factory import CLASSES, scores, selection

EVIL = '<script>alert(1)</script>" onload="x'


class Outline(HTMLParser):
    """Collects the ids, headings and scripts of a page, and checks that its tags nest."""

    void = frozenset({"meta", "br"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.headings: list[int] = []
        self.tags: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = write_selection_page(selection(), tmp_path_factory.mktemp("runs") / "new" / "report.html")
    return path.read_text(encoding="utf-8")


def test_the_page_is_one_small_well_formed_file(page: str) -> None:
    outline = Outline(page)
    assert page.startswith("<!doctype html>")
    assert outline.open == []
    assert len(page.encode()) < 1_500_000
    assert "script" not in outline.tags
    assert "link" not in outline.tags
    assert not re.search(r'(?:src|href)="(?!#)', page)
    assert not re.search(r"@import|url\((?!#)", page)


def test_ids_are_unique_and_headings_in_order(page: str) -> None:
    outline = Outline(page)
    assert len(outline.ids) == len(set(outline.ids))
    assert outline.headings[0] == 1
    assert outline.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(outline.headings, outline.headings[1:], strict=False))


def test_tables_have_captions_and_scopes(page: str) -> None:
    tables = re.findall(r"<table>.*?</table>", page, re.DOTALL)
    assert len(tables) >= 6
    assert all("<caption>" in table for table in tables)
    assert not re.search(r"<th(?![^>]*scope)(?:\s[^>]*)?>", page)


def test_the_page_says_what_a_reader_needs(page: str) -> None:
    for text in (
        "Removing block 9 and the attention of blocks 6, 7 and 8 makes timm:vit_tiny_patch16_224 1.18",
        "NaN in the logits of 3 images",
        "train/bag/0017.png",
        "test-5b1e77c0",
        "The highest validation accuracy wins",
        "/sys/class/powercap is not readable",
        "stratified split 70:15:15, seed 0",
        "torch 2.11.0",
        "sdpa",
        "serpette.load(&#34;runs/demo/model&#34;)",
        *CLASSES,
    ):
        assert text in page


def test_user_text_is_escaped_everywhere() -> None:
    chosen = selection(name=EVIL, classes=(EVIL, "a$b$ <b>&"))
    chosen = chosen.model_copy(update={"rule": EVIL, "load_with": EVIL, "saved_as": EVIL})
    text = selection_page(chosen)
    outline = Outline(text)
    assert outline.tags.count("script") == 0
    assert 'onload="x' not in text
    assert "a$b$ &lt;b&gt;&amp;" in text


def test_a_kept_baseline_has_its_own_page() -> None:
    text = selection_page(selection(method=None))
    assert "Keep timm:vit_tiny_patch16_224 as it is: none of 36 candidates" in text
    assert "Framed cells were removed" not in text
    assert Outline(text).open == []


def test_a_thousand_classes_stay_small() -> None:
    classes = tuple(f"class {i:04d}" for i in range(1000))
    text = selection_page(selection(classes=classes))
    assert len(text.encode()) < 1_500_000
    assert "988 more classes" in text


def test_bare_records_are_enough() -> None:
    chosen = selection()
    bare = chosen.winner_scores.model_copy(update={"fit": None, "correct": (), "per_class": ()})
    cost = chosen.winner_cost.model_copy(update={"speedup": None, "speedup_low": None, "speedup_high": None})
    text = selection_page(
        chosen.model_copy(update={"data": {}, "winner_scores": bare, "winner_cost": cost, "candidates": ()})
    )
    assert Outline(text).open == []


def test_verdicts() -> None:
    assert "lies inside the noise" in verdict(selection(speedup=1.02))
    assert "lies inside the noise" in verdict(selection(speedup=1.1, note="the interval contains 1"))
    slower = verdict(selection(speedup=0.9))
    assert "slower (0.90\N{MULTIPLICATION SIGN}) although it removes" in slower
    assert "90.6\xa0% to 90.2\xa0% (\N{MINUS SIGN}0.4\xa0points)" in slower


def test_sites_in_words() -> None:
    assert sites_in_words(Plan(drop_blocks=(3,))) == "block 3"
    assert sites_in_words(Plan(drop_blocks=(2, 3, 5))) == "blocks 2, 3 and 5"
    both = Plan(drop_attention=(9, 11), drop_mlp=(7,))
    assert sites_in_words(both) == "the attention of blocks 9 and 11 and the MLP of block 7"
    assert sites_in_words(Plan(drop_mlp=tuple(range(10)))) == "10 MLP sublayers"
    assert sites_in_words(Plan()) == "nothing"


def test_block_states() -> None:
    states = block_states(Plan(drop_blocks=(0,), drop_attention=(1,), drop_mlp=(2,)), 4)
    assert [state.words for state in states] == ["removed", "attention removed", "MLP removed", "kept"]


def test_classes_that_suffer_most_come_first_and_empty_ones_last() -> None:
    before, after = scores("m", 90.0, 0.0), scores("m", 89.0, 1.0)
    empty = after.per_class[3].model_copy(update={"recall": None})
    after = after.model_copy(update={"per_class": (*after.per_class[:3], empty, *after.per_class[4:])})
    changes = [item.change for item in class_changes(before, after)]
    assert changes[-1] is None
    known = [change for change in changes if change is not None]
    assert known == sorted(known)


def test_paired_changes_follow_the_images() -> None:
    before, after = scores("m", 90.6, 0.0), scores("m", 90.2, 0.5)
    assert turned(before, after) == (9, 5)
    ends = paired_interval(before, after)
    assert ends is not None
    assert sum(ends) / 2 == pytest.approx(-0.4)
    assert turned(before, after.model_copy(update={"correct": (True,)})) is None
    assert paired_interval(before, after.model_copy(update={"correct": ()})) is None


def test_baseline_interval_is_wilsons() -> None:
    # 910 of 1,000, as statsmodels' proportion_confint(910, 1000, method="wilson") gives it
    assert baseline_interval(selection()) == pytest.approx((89.066, 92.619), abs=0.01)


def test_the_report_needs_no_torch() -> None:
    code = (
        "import sys, serpette.report.page, serpette.report.tables;"
        "sys.exit(bool({'torch', 'timm', 'transformers', 'matplotlib.pyplot'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
