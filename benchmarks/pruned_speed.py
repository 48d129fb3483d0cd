"""(b) Whether a model without some of its blocks is as much faster as it has less to do."""

from contextlib import ExitStack

import serpette
from serpette.benchmark.flops import count_flops
from serpette.benchmark.throughput import measure_throughput
from serpette.models.base import inference
from serpette.records import Plan
from serpette.report.formats import count

from .models import dinov2_small
from .report import Cells, Ratio, Report, Row

SIDE, BATCH = 98, 64
DROPS = range(1, 7)
ROUNDS = 6  # the fewest that give a 95 % interval
EFFICIENCY = 0.95


def run() -> Report:
    """All models run in every round, so that each drop has the dense model of the same minute to compare with."""
    dense = dinov2_small(SIDE)
    plans = [Plan(drop_blocks=tuple(range(12 - drop, 12)), method="deepest", drop=drop) for drop in DROPS]
    models = [dense, *(serpette.prune(dense, plan) for plan in plans)]
    with ExitStack() as stack:
        for model in models:
            stack.enter_context(inference(model))
        baseline, *timings = measure_throughput(models, SIDE, BATCH, repeats=ROUNDS, warmup=1)
    flops, *pruned_flops = (count_flops(model, SIDE) for model in models)
    rows = []
    for drop, timing, left in zip(DROPS, timings, pruned_flops, strict=True):
        less = flops / left
        speedup = Ratio.of(list(baseline.samples), list(timing.samples))
        ratio = Ratio.of(list(baseline.samples), list(timing.samples), scale=1 / less)
        miss = (
            f"without {count(drop, 'block')} the speedup is {speedup.value:.3f} and the FLOPs ratio {less:.3f}; "
            f"at least {EFFICIENCY} of it is wanted."
        )
        cells: Cells = {
            "blocks dropped": drop,
            "images/s": timing.images_per_second,
            "dense images/s": baseline.images_per_second,
            "speedup": speedup,
            "FLOPs ratio": less,
            "speedup / FLOPs ratio": ratio,
        }
        rows.append(Row(cells, miss if ratio.value < EFFICIENCY else ""))
    return Report(
        title=f"DINOv2-small at {SIDE} px, fp32, batch {baseline.batch_size}: pruned against dense",
        target=f"speedup at least {EFFICIENCY} of the FLOPs ratio",
        limit="stem and final norm stay whatever is dropped (1 % of the dense FLOPs).",
        rows=rows,
    )
