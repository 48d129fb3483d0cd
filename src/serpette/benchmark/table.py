"""Costs as rows of a table with the columns of timm's `benchmark.py`, for CSV and JSON."""

import csv
import io
import os
from collections.abc import Iterable
from pathlib import Path

from serpette.files import write_text
from serpette.records import Cost

TIMM_COLUMNS = (
    "infer_samples_per_sec",
    "infer_step_time",
    "infer_batch_size",
    "infer_img_size",
    "infer_gmacs",
    "param_count",
)
OUR_COLUMNS = (
    "infer_samples_per_sec_low",
    "infer_samples_per_sec_high",
    "infer_gflops",
    "latency_ms",
    "latency_ms_low",
    "latency_ms_high",
    "peak_memory_mb",
    "memory_note",
    "checkpoint_mb",
    "energy_j_per_image",
    "energy_note",
    "repeats",
    "speedup",
    "speedup_low",
    "speedup_high",
    "speedup_note",
)
PROVENANCE_COLUMNS = ("device", "dtype", "attention_backend", "threads", "torch", "timm", "transformers", "serpette")

Row = dict[str, str | int | float | None]


def timm_rows(costs: Iterable[Cost]) -> list[Row]:
    """One row per cost, fastest first: timm's columns under timm's names and units, then serpette's own."""
    return [_row(cost) for cost in sorted(costs, key=lambda cost: cost.infer_samples_per_sec, reverse=True)]


def write_csv(path: str | os.PathLike[str], costs: Iterable[Cost]) -> Path:
    """Write the rows as CSV, to a temporary name first; what was not measured is an empty field.

    Raises:
        SerpetteError: the folder cannot be written.
    """
    text = io.StringIO()
    columns = ("model", "plan", *TIMM_COLUMNS, *OUR_COLUMNS, *PROVENANCE_COLUMNS)
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(timm_rows(costs))
    return write_text(Path(path), text.getvalue())


def _row(cost: Cost) -> Row:
    return {
        "model": cost.model.name,
        "plan": cost.model.plan,
        **{column: _short(getattr(cost, column)) for column in (*TIMM_COLUMNS, *OUR_COLUMNS)},
        **{column: getattr(cost.provenance, column) for column in PROVENANCE_COLUMNS},
    }


def _short(value: str | int | float | None) -> str | int | float | None:
    return float(f"{value:.6g}") if isinstance(value, float) else value
