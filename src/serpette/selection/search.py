"""Phase 2 of model selection: validation accuracy and FLOPs of every proposal; test images are not opened here."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from torch import Tensor

from serpette.benchmark.flops import count_flops
from serpette.data.pixels import Pixels
from serpette.errors import NonFiniteError
from serpette.evaluation.collect import collect_plans
from serpette.evaluation.heads import fit
from serpette.evaluation.trunk import features, logits
from serpette.models.runtime import provenance
from serpette.records import Candidate, Plan, Profile
from serpette.redundancy.calibrate import profile_pixels
from serpette.selection.candidates import Proposal
from serpette.selection.setting import Setting
from serpette.surgery.prune import prune


class Found(NamedTuple):
    """The validation top-1 of the unpruned model in percent, the candidates, and the images they were judged on."""

    baseline_top1: float
    candidates: tuple[Candidate, ...]
    validation: Pixels


def measured(setting: Setting, images: int) -> Profile:
    """How redundant each site is on training images."""
    pixels = setting.pixels("train", images)

    def measure() -> object:
        profile = profile_pixels(
            setting.dense,
            pixels,
            batch_size=setting.batch_size,
            seed=setting.seed,
            progress=setting.phase("measure redundancy"),
        )
        return profile.model_dump(mode="json")

    return Profile.model_validate(setting.units.get(setting.key("profile", pixels), measure))


def search(setting: Setting, proposals: Sequence[Proposal], images: int) -> Found:
    """Judge the unpruned model and every proposal on validation images; each method is one unit of work.

    With `head` "refit" every plan gets its own ridge head, fitted on as many training images.

    Raises:
        NonFiniteError: the unpruned model itself answers with NaN or infinity.
    """
    val = setting.pixels("val", images)
    train = setting.pixels("train", images) if setting.head == "refit" else None
    unpruned = Plan(depth=len(setting.dense.blocks))
    scores: dict[str, float | None] = {}
    for method in dict.fromkeys(proposal.method for proposal in proposals):
        plans = [unpruned] if not scores else []
        plans += [p.plan for p in proposals if p.method == method and p.plan]
        by_hash = {plan.content_hash: plan for plan in plans}
        if by_hash:
            inputs = setting.key("search", *([val] if train is None else [val, train]), plans=list(by_hash))
            scores |= setting.units.get(inputs, partial(_validation_top1, setting, by_hash, train, val, method))
    baseline = scores.get(unpruned.content_hash)
    if baseline is None:
        dtype = provenance(setting.dense.model, setting.seed).dtype
        raise NonFiniteError(f"the unpruned model answers with NaN or infinity in {dtype}; try --dtype fp32.")
    dense_flops = _flops(setting, unpruned)
    return Found(baseline, tuple(_candidate(setting, p, scores, dense_flops) for p in proposals), val)


def _validation_top1(
    setting: Setting, plans: dict[str, Plan], train: Pixels | None, val: Pixels, method: str
) -> dict[str, float | None]:
    """Top-1 by the hash of the plan; `None` where the outputs are not finite."""
    output, tried = logits if train is None else features, list(plans.values())
    rows = collect_plans(setting.dense, tried, val, output, setting.batch_size, setting.phase(f"{method}: validation"))
    if train is None:
        scores = [_top1(answers[:, setting.columns], val.labels) for answers in rows]
    else:
        show = setting.phase(f"{method}: training")
        fitting = collect_plans(setting.dense, tried, train, output, setting.batch_size, show)
        classes = len(setting.dataset.classes)
        scores = [_ridge_top1(a, train.labels, b, val.labels, classes) for a, b in zip(fitting, rows, strict=True)]
    return dict(zip(plans, scores, strict=True))


def _top1(answers: Tensor, labels: Tensor) -> float | None:
    if not answers.isfinite().all():
        return None
    return 100 * (answers.argmax(1) == labels).double().mean().item()


def _ridge_top1(train: Tensor, train_labels: Tensor, val: Tensor, val_labels: Tensor, classes: int) -> float | None:
    try:
        return fit("ridge", train, train_labels, val, val_labels, classes)[1].validation_top1
    except NonFiniteError:
        return None


def _flops(setting: Setting, plan: Plan) -> int:
    def count() -> int:
        return count_flops(prune(setting.dense.model, plan), setting.dense.preprocessing.image_size)

    return int(setting.units.get(setting.key("flops", plan=plan.content_hash), count))


def _candidate(setting: Setting, proposal: Proposal, scores: dict[str, float | None], dense_flops: int) -> Candidate:
    accuracy, flops, error = None, None, proposal.reason or None
    if proposal.plan:
        flops = _flops(setting, proposal.plan)
        accuracy = scores[proposal.plan.content_hash]
        error = None if accuracy is not None else "the outputs are NaN or infinite"
    return Candidate(
        method=proposal.method,
        drop=proposal.drop,
        plan=proposal.plan or Plan(method=proposal.method, drop=proposal.drop),
        validation_top1=accuracy,
        gflops=flops / 1e9 if flops else None,
        gflops_reduction=100 * (1 - flops / dense_flops) if flops else None,
        error=error,
    )
