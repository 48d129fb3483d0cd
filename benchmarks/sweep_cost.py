"""(e) What many plans cost in one pass that shares their first blocks, against one pass for each of them."""

from statistics import median

import serpette
from serpette.data.pixels import Pixels
from serpette.evaluation.collect import collect, collect_plans
from serpette.evaluation.sweep import Sweep
from serpette.evaluation.trunk import features
from serpette.models.base import adapt
from serpette.records import Method
from serpette.redundancy.calibrate import profile_pixels

from .images import noise
from .models import dinov2_small
from .report import Cells, Ratio, Report, Row
from .timing import interleaved

SIDE, BATCH, ROUNDS = 98, 8, 6
METHODS: tuple[Method, ...] = ("block", "attention", "mlp", "joint")
DROPS = range(1, 7)
OF_PREDICTED = 0.90


def run() -> Report:
    """The images are decoded and the models pruned beforehand."""
    adapter = adapt(dinov2_small(SIDE))
    pixels = Pixels(noise(BATCH, SIDE), "train", adapter.preprocessing)
    profile = profile_pixels(adapter, pixels, batch_size=BATCH)
    plans = [serpette.plan(profile, method=method, drop=drop) for method in METHODS for drop in DROPS]
    pruned = [adapt(serpette.prune(adapter.model, plan)) for plan in plans]
    one_by_one, sweep = interleaved(
        [
            lambda: [collect(each, pixels, features, BATCH) for each in pruned],
            lambda: collect_plans(adapter, plans, pixels, features, BATCH),
        ],
        ROUNDS,
    )
    cost = Sweep(adapter, plans, features).cost
    predicted = cost.separate / cost.shared
    saving, ratio = Ratio.of(one_by_one, sweep), Ratio.of(one_by_one, sweep, scale=1 / predicted)
    miss = f"the sweep is {saving.value:.2f} times as fast, {predicted:.2f} predicted; {OF_PREDICTED:.0%} is wanted."
    cells: Cells = {
        "plans": len(plans),
        "one by one, s": median(one_by_one),
        "sweep, s": median(sweep),
        "dense passes": f"{cost.separate:.1f} to {cost.shared:.1f}",
        "times as fast": saving,
        "predicted": predicted,
        "ratio": ratio,
    }
    return Report(
        title=f"{' '.join(METHODS)} x drops {DROPS[0]} to {DROPS[-1]} of DINOv2-small at {SIDE} px, {BATCH} images",
        target=f"the sweep at least {OF_PREDICTED} of the speedup that the cost of its trie predicts",
        limit="each plan needs its own norm and head; beyond that, plans that differ early share little.",
        rows=[Row(cells, miss if ratio.value < OF_PREDICTED else "")],
    )
