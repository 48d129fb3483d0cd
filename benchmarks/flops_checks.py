"""(d) FLOPs of models that `serpette.prune` has cut, on the meta device, beside the method's and the paper's numbers."""

from collections.abc import Iterator
from typing import NamedTuple

import torch

import serpette
from serpette.benchmark.flops import count_flops
from serpette.models.timm import load_timm
from serpette.records import Plan

from .report import Report, Row

SIDE = 224
EXACT = 0.1  # percent that a dense count may be off the method's, which has four digits
DENSE = 1.0  # percent that it may be off the paper's
REDUCTION = 0.6  # points that a reduction may be off the paper's


class Check(NamedTuple):
    """What the method and the paper (Viespoli & Nanni, 2026) state about one model."""

    name: str
    architecture: str
    gflops: float
    paper_gflops: float
    reductions: dict[Plan, float]  # percent of the dense FLOPs; which blocks go is free, since all cost the same


VIT_B = Check(
    "ViT-B/16",
    "vit_base_patch16_224",
    gflops=35.13,
    paper_gflops=35.43,
    reductions={
        Plan(method="mlp", drop=4, drop_mlp=tuple(range(4))): 20.99,
        Plan(method="block", drop=4, drop_blocks=tuple(range(4))): 32.83,
    },
)
DINOV2_G = Check(
    "DINOv2-g",
    "vit_giant_patch14_dinov2",
    gflops=598.8,
    paper_gflops=599.57,
    reductions={
        Plan(method="block", drop=4, drop_blocks=tuple(range(4))): 9.98,
        Plan(method="mlp", drop=8, drop_mlp=tuple(range(8))): 12.94,
        Plan(method="joint", drop=24, drop_attention=tuple(range(14)), drop_mlp=tuple(range(20, 30))): 28.45,
    },
)


def run() -> Report:
    return Report(
        title=f"FLOPs at {SIDE} px",
        target=f"dense within {EXACT:g} % of method.md and {DENSE:g} % of the paper; "
        f"reductions within {REDUCTION:g} points of the paper",
        limit="the paper's counter is up to 1 % off the formulas; both count matrix products, not elementwise work.",
        rows=[row for check in (VIT_B, DINOV2_G) for row in rows_of(check)],
    )


def rows_of(check: Check) -> Iterator[Row]:
    with torch.device("meta"):
        model = load_timm(check.architecture, image_size=SIDE, random_weights=True)
    flops = count_flops(model, SIDE)
    gflops = flops / 1e9
    off, paper_off = (100 * abs(gflops / stated - 1) for stated in (check.gflops, check.paper_gflops))
    miss = f"{check.name} counts {gflops:.2f} GFLOPs; {check.gflops} expected, the paper has {check.paper_gflops}."
    met = off <= EXACT and paper_off <= DENSE
    yield _row(check.name, "dense, GFLOPs", gflops, check.gflops, check.paper_gflops, f"{paper_off:.2f} %", met, miss)
    for plan, paper in check.reductions.items():
        percent = 100 * (1 - count_flops(serpette.prune(model, plan), SIDE) / flops)
        off, miss = abs(percent - paper), f"{check.name} {plan.label} saves {percent:.2f} %; the paper has {paper} %."
        yield _row(check.name, f"{plan.label}, % saved", percent, "", paper, f"{off:.2f} points", off <= REDUCTION, miss)


def _row(model: str, quantity: str, ours: float, method: float | str, paper: float, off: str, met: bool, m: str) -> Row:
    cells = {"model": model, "quantity": quantity, "serpette": ours, "method.md": method, "paper": paper, "off": off}
    return Row(cells, "" if met else m)
