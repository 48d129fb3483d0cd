"""The result of the main job: every candidate, and the one that was chosen on validation images."""

from typing import ClassVar, Literal

from serpette.records.base import Frozen, Record
from serpette.records.common import DataRef, ModelRef, Preprocessing, Provenance
from serpette.records.cost import Cost
from serpette.records.plan import Method, Plan
from serpette.records.profile import Profile
from serpette.records.scores import HeadKind, Scores


class Baseline(Frozen):
    """The unpruned model; accuracies in percent."""

    validation_top1: float
    test_top1: float
    gflops: float


class Candidate(Frozen):
    """One plan, judged on validation images only.

    `gflops_reduction` is in percent of the dense model. A candidate that failed has its reason in `error`.
    """

    method: Method
    drop: int
    plan: Plan
    validation_top1: float | None
    gflops: float | None
    gflops_reduction: float | None
    error: str | None = None


class Winner(Frozen):
    """The chosen candidate, scored once on test images and benchmarked against the baseline.

    `method` is "baseline" (and `drop` 0) where no candidate was good enough. `speedup` is a ratio, `speedup_note` says
    so when it lies inside the noise.
    """

    method: Method | Literal["baseline"]
    drop: int
    plan: Plan
    validation_top1: float
    test_top1: float
    gflops_reduction: float
    speedup: float
    speedup_note: str = ""


class Selection(Record):
    """The result of `select`."""

    kind: ClassVar[str] = "selection"
    model: ModelRef
    preprocessing: Preprocessing
    data: dict[str, DataRef]  # split -> what was used of it
    provenance: Provenance
    head: HeadKind
    rule: str  # how the winner was chosen, in words
    profile: Profile
    baseline: Baseline
    candidates: tuple[Candidate, ...]
    winner: Winner
    baseline_scores: Scores
    winner_scores: Scores
    baseline_cost: Cost
    winner_cost: Cost
    seconds: float
    saved_as: str  # the form of RUN/model: "timm", "transformers" or "serpette"
    load_with: str  # code that loads the winner
