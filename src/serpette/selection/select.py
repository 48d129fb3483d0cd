"""The main job: from a model and a dataset to the best pruned model, saved and reported."""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from torch import nn

from serpette.benchmark.bench import bench_modules
from serpette.data.dataset import Dataset, open_dataset
from serpette.errors import SerpetteError
from serpette.evaluation.own_head import own_head_fits
from serpette.export.load import as_module
from serpette.export.save import save
from serpette.files import check_replaceable, check_writable
from serpette.models.base import adapt
from serpette.models.reference import model_ref
from serpette.models.runtime import provenance
from serpette.progress import Phase, unseen
from serpette.records import MANIFEST, Baseline, HeadKind, Method, Plan, Pruning, Selection, Winner
from serpette.report.page import write_selection_page
from serpette.selection.candidates import default_drops, propose
from serpette.selection.choose import Rule, choose, rule_in_words, top1_of
from serpette.selection.confirm import confirm
from serpette.selection.search import measured, search
from serpette.selection.setting import Setting
from serpette.selection.units import Units
from serpette.surgery.prune import check_dense

RESULTS = ("selection.json", "report.html", "split.csv")
SEARCH_IMAGES = 500  # of each split: the standard error of an accuracy of 85 % is then 1.6 points


def select(
    model: str | os.PathLike[str] | nn.Module,
    data: str | os.PathLike[str] | Dataset,
    out: str | os.PathLike[str],
    *,
    methods: Sequence[Method] = ("block", "attention", "mlp", "joint"),
    drops: Sequence[int] | None = None,
    rule: Rule = "cheapest",
    max_loss: float = 1.0,
    head: Literal["own", "refit"] | None = None,
    images: int = 512,
    images_search: int = SEARCH_IMAGES,
    limit: int | None = None,
    batch_size: int = 32,
    repeats: int = 10,
    image_size: int | None = None,
    device: str | None = None,
    dtype: str | None = None,
    seed: int = 0,
    on_bad: Literal["skip", "fail"] = "skip",
    phase: Phase | None = None,
) -> Selection:
    """Try every method at every drop count, choose on validation images, score the winner once on test images.

    Writes `selection.json`, `report.html`, `model/` and the split that was used (`split.csv`) to the folder `out`.
    Every finished part is kept in `out/work`; an interrupted run continues from there.

    Args:
        model: anything that `serpette.load` takes, or a dense module of a supported family.
        data: anything that `serpette.scan` takes.
        out: folder for the results.
        methods: see `serpette.plan`.
        drops: drop counts; by default 1 to half the depth, in steps of 4 for models of more than 12 blocks.
        rule: "cheapest" or "best", see `serpette.selection.choose`.
        max_loss: points of validation top-1 that "cheapest" may lose.
        head: "own" keeps the model's classifier, "refit" fits a new one per candidate (ridge in the search, logistic
            regression for the winner); by default "own" where it knows the classes of the data.
        images: training images to measure redundancy on.
        images_search: training and validation images of the search, each.
        limit: at most so many images of each split in the final evaluation.
        batch_size: images at a time, also in the benchmark.
        repeats: rounds of the benchmark.
        image_size: see `serpette.load`, as `device` and `dtype`.
        device: where to run.
        dtype: "fp32", "bf16" or "fp16".
        seed: for splits, subsets and `random` plans.
        on_bad: leave images that cannot be decoded out and list them, or stop at the first.
        phase: called with the name of each part of the work; returns a callback for (images done, images in all).

    Raises:
        DataError, ModelError, PlanError: the input is not usable as asked.
    """
    started = time.monotonic()
    folder = Path(out)
    check_writable(folder)
    foreign = [name for name in RESULTS if (folder / name).exists() and not (folder / "work").is_dir()]
    if foreign:
        raise SerpetteError(f"{folder} holds a {foreign[0]} that is not from a run of serpette; choose another folder.")
    check_replaceable(folder / "model", marker=MANIFEST)
    dataset = open_dataset(data, seed=seed)
    dense = adapt(as_module(model, image_size=image_size, device=device, dtype=dtype))
    check_dense(dense)
    kind: HeadKind = head or ("own" if own_head_fits(dense, dataset.classes) else "refit")
    setting = Setting(dense, dataset, kind, batch_size, seed, on_bad, phase or unseen, Units(folder / "work"))

    profile = measured(setting, images)
    found = search(setting, propose(profile, methods, drops or default_drops(profile.depth), seed), images_search)
    chosen = choose(found.candidates, found.baseline_top1, rule=rule, max_loss=max_loss)
    plan = chosen.plan if chosen else Plan(depth=profile.depth)
    confirmed = confirm(setting, plan, limit)
    speed = bench_modules(
        confirmed.winner.model, confirmed.baseline.model, batch_size=batch_size, repeats=repeats, seed=seed
    )
    baseline_cost = speed.baseline
    assert baseline_cost is not None
    saved = save(confirmed.winner.model, folder / "model")
    form = Pruning.load(saved / MANIFEST).form
    selection = Selection(
        model=model_ref(dense),
        preprocessing=dense.preprocessing,
        data={name: pixels.ref() for name, pixels in {"val": found.validation, **confirmed.used}.items()},
        provenance=provenance(dense.model, seed),
        head=kind,
        rule=rule_in_words(rule, max_loss),
        profile=profile,
        baseline=Baseline(
            validation_top1=found.baseline_top1,
            test_top1=confirmed.baseline.scores.top1,
            gflops=baseline_cost.infer_gflops,
        ),
        candidates=found.candidates,
        winner=Winner(
            method=chosen.method if chosen else "baseline",
            drop=chosen.drop if chosen else 0,
            plan=plan,
            validation_top1=top1_of(chosen) if chosen else found.baseline_top1,
            test_top1=confirmed.winner.scores.top1,
            gflops_reduction=(chosen and chosen.gflops_reduction) or 0.0,
            speedup=speed.speedup or 1.0,
            speedup_note=speed.speedup_note,
        ),
        baseline_scores=confirmed.baseline.scores,
        winner_scores=confirmed.winner.scores,
        baseline_cost=baseline_cost,
        winner_cost=speed.model_copy(update={"baseline": None}),
        seconds=time.monotonic() - started,
        saved_as=form,
        load_with=load_with(form, saved),
    )
    dataset.write_manifest(folder / "split.csv")
    selection.save(folder / "selection.json")
    write_selection_page(selection, folder / "report.html")
    return selection


def load_with(form: str, folder: Path) -> str:
    """Code that loads a saved model of this form."""
    if form == "timm":
        return f"timm.create_model({json.dumps(f'local-dir:{folder}')}, pretrained=True)"
    if form == "transformers":
        return f"transformers.AutoModelForImageClassification.from_pretrained({json.dumps(str(folder))})"
    return f"serpette.load({json.dumps(str(folder))})"
