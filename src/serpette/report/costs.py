"""The cost of two models side by side, as rows for the terminal and for the page."""

from typing import NamedTuple

from serpette.records import Cost
from serpette.report.formats import SPACE, change, interval, number, times


class CostRow(NamedTuple):
    """One quantity: its name, its value before and after pruning, the change, and what to know about it."""

    name: str
    before: str
    after: str
    change: str
    note: str = ""


def cost_rows(baseline: Cost, cost: Cost) -> list[CostRow]:
    """All quantities of `bench`, the measured ones with their 95 % intervals."""
    batch = f"batch {cost.infer_batch_size}"
    spread = interval(cost.speedup_low, cost.speedup_high)
    speedup = f"95{SPACE}% interval of the speed-up: {spread}" if spread else ""
    return [
        CostRow(
            f"Images per second, {batch}",
            _measured(
                baseline.infer_samples_per_sec, baseline.infer_samples_per_sec_low, baseline.infer_samples_per_sec_high
            ),
            _measured(cost.infer_samples_per_sec, cost.infer_samples_per_sec_low, cost.infer_samples_per_sec_high),
            times(cost.speedup),
            "; ".join(note for note in (speedup, cost.speedup_note) if note),
        ),
        CostRow(
            "Latency at batch 1, ms",
            _measured(baseline.latency_ms, baseline.latency_ms_low, baseline.latency_ms_high),
            _measured(cost.latency_ms, cost.latency_ms_low, cost.latency_ms_high),
            change(baseline.latency_ms, cost.latency_ms),
        ),
        _row(f"Time per {batch}, ms", baseline.infer_step_time, cost.infer_step_time),
        _row("GFLOPs per image", baseline.infer_gflops, cost.infer_gflops, "two per multiply-accumulate"),
        _row("GMACs per image", baseline.infer_gmacs, cost.infer_gmacs),
        _row("Parameters, millions", baseline.param_count, cost.param_count),
        _row("Peak memory, MiB", baseline.peak_memory_mb, cost.peak_memory_mb, cost.memory_note),
        _row("Checkpoint, MiB", baseline.checkpoint_mb, cost.checkpoint_mb),
        _row("Energy per image, J", baseline.energy_j_per_image, cost.energy_j_per_image, cost.energy_note),
    ]


def _row(name: str, before: float | None, after: float | None, note: str = "") -> CostRow:
    return CostRow(name, number(before), number(after), change(before, after), note)


def _measured(value: float, low: float, high: float) -> str:
    return f"{number(value)} ({interval(low, high)})"
