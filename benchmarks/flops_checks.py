"""(d) FLOPs of models cut by `serpette.prune`, on the meta device, beside the numbers of the method and the paper."""

from collections.abc import Iterator
from typing import NamedTuple

import torch

import serpette
from serpette.benchmark.flops import count_flops
from serpette.models.timm import load_timm
from serpette.records import Plan

from .report import Cells, Report, Row

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
        limit="the paper's counts are up to 1 % off the formulas, which count products and no elementwise work.",
        rows=[row for check in (VIT_B, DINOV2_G) for row in rows_of(check)],
    )


def rows_of(check: Check) -> Iterator[Row]:
    with torch.device("meta"):
        model = load_timm(check.architecture, image_size=SIDE, random_weights=True)
    flops = count_flops(model, SIDE)
    found, ours, paper = flops / 1e9, check.gflops, check.paper_gflops
    off, paper_off = (100 * abs(found / stated - 1) for stated in (ours, paper))
    cells: Cells = {"model": check.name, "quantity": "dense, GFLOPs", "serpette": found, "method.md": ours}
    miss = f"{check.name} counts {found:.2f} GFLOPs; method.md has {ours}, the paper {paper}."
    met = off <= EXACT and paper_off <= DENSE
    yield Row(cells | {"paper": paper, "off the paper": f"{paper_off:.2f} %"}, "" if met else miss)
    for plan, paper in check.reductions.items():
        found = 100 * (1 - count_flops(serpette.prune(model, plan), SIDE) / flops)
        off = abs(found - paper)
        cells = {"model": check.name, "quantity": f"{plan.label}, % saved", "serpette": found, "method.md": ""}
        miss = f"{check.name} {plan.label} saves {found:.2f} % of the FLOPs; the paper has {paper} %."
        yield Row(cells | {"paper": paper, "off the paper": f"{off:.2f} points"}, "" if off <= REDUCTION else miss)
