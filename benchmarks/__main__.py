"""Run the benchmarks, all or those named, print one table for each, and fail if a target is missed."""

import argparse
import json
import sys
from importlib import import_module
from pathlib import Path

from rich.console import Console

from .report import Report, machine

NAMES = ("flops_checks", "measure_overhead", "pruned_speed", "data_path", "sweep_cost")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run (all): {', '.join(NAMES)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows here")
    options = parser.parse_args()
    if unknown := sorted(set(options.names) - set(NAMES)):
        parser.error(f"there is no benchmark {unknown[0]}; expected one of {', '.join(NAMES)}.")
    console = Console(width=None if sys.stdout.isatty() else 160)
    reports: dict[str, Report] = {}
    for name in options.names or NAMES:
        reports[name] = import_module(f"benchmarks.{name}").run()
        console.print(reports[name].table(), "")
    if options.json:
        found = {name: report.to_dict() for name, report in reports.items()}
        options.json.write_text(json.dumps({"machine": machine(), "benchmarks": found}, indent=1) + "\n")
    misses = [f"{name}: {miss}" for name, report in reports.items() for miss in report.misses]
    for miss in misses:
        console.print(f"target missed, {miss}", markup=False, highlight=False)
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
