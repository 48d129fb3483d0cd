"""The main job: from a model and a dataset to the best pruned model, saved and reported."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from serpette.benchmark.bench import bench_modules
from serpette.benchmark.flops import count_flops
from serpette.data.dataset import Dataset, open_dataset
from serpette.data.pixels import Pixels
from serpette.errors import NonFiniteError
from serpette.evaluation.collect import collect_plans
from serpette.evaluation.evaluate import scores_of
from serpette.evaluation.heads import LinearHead, fit, refit
from serpette.evaluation.own_head import own_columns, own_head_fits
from serpette.evaluation.trunk import features, logits
from serpette.export.load import as_module
from serpette.export.save import save
from serpette.models.base import Adapter, adapt
from serpette.models.reference import model_ref
from serpette.models.runtime import provenance
from serpette.records import (
    MANIFEST,
    Baseline,
    Candidate,
    HeadFit,
    HeadKind,
    Method,
    Plan,
    Profile,
    Pruning,
    Scores,
    Selection,
    Winner,
)
from serpette.redundancy.calibrate import profile_pixels
from serpette.report.page import write_selection_page
from serpette.selection.candidates import Proposal, default_drops, propose
from serpette.selection.choose import Rule, choose, rule_in_words, top1_of
from serpette.selection.units import Units
from serpette.surgery.prune import check_dense, prune

Phase = Callable[[str], Callable[[int, int], None]]
SEARCH_IMAGES = 1000  # of each split, enough to tell candidates apart on validation


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
    dataset = open_dataset(data, seed=seed)
    dense = adapt(as_module(model, image_size=image_size, device=device, dtype=dtype))
    check_dense(dense)
    kind: HeadKind = head or ("own" if own_head_fits(dense, dataset.classes) else "refit")
    run = _Run(
        dense, dataset, kind, batch_size, limit, images_search, seed, on_bad, phase or _silent, Units(folder / "work")
    )

    profile = run.profile(images)
    proposals = propose(profile, methods, drops or default_drops(profile.depth), seed)
    baseline_top1, candidates = run.search(proposals)
    chosen = choose(candidates, baseline_top1, rule=rule, max_loss=max_loss)
    plan = chosen.plan if chosen else Plan(depth=profile.depth)

    baseline, winner = run.confirm(plan)
    speed = bench_modules(
        winner.model,
        baseline.model,
        image_size=dense.preprocessing.image_size,
        batch_size=batch_size,
        repeats=repeats,
        seed=seed,
    )
    saved = save(winner.model, folder / "model")
    manifest = Pruning.load(saved / MANIFEST)
    selection = Selection(
        model=model_ref(dense),
        preprocessing=dense.preprocessing,
        data={name: pixels.ref() for name, pixels in run.used.items()},
        provenance=provenance(dense.model, seed),
        head=kind,
        rule=rule_in_words(rule, max_loss),
        profile=profile,
        baseline=Baseline(
            validation_top1=baseline_top1, test_top1=baseline.scores.top1, gflops=speed.baseline.infer_gflops
        ),
        candidates=tuple(candidates),
        winner=Winner(
            method=chosen.method if chosen else "baseline",
            drop=chosen.drop if chosen else 0,
            plan=plan,
            validation_top1=baseline_top1 if chosen is None else top1_of(chosen),
            test_top1=winner.scores.top1,
            gflops_reduction=(chosen.gflops_reduction or 0.0) if chosen else 0.0,
            speedup=speed.cost.speedup or 1.0,
            speedup_note=speed.cost.speedup_note,
        ),
        baseline_scores=baseline.scores,
        winner_scores=winner.scores,
        baseline_cost=speed.baseline,
        winner_cost=speed.cost,
        seconds=time.monotonic() - started,
        saved_as=manifest.form,
        load_with=load_with(manifest.form, saved),
    )
    dataset.write_manifest(folder / "split.csv")
    selection.save(folder / "selection.json")
    write_selection_page(selection, folder / "report.html")
    return selection


def load_with(form: str, folder: Path) -> str:
    """Code that loads a saved model of this form."""
    if form == "timm":
        return f'timm.create_model("local-dir:{folder}", pretrained=True)'
    if form == "transformers":
        return f'transformers.AutoModelForImageClassification.from_pretrained("{folder}")'
    return f'serpette.load("{folder}")'


@dataclass
class _Confirmed:
    """A model as it is deployed, with its test scores."""

    model: nn.Module
    scores: Scores


@dataclass
class _Run:
    """What stays the same through one selection."""

    dense: Adapter
    dataset: Dataset
    head: HeadKind
    batch_size: int
    limit: int | None
    images_search: int
    seed: int
    on_bad: Literal["skip", "fail"]
    phase: Phase
    units: Units

    def __post_init__(self) -> None:
        self.used: dict[str, Pixels] = {}
        self.classes = self.dataset.classes
        self.columns = own_columns(self.dense, self.classes) if self.head == "own" else []

    def _pixels(self, split: str, limit: int | None) -> Pixels:
        return Pixels(self.dataset, split, self.dense.preprocessing, limit=limit, seed=self.seed, on_bad=self.on_bad)

    def _key(self, what: str, *pixels: Pixels) -> dict[str, Any]:
        software = provenance(self.dense.model, self.seed).model_dump(exclude={"created"})
        return {
            "unit": what,
            "model": model_ref(self.dense).model_dump(exclude={"name"}),
            "preprocessing": self.dense.preprocessing.model_dump(),
            "images": [(p.split, p.ref().fingerprint) for p in pixels],
            "software": software,
        }

    def profile(self, images: int) -> Profile:
        """How redundant each site is on training images."""
        pixels = self._pixels("train", images)
        measured = self.units.get(
            self._key("profile", pixels),
            lambda: profile_pixels(
                self.dense,
                pixels,
                batch_size=self.batch_size,
                seed=self.seed,
                progress=self.phase("measure redundancy"),
            ).model_dump(mode="json"),
        )
        return Profile.model_validate(measured)

    def search(self, proposals: Sequence[Proposal]) -> tuple[float, list[Candidate]]:
        """Validation top-1 of the dense model and of every proposal; one unit of work per method."""
        val = self.used["val"] = self._pixels("val", self.images_search)
        train = self._pixels("train", self.images_search) if self.head == "refit" else None
        empty = Plan(depth=len(self.dense.blocks))
        dense_flops = self._flops(empty)
        scores: dict[str, float | None] = {}
        for method in dict.fromkeys(p.method for p in proposals):
            plans = {p.plan.content_hash: p.plan for p in proposals if p.method == method and p.plan}
            if not scores:
                plans = {empty.content_hash: empty, **plans}
            if not plans:
                continue
            inputs = {**self._key("search", val, *([train] if train else [])), "head": self.head, "plans": [*plans]}
            scores |= self.units.get(inputs, partial(self._validation_top1, plans, train, val, method))
        baseline = scores.get(empty.content_hash)
        if baseline is None:
            dtype = provenance(self.dense.model, 0).dtype
            raise NonFiniteError(f"the unpruned model answers with NaN or infinity in {dtype}; try --dtype fp32.")
        return baseline, [self._candidate(p, scores, dense_flops) for p in proposals]

    def _validation_top1(
        self, plans: dict[str, Plan], train: Pixels | None, val: Pixels, method: str
    ) -> dict[str, float | None]:
        """Validation top-1 by the hash of the plan; `None` where the outputs are not finite."""
        output, tried = logits if train is None else features, list(plans.values())
        rows = collect_plans(self.dense, tried, val, output, self.batch_size, self.phase(f"{method}: validation"))
        if train is None:
            scores = [top1(answers[:, self.columns], val.labels) for answers in rows]
        else:
            fitting = collect_plans(
                self.dense, tried, train, output, self.batch_size, self.phase(f"{method}: training")
            )
            scores = [self._ridge_top1(a, train.labels, b, val.labels) for a, b in zip(fitting, rows, strict=True)]
        return dict(zip(plans, scores, strict=True))

    def _ridge_top1(self, train: Tensor, train_labels: Tensor, val: Tensor, val_labels: Tensor) -> float | None:
        try:
            return fit("ridge", train, train_labels, val, val_labels, len(self.classes))[1].validation_top1
        except NonFiniteError:
            return None

    def _flops(self, plan: Plan) -> int:
        return count_flops(prune(self.dense.model, plan), self.dense.preprocessing.image_size)

    def _candidate(self, proposal: Proposal, scores: dict[str, float | None], dense_flops: int) -> Candidate:
        if proposal.plan is None:
            return Candidate(
                method=proposal.method,
                drop=proposal.drop,
                plan=Plan(),
                validation_top1=None,
                gflops=None,
                gflops_reduction=None,
                error=proposal.reason,
            )
        flops = self._flops(proposal.plan)
        accuracy = scores[proposal.plan.content_hash]
        return Candidate(
            method=proposal.method,
            drop=proposal.drop,
            plan=proposal.plan,
            validation_top1=accuracy,
            gflops=flops / 1e9,
            gflops_reduction=100 * (1 - flops / dense_flops),
            error=None if accuracy is not None else "the outputs are NaN or infinite",
        )

    def confirm(self, plan: Plan) -> tuple[_Confirmed, _Confirmed]:
        """The dense model and the one that `plan` makes, each with its final head, scored on test images."""
        plans = [Plan(depth=len(self.dense.blocks)), plan]
        fitted = self._final_heads(plans) if self.head == "refit" else None
        test = self.used["test"] = self._pixels("test", self.limit)
        output = features if fitted else logits
        rows = collect_plans(self.dense, plans, test, output, self.batch_size, self.phase("test images"))
        confirmed = []
        for i, (each, out) in enumerate(zip(plans, rows, strict=True)):
            model = prune(self.dense.model, each) if each.sites else self.dense.model
            answers, how = out[:, self.columns] if fitted is None else out, None
            if fitted is not None:
                head, how = fitted[i]
                model = adapt(model).with_classifier(head.weight, head.bias, self.classes)
                answers = head.logits(out)
            confirmed.append(_Confirmed(model, scores_of(adapt(model), test, answers, self.head, how, self.seed)))
        return confirmed[0], confirmed[1]

    def _final_heads(self, plans: list[Plan]) -> list[tuple[LinearHead, HeadFit]]:
        """Logistic regression, its strength chosen on validation, fitted again on training and validation images."""
        sets = {}
        for split in ("train", "val"):
            pixels = self.used[split] = self._pixels(split, self.limit)
            rows = collect_plans(
                self.dense, plans, pixels, features, self.batch_size, self.phase(f"final head: {split} images")
            )
            sets[split] = (rows, pixels.labels)
        (train, train_labels), (val, val_labels) = sets["train"], sets["val"]
        heads = []
        for a, b in zip(train, val, strict=True):
            _, how = fit("logistic", a, train_labels, b, val_labels, len(self.classes), seed=self.seed)
            both = torch.cat([a, b]), torch.cat([train_labels, val_labels])
            heads.append((refit("logistic", how.strength, *both, len(self.classes), seed=self.seed), how))
        return heads


def top1(answers: Tensor, labels: Tensor) -> float | None:
    """Top-1 in percent; `None` where a logit is NaN or infinite."""
    if not answers.isfinite().all():
        return None
    return 100 * (answers.argmax(1) == labels).double().mean().item()


def _silent(_name: str) -> Callable[[int, int], None]:
    return lambda _done, _total: None
