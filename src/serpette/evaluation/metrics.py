"""How right a set of answers is, in percent; definitions as in scikit-learn. NumPy only.

Shapes: N images, K classes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from serpette.errors import DataError, NonFiniteError
from serpette.records import ClassScore

TOP_K = 5


class Metrics(NamedTuple):
    """The accuracies of one model on one set of images, all in percent; the fields are those of `Scores`."""

    n: int
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


def score(labels: Int[np.ndarray, " N"], logits: Float[np.ndarray, "N K"], classes: Sequence[str]) -> Metrics:
    """Compare logits with labels.

    The answer is the class with the highest logit, the first one where several are equal. `top5` looks at the
    `min(5, K)` highest.

    Args:
        labels: (N,) class indices in 0..K-1.
        logits: (N, K).
        classes: K names, in the order of the logits.

    Raises:
        DataError: there is no image, or a label has no logit.
        NonFiniteError: logits are NaN or infinite.
    """
    ranks = true_class_ranks(labels, logits)
    correct = ranks == 0
    top_k = min(TOP_K, logits.shape[1])
    confusion = confusion_matrix(labels, logits.argmax(axis=1), logits.shape[1])
    precision, recall, f1 = per_class_rates(confusion)
    asked = confusion.sum(axis=1) > 0
    answered = confusion.sum(axis=0) > 0
    seen = asked | answered  # scikit-learn averages over the classes that occur in the labels or in the answers
    return Metrics(
        n=len(labels),
        top1=percent(correct.mean()),
        top5=percent((ranks < top_k).mean()),
        top_k=top_k,
        balanced_accuracy=percent(recall[asked].mean()),
        macro_precision=percent(precision[seen].mean()),
        macro_recall=percent(recall[seen].mean()),
        macro_f1=percent(f1[seen].mean()),
        majority_baseline=percent(confusion.sum(axis=1).max() / len(labels)),
        per_class=tuple(
            ClassScore(
                name=name,
                n=int(confusion[k].sum()),
                recall=percent(recall[k]) if asked[k] else None,
                precision=percent(precision[k]) if answered[k] else None,
            )
            for k, name in enumerate(classes)
        ),
        correct=tuple(correct.tolist()),
    )


def true_class_ranks(labels: Int[np.ndarray, " N"], logits: Float[np.ndarray, "N K"]) -> Int[np.ndarray, " N"]:
    """How many classes stand before the true one, per image; equal logits stand in the order of the classes.

    Raises:
        DataError: there is no image, or a label has no logit.
        NonFiniteError: logits are NaN or infinite.
    """
    check(labels, logits)
    true = np.take_along_axis(logits, labels[:, None], axis=1)  # (N, 1)
    earlier: Bool[np.ndarray, "N K"] = np.arange(logits.shape[1]) < labels[:, None]
    return np.asarray(((logits > true) | ((logits == true) & earlier)).sum(axis=1))


def check(labels: Int[np.ndarray, " N"], logits: Float[np.ndarray, "N K"]) -> None:
    """Refuse what has no accuracy.

    Raises:
        DataError: there is no image, or a label has no logit.
        NonFiniteError: logits are NaN or infinite.
    """
    n, k = logits.shape
    if n == 0:
        raise DataError("There is no image to score; expected at least one. Check the split.")
    if labels.min() < 0 or labels.max() >= k:
        raise DataError(
            f"Labels run from {labels.min()} to {labels.max()}, but the model answers with {k} classes (0-{k - 1}); "
            "use a head that was fitted on these classes."
        )
    broken = int((~np.isfinite(logits)).any(axis=1).sum())
    if broken:
        raise NonFiniteError(
            f"The logits of {broken} of {n} images are NaN or infinite; expected finite numbers. Try dtype fp32."
        )


def confusion_matrix(
    labels: Int[np.ndarray, " N"], predictions: Int[np.ndarray, " N"], num_classes: int
) -> Int[np.ndarray, "K K"]:
    """Images per true class (rows) and answer (columns)."""
    cells = np.bincount(labels * num_classes + predictions, minlength=num_classes**2)
    return cells.reshape(num_classes, num_classes)


def per_class_rates(
    confusion: Int[np.ndarray, "K K"],
) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
    """Precision, recall and F1 per class, in [0, 1]; 0 where undefined, as `zero_division=0` does in scikit-learn."""
    hits = np.diag(confusion)
    asked = confusion.sum(axis=1)
    answered = confusion.sum(axis=0)
    return ratio(hits, answered), ratio(hits, asked), ratio(2 * hits, asked + answered)


def ratio(part: Int[np.ndarray, " K"], whole: Int[np.ndarray, " K"]) -> Float[np.ndarray, " K"]:
    """`part / whole`, 0 where the whole is 0."""
    rates: Float[np.ndarray, " K"] = np.divide(part, whole, out=np.zeros(len(whole)), where=whole > 0)
    return rates


def percent(share: float | np.floating) -> float:
    """A share in [0, 1] as a percentage."""
    return 100.0 * float(share)
