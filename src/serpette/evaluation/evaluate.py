"""Accuracy of a model on one split, with its own, a frozen or a refitted head (method: retraining-free evaluation)."""

import os
from typing import Literal

from torch import Tensor, nn

from serpette.data.dataset import Dataset, open_dataset
from serpette.data.pixels import Pixels
from serpette.errors import ModelError
from serpette.evaluation.collect import collect
from serpette.evaluation.heads import HeadMethod, fit
from serpette.evaluation.metrics import score
from serpette.evaluation.own_head import own_columns, own_head_fits
from serpette.evaluation.trunk import features, logits
from serpette.export.load import as_module
from serpette.models.base import Adapter, adapt
from serpette.models.reference import model_ref
from serpette.models.runtime import provenance
from serpette.progress import Phase, unseen
from serpette.records import HeadFit, HeadKind, Scores


def evaluate(
    model: str | os.PathLike[str] | nn.Module,
    data: str | os.PathLike[str] | Dataset,
    *,
    split: str = "test",
    head: HeadKind | None = None,
    fit_with: HeadMethod = "logistic",
    base: str | os.PathLike[str] | nn.Module | None = None,
    limit: int | None = None,
    batch_size: int = 32,
    image_size: int | None = None,
    device: str | None = None,
    dtype: str | None = None,
    seed: int = 0,
    on_bad: Literal["skip", "fail"] = "skip",
    phase: Phase | None = None,
) -> Scores:
    """Score `model` on a split of `data`.

    Args:
        model: anything that `serpette.load` takes, or a module of a supported family.
        data: anything that `serpette.scan` takes.
        split: the split to score.
        head: "own", the classifier of the model; "frozen", fitted on the training features of the dense `base` and left
            alone; "refit", fitted on the training features of `model`. By default "own" where the model's classifier
            knows the classes of the data by name, else "refit". The strength of a fitted head is chosen on validation.
        fit_with: "logistic", "ridge" or "adamw" (the recipe of Viespoli & Nanni, 2026).
        base: the dense model for "frozen"; by default the one that the saved folder names.
        limit: at most so many images of each split, drawn by class with `seed`.
        batch_size: images at a time; halved where memory runs out.
        image_size: see `serpette.load`, as `device` and `dtype`.
        device: where to run; `None` takes a GPU if there is one, or the place where a module is.
        dtype: "fp32", "bf16", "fp16"; `None` is fp32, or what a module has.
        seed: for the subset, and for "adamw".
        on_bad: leave images that cannot be decoded out and list them, or stop at the first.
        phase: called with the name of each part of the work; returns a callback for (images done, images in all).

    Raises:
        DataError, ModelError: the data or the model are not usable as asked.
        NonFiniteError: the model's outputs are NaN or infinite.
    """
    dataset = open_dataset(data, seed=seed)
    adapter = adapt(as_module(model, image_size=image_size, device=device, dtype=dtype))
    kind: HeadKind = head or ("own" if own_head_fits(adapter, dataset.classes) else "refit")
    show = phase or unseen

    def pixels(of: Adapter, name: str) -> Pixels:
        return Pixels(dataset, name, of.preprocessing, limit=limit, seed=seed, on_bad=on_bad)

    scored = pixels(adapter, split)
    fitted: HeadFit | None = None
    if kind == "own":
        columns = own_columns(adapter, dataset.classes)
        answers = collect(adapter, scored, logits, batch_size, show(f"{split} logits"))[:, columns]
    else:
        source = adapter if kind == "refit" else _dense(adapter, base, device, dtype)
        sets = {}
        for name in ("train", "val"):
            images = pixels(source, name)
            sets[name] = (collect(source, images, features, batch_size, show(f"{name} features")), images.labels)
        linear, fitted = fit(fit_with, *sets["train"], *sets["val"], len(dataset.classes), seed=seed)
        answers = linear.logits(collect(adapter, scored, features, batch_size, show(f"{split} features")))
    return scores_of(adapter, scored, answers, kind, fitted, seed)


def scores_of(
    adapter: Adapter, pixels: Pixels, answers: Tensor, head: HeadKind, fitted: HeadFit | None, seed: int
) -> Scores:
    """The record for logits (N, K) in the order of the good images of `pixels`.

    Raises:
        NonFiniteError: a logit is NaN or infinite.
    """
    metrics = score(pixels.labels.numpy(), answers.numpy(), pixels.dataset.classes)
    return Scores(
        model=model_ref(adapter),
        data=pixels.ref(),
        provenance=provenance(adapter.model, seed),
        head=head,
        fit=fitted,
        n_bad=pixels.n_bad,
        **metrics._asdict(),
    )


def _dense(
    pruned: Adapter, base: str | os.PathLike[str] | nn.Module | None, device: str | None, dtype: str | None
) -> Adapter:
    origin = pruned.origin
    named = base if base is not None else origin.base
    if named is None:
        raise ModelError(f"{origin.name} does not name its dense model; name it with --base.")
    dense = adapt(as_module(named, image_size=pruned.preprocessing.image_size, device=device, dtype=dtype))
    if dense.origin.plan and dense.origin.plan.sites:
        raise ModelError(f"{dense.origin.name} is itself pruned; a frozen head is fitted on a dense model, see --base.")
    return dense
