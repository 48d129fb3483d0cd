"""Write the results table between the markers of README.md from the records in docs/results.

python scripts/update_readme.py [--check]
"""

import argparse
import sys
from pathlib import Path

from serpette.records import Selection

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- results: written by scripts/update_readme.py -->", "<!-- end of results -->"


def table(selections: list[Selection]) -> str:
    lines = [
        "| model | data | removed | FLOPs | test accuracy, % | images/s | speed-up |",
        "|---|---|---|---|---|---|---|",
    ]
    for s in selections:
        low, high = s.winner_cost.speedup_low, s.winner_cost.speedup_high
        lines.append(
            f"| {Path(s.model.name).name}, {s.model.image_size} px | {s.data['test'].name} "
            f"| {', '.join(map(str, s.winner.plan.sites)) or 'nothing'} | -{s.winner.gflops_reduction:.1f} % "
            f"| {s.baseline.test_top1:.1f} → {s.winner.test_top1:.1f} "
            f"| {s.baseline_cost.infer_samples_per_sec:.0f} → {s.winner_cost.infer_samples_per_sec:.0f} "
            f"| {s.winner.speedup:.2f} x ({low:.2f}-{high:.2f}) |"
        )
    machines = sorted({f"{s.provenance.device}, {s.provenance.dtype}, torch {s.provenance.torch}" for s in selections})
    return "\n".join([*lines, "", f"Measured on {'; '.join(machines)}; 95 % intervals in brackets."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 if the table in README.md is not up to date")
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    records = [Selection.load(file) for file in sorted((ROOT / "docs" / "results").glob("*.json"))]
    new = f"{before}{BEGIN}\n{table(records)}\n{END}{after}"
    if parser.parse_args().check:
        sys.exit(new != text and "README.md: the results table is not up to date")
    readme.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
