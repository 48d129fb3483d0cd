from rich.console import Console, RenderableType

from serpette.records import BadFile, Duplicate, Scan, SplitScan
from serpette.report.tables import candidates_table, cost_table, profile_table, scan_table, scores_table

from .factory import comparison, profile, scores, selection

MARKUP = "[bold red]x[/] [/oops] $a$"


def shown(renderable: RenderableType, width: int = 160) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def scan(name: str = "clothes", bad: int = 1) -> Scan:
    def split(kind: str, n: int) -> SplitScan:
        return SplitScan(
            split=kind,
            n=n,
            per_class={MARKUP: n - 10, "bag": 10},
            width=(28, 28, 28),
            height=(20, 28, 900),
            modes={"L": n - 1, "RGBA": 1},
            imbalance=3.5,
            majority_baseline=61.0,
        )

    return Scan(
        name=name,
        layout="folder with train/val/test",
        class_order="alphabetical",
        classes=(MARKUP, "bag", "empty"),
        splits=(split("train", 4000), split("test", 1000)),
        bad=tuple(BadFile(path=f"{MARKUP}/{i}.png", split="train", reason="truncated") for i in range(bad)),
        duplicates=(Duplicate(paths=("train/a.png", "test/b.png"), splits=("train", "test"), classes=("bag",)),),
        notes=("2 files that are not images were ignored",),
        fingerprint="5b1e77c0",
    )


def test_profile_table_has_a_bar_per_site_and_longer_bars_for_important_ones() -> None:
    lines = shown(profile_table(profile(unranked=4))).splitlines()
    rows = {line.split()[0]: line for line in lines if line.split()[:1] and line.split()[0].isdigit()}
    assert len(rows) == 12
    assert rows["0"].count("█") > rows["8"].count("█")
    assert "\N{EN DASH}" in rows["4"]
    assert "attention 0.88" in lines[-1]


def test_candidates_table_shows_failures_and_the_baseline() -> None:
    text = shown(candidates_table(selection()))
    assert "failed: NaN in the logits of 3 images" in text
    assert "baseline" in text
    assert "joint-5" in text
    assert "block 9 and the attention of blocks 6, 7 and 8" in text


def test_cost_table_shows_the_speedup_and_why_energy_is_missing() -> None:
    text = shown(cost_table(comparison()))
    assert "1.18\N{MULTIPLICATION SIGN}" in text
    assert "powercap" in text


def test_scores_table() -> None:
    text = shown(scores_table(scores("m", 90.6, 0.0).model_copy(update={"n_bad": 1})))
    assert "90.60" in text
    assert "refit head, 1 bad file left out" in text


def test_scan_table_lists_what_is_wrong() -> None:
    text = shown(scan_table(scan(bad=30)))
    for part in ("4,000", "28 (20 to 900)", "3.5\N{MULTIPLICATION SIGN}", "30 bad files", "and 20 more", "1 duplicate"):
        assert part in text
    assert "train/a.png = test/b.png (train, test)" in text


def test_names_are_never_markup() -> None:
    for renderable in (
        profile_table(profile(MARKUP)),
        candidates_table(selection(MARKUP)),
        cost_table(comparison(name=MARKUP)),
        scores_table(scores(MARKUP, 90.0, 0.0)),
        scan_table(scan(MARKUP)),
    ):
        assert MARKUP in shown(renderable)


def test_tables_fit_a_narrow_terminal() -> None:
    for renderable in (profile_table(profile()), candidates_table(selection()), scan_table(scan())):
        assert all(len(line) <= 80 for line in shown(renderable, 80).splitlines())
