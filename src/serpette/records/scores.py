"""What pruning costs: the accuracy of one model on one split."""

from typing import ClassVar, Literal

from serpette.records.base import Frozen, Record
from serpette.records.common import DataRef, ModelRef, Provenance

HeadKind = Literal["own", "frozen", "refit"]


class ClassScore(Frozen):
    """Accuracy on the images of one class, in percent; `None` where there are none."""

    name: str
    n: int
    recall: float | None
    precision: float | None


class HeadFit(Frozen):
    """How a linear head was fitted: the method, the regularisation chosen on validation, and the images used."""

    method: Literal["ridge", "logistic", "adamw"]
    strength: float
    n_train: int
    n_validation: int
    validation_top1: float


class Scores(Record):
    """The result of `evaluate`; all accuracies in percent.

    `balanced_accuracy`, `macro_*` follow scikit-learn's definitions; `majority_baseline` is the top-1 of always
    answering with the most frequent class; `top5` is capped at the number of classes (`top_k` is the k that was used).
    `correct` holds one truth value per image, in the order of the split, for paired tests.
    """

    kind: ClassVar[str] = "scores"
    model: ModelRef
    data: DataRef
    provenance: Provenance
    head: HeadKind
    fit: HeadFit | None
    n: int
    n_bad: int
    top1: float
    top5: float
    top_k: int
    balanced_accuracy: float
    macro_precision: float
    macro_recall: float
    macro_f1: float
    majority_baseline: float
    per_class: tuple[ClassScore, ...]
    correct: tuple[bool, ...]
