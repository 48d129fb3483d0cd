"""Phase 3 of model selection: final heads for the unpruned model and the winner, and one score on test images."""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from serpette.data.pixels import Pixels
from serpette.evaluation.collect import collect_plans
from serpette.evaluation.evaluate import scores_of
from serpette.evaluation.heads import LinearHead, fit, refit
from serpette.evaluation.trunk import features, logits
from serpette.models.base import adapt
from serpette.records import HeadFit, Plan, Scores
from serpette.selection.setting import Setting
from serpette.surgery.prune import prune


class Confirmed(NamedTuple):
    """A model as it is deployed, with its test scores."""

    model: nn.Module
    scores: Scores


class Confirmation(NamedTuple):
    """The unpruned model and the winner, and the images that were used."""

    baseline: Confirmed
    winner: Confirmed
    used: dict[str, Pixels]


class _Head(NamedTuple):
    linear: LinearHead
    fitted: HeadFit


def confirm(setting: Setting, plan: Plan, limit: int | None) -> Confirmation:
    """Fit the final heads (with `head` "refit"), then score both models on at most `limit` test images."""
    plans = [Plan(depth=len(setting.dense.blocks)), plan]
    used: dict[str, Pixels] = {}
    heads: list[_Head | None] = [None, None]
    if setting.head == "refit":
        used |= {split: setting.pixels(split, limit) for split in ("train", "val")}
        heads = [*_final_heads(setting, plans, used["train"], used["val"])]
    test = used["test"] = setting.pixels("test", limit)
    models = [_deployed(setting, each, head) for each, head in zip(plans, heads, strict=True)]
    key = setting.key("test", *used.values(), plans=[each.content_hash for each in plans])
    found = setting.units.get(key, partial(_test_scores, setting, plans, heads, models, test))
    baseline, winner = (Confirmed(m, Scores.model_validate(s)) for m, s in zip(models, found, strict=True))
    return Confirmation(baseline, winner, used)


def _deployed(setting: Setting, plan: Plan, head: _Head | None) -> nn.Module:
    model = prune(setting.dense.model, plan) if plan.sites else setting.dense.model
    if head is None:
        return model
    return adapt(model).with_classifier(head.linear.weight, head.linear.bias, setting.dataset.classes)


def _test_scores(
    setting: Setting, plans: list[Plan], heads: list[_Head | None], models: list[nn.Module], test: Pixels
) -> list[object]:
    output = logits if setting.head == "own" else features
    rows = collect_plans(setting.dense, plans, test, output, setting.batch_size, setting.phase("test images"))
    scores: list[object] = []
    for head, model, out in zip(heads, models, rows, strict=True):
        answers = out[:, setting.columns] if head is None else head.linear.logits(out)
        fitted = head.fitted if head else None
        record = scores_of(adapt(model), test, answers, setting.head, fitted, setting.seed)
        scores.append(record.model_dump(mode="json"))
    return scores


def _final_heads(setting: Setting, plans: list[Plan], train: Pixels, val: Pixels) -> list[_Head]:
    """Logistic regression, its strength chosen on validation, then fitted on training and validation images."""
    sets: dict[str, list[Tensor]] = {}

    def rows(pixels: Pixels) -> list[Tensor]:
        if pixels.split not in sets:  # both units below may need them
            show = setting.phase(f"final head: {pixels.split} images")
            sets[pixels.split] = collect_plans(setting.dense, plans, pixels, features, setting.batch_size, show)
        return sets[pixels.split]

    classes = len(setting.dataset.classes)
    key = setting.key("final head", train, val, plans=[plan.content_hash for plan in plans])

    def choose_strengths() -> list[object]:
        pairs = zip(rows(train), rows(val), strict=True)
        fits = [fit("logistic", a, train.labels, b, val.labels, classes, seed=setting.seed)[1] for a, b in pairs]
        return [fitted.model_dump(mode="json") for fitted in fits]

    fits = [HeadFit.model_validate(found) for found in setting.units.get({**key, "part": "strength"}, choose_strengths)]

    def fit_all() -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        labels = torch.cat([train.labels, val.labels])
        for i, (a, b, fitted) in enumerate(zip(rows(train), rows(val), fits, strict=True)):
            head = refit("logistic", fitted.strength, torch.cat([a, b]), labels, classes, seed=setting.seed)
            tensors |= {f"{i}.weight": head.weight, f"{i}.bias": head.bias}
        return tensors

    tensors = setting.units.get_tensors({**key, "part": "weights"}, fit_all)
    return [_Head(LinearHead(tensors[f"{i}.weight"], tensors[f"{i}.bias"]), f) for i, f in enumerate(fits)]
