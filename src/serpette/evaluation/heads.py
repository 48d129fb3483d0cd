"""Linear classifiers on frozen features: three ways to fit one.

    ridge     least squares on one-hot targets, closed form, from sums that shards can add up
    logistic  multinomial logistic regression, L-BFGS
    adamw     the recipe of Viespoli & Nanni (2026): AdamW, learning rate 1e-3, weight decay 0.03, batch 32, 5 epochs

A strength means the same for any number of images and any scale of the features, so that the strength chosen on
validation images can be used again on training and validation images together.

Shapes: N training images, M validation images, D features, K classes.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from serpette.errors import DataError, NonFiniteError
from serpette.records import HeadFit

HeadMethod = Literal["ridge", "logistic", "adamw"]

# From strong to weak: the first of several equally good strengths wins, and logistic starts warm from the one before.
STRENGTHS: dict[HeadMethod, tuple[float, ...]] = {
    "ridge": tuple(10.0 ** (-e / 2) for e in range(-2, 11)),  # 10 ... 1e-5
    "logistic": tuple(10.0**-e for e in range(6)),  # 1 ... 1e-5
    "adamw": (0.03,),
}
LEARNING_RATE = 1e-3
BATCH_SIZE = 32
EPOCHS = 5
ABSENT_BIAS = -1e4  # the logit of a class without training images: its probability is 0, and fp16 can hold it


class LinearHead(NamedTuple):
    """A linear classifier."""

    weight: Float[Tensor, "K D"]
    bias: Float[Tensor, " K"]

    def logits(self, features: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        """`features @ weight.T + bias`, in the precision of the head."""
        return F.linear(features.to(self.weight), self.weight, self.bias)

    def float(self) -> "LinearHead":
        """The same head in fp32."""
        return LinearHead(self.weight.float(), self.bias.float())


def fit(
    method: HeadMethod,
    train_features: Float[Tensor, "N D"],
    train_labels: Int64[Tensor, " N"],
    validation_features: Float[Tensor, "M D"],
    validation_labels: Int64[Tensor, " M"],
    num_classes: int,
    *,
    seed: int = 0,
    epochs: int = EPOCHS,
) -> tuple[LinearHead, HeadFit]:
    """Fit a head on training images, its strength of regularisation chosen on validation images.

    The strengths in `STRENGTHS[method]` are tried; the best top-1 on validation wins, ties go to the stronger one.

    Args:
        method: `ridge`, `logistic` or `adamw`.
        train_features: (N, D).
        train_labels: (N,) class indices; a class may have no image.
        validation_features: (M, D).
        validation_labels: (M,).
        num_classes: K.
        seed: of initialisation and order (`adamw` only).
        epochs: passes over the training images (`adamw` only).

    Returns:
        The head in fp32, and how it was fitted.

    Raises:
        DataError: fewer than two classes have training images, a label is out of range, or no image is for validation.
        NonFiniteError: features are NaN or infinite.
    """
    check_features(validation_features, "validation")
    best: tuple[float, float, LinearHead] | None = None
    for strength, head in heads(method, STRENGTHS[method], train_features, train_labels, num_classes, seed, epochs):
        accuracy = top1(head, validation_features, validation_labels)
        if best is None or accuracy > best[0]:
            best = (accuracy, strength, head)
    assert best is not None
    accuracy, strength, head = best
    n_train, n_validation = len(train_features), len(validation_features)
    return head, HeadFit(
        method=method, strength=strength, n_train=n_train, n_validation=n_validation, validation_top1=accuracy
    )


def refit(
    method: HeadMethod,
    strength: float,
    features: Float[Tensor, "N D"],
    labels: Int64[Tensor, " N"],
    num_classes: int,
    *,
    seed: int = 0,
    epochs: int = EPOCHS,
) -> LinearHead:
    """Fit a head at a strength that is already chosen; the head is in fp32.

    Raises:
        DataError: fewer than two classes have images, or a label is out of range.
        NonFiniteError: features are NaN or infinite.
    """
    ((_, head),) = heads(method, (strength,), features, labels, num_classes, seed, epochs)
    return head


def heads(
    method: HeadMethod,
    strengths: Sequence[float],
    features: Float[Tensor, "N D"],
    labels: Int64[Tensor, " N"],
    num_classes: int,
    seed: int = 0,
    epochs: int = EPOCHS,
) -> Iterator[tuple[float, LinearHead]]:
    """A head in fp32 for every strength, in their order.

    Raises:
        DataError: fewer than two classes have images, or a label is out of range.
        NonFiniteError: features are NaN or infinite.
    """
    check_features(features, "training")
    check_labels(labels, num_classes)
    # Features often come out of inference mode, where gradients do not exist; this is ordinary fitting again.
    with torch.inference_mode(False), torch.enable_grad():
        match method:
            case "ridge":
                path = ridge_path(features, labels, num_classes, strengths)
            case "logistic":
                path = logistic_path(features, labels, num_classes, strengths)
            case "adamw":
                path = ((decay, adamw(features, labels, num_classes, decay, seed, epochs)) for decay in strengths)
        fitted = [(strength, head.float()) for strength, head in path]
    yield from fitted


def top1(head: LinearHead, features: Float[Tensor, "M D"], labels: Int64[Tensor, " M"]) -> float:
    """Percent of images whose highest logit is that of their class."""
    right = head.logits(features).argmax(dim=1) == labels.to(head.weight.device)
    return 100.0 * int(right.sum()) / len(labels)


def check_features(features: Float[Tensor, "N D"], split: str) -> None:
    """Refuse features that no head can be fitted on.

    Raises:
        DataError: there is no image.
        NonFiniteError: features are NaN or infinite.
    """
    if len(features) == 0:
        raise DataError(f"There is no {split} image to fit a head on; expected at least one. Check the split.")
    broken = int((~features.isfinite()).any(dim=1).sum())
    if broken:
        raise NonFiniteError(
            f"The features of {broken} of {len(features)} {split} images are NaN or infinite; expected finite numbers. "
            "Try dtype fp32."
        )


def check_labels(labels: Int64[Tensor, " N"], num_classes: int) -> None:
    """Refuse labels that make no classification problem.

    Raises:
        DataError: fewer than two classes have images, or a label is out of range.
    """
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= num_classes:
        raise DataError(f"Labels run from {low} to {high}, but there are {num_classes} classes (0-{num_classes - 1}).")
    if low == high:
        raise DataError(
            f"All {len(labels)} training images are of one class; a head needs at least two. Add another class."
        )


def exact(tensor: Tensor) -> Tensor:
    """The tensor in fp64, on the CPU where its device knows no fp64."""
    return (tensor.cpu() if tensor.device.type == "mps" else tensor).double()


# Ridge


class RidgeStatistics:
    """All that ridge regression needs to know about a set of images, in fp64; does not grow with the set.

    Sums of shards are merged as in Chan, Golub & LeVeque (1979), around the mean, so that features with a large mean
    lose no digits.
    """

    def __init__(self, dim: int, num_classes: int, device: torch.device | str = "cpu") -> None:
        self.class_counts = torch.zeros(num_classes, dtype=torch.float64, device=device)  # (K,)
        self.class_sums = torch.zeros(num_classes, dim, dtype=torch.float64, device=device)  # (K, D) sums of features
        self.scatter = torch.zeros(dim, dim, dtype=torch.float64, device=device)  # (D, D) around the mean

    @property
    def count(self) -> Float[Tensor, ""]:
        """The number of images."""
        return self.class_counts.sum()

    @property
    def mean(self) -> Float[Tensor, " D"]:
        """The mean feature vector, 0 without images."""
        return self.class_sums.sum(dim=0) / self.count.clamp(min=1)

    def add(self, features: Float[Tensor, "N D"], labels: Int64[Tensor, " N"]) -> "RidgeStatistics":
        """Take in images."""
        batch = RidgeStatistics(features.shape[1], len(self.class_counts), self.scatter.device)
        x, labels = exact(features).to(self.scatter), labels.to(self.scatter.device)
        batch.class_counts += torch.bincount(labels, minlength=len(self.class_counts))
        batch.class_sums.index_add_(0, labels, x)
        x = x - batch.mean
        batch.scatter.addmm_(x.T, x)
        return self.merge(batch)

    def merge(self, other: "RidgeStatistics") -> "RidgeStatistics":
        """Take in the images that `other` has seen."""
        total = self.count + other.count
        shift = other.mean - self.mean
        weight = self.count * other.count / total.clamp(min=1)
        self.scatter += other.scatter + weight * torch.outer(shift, shift)
        self.class_counts += other.class_counts
        self.class_sums += other.class_sums
        return self

    def solve(self, strength: float) -> LinearHead:
        """The ridge head in fp64; see `RidgeFactor.solve`."""
        return self.factor().solve(strength)

    def factor(self) -> "RidgeFactor":
        """The eigendecomposition that all strengths share."""
        values, vectors = torch.linalg.eigh(self.scatter)
        mean, counts = self.mean, self.class_counts
        cross = self.class_sums - torch.outer(counts, mean)  # (K, D): sums of (y - mean y)(x - mean x)
        return RidgeFactor(values.clamp(min=0), vectors, cross @ vectors, mean, counts / self.count)


class RidgeFactor(NamedTuple):
    """The ridge problem in the eigenbasis of the scatter matrix."""

    values: Float[Tensor, " D"]
    vectors: Float[Tensor, "D D"]
    cross: Float[Tensor, "K D"]
    mean: Float[Tensor, " D"]
    prior: Float[Tensor, " K"]

    def solve(self, strength: float) -> LinearHead:
        """Minimise |Y - X W^T - b|^2 + a |W|^2 for one-hot Y, with a = strength x the mean eigenvalue of the scatter.

        The intercept is not penalised (Hastie, Tibshirani & Friedman, The Elements of Statistical Learning, eq. 3.41).
        """
        penalty = strength * self.values.mean().clamp(min=torch.finfo(torch.float64).tiny ** 0.5)
        weight = (self.cross / (self.values + penalty)) @ self.vectors.T  # (K, D)
        return LinearHead(weight, self.prior - weight @ self.mean)


def ridge_path(
    features: Float[Tensor, "N D"], labels: Int64[Tensor, " N"], num_classes: int, strengths: Sequence[float]
) -> Iterator[tuple[float, LinearHead]]:
    """Ridge heads for all strengths from one factorisation."""
    device = "cpu" if features.device.type == "mps" else features.device
    statistics = RidgeStatistics(features.shape[1], num_classes, device)
    for x, y in zip(torch.split(features, 8192), torch.split(labels, 8192), strict=True):  # bounds the fp64 copies
        statistics.add(x, y)
    factor = statistics.factor()
    for strength in strengths:
        yield strength, factor.solve(strength)


# Logistic


class Whitening(NamedTuple):
    """A change of variables z = (x - mean) @ basis under which the logistic loss is nearly round.

    The columns of `basis` standardise the features, turn them onto their principal axes and scale each axis by the
    curvature that Boehning (1992) bounds: 1/2 x variance + strength. L-BFGS then needs tens of steps, not hundreds; the
    optimum is the same, since the penalty is carried along as `penalty` per axis.
    """

    mean: Float[Tensor, " D"]
    basis: Float[Tensor, "D D"]
    penalty: Float[Tensor, " D"]


def logistic_path(
    features: Float[Tensor, "N D"], labels: Int64[Tensor, " N"], num_classes: int, strengths: Sequence[float]
) -> Iterator[tuple[float, LinearHead]]:
    """Minimise mean cross-entropy + strength / 2 |W|^2, with W on standardised features and a free intercept.

    Equals scikit-learn's `LogisticRegression(C=1 / (N x strength))` on standardised features. Standardisation is folded
    back into the head. Classes without images never win.
    """
    x = exact(features)
    present, targets = torch.unique(labels.to(x.device), return_inverse=True)
    mean, deviation = x.mean(dim=0), x.std(dim=0, correction=0)
    scale = torch.where(deviation > 0, 1 / deviation, 0)  # a constant feature says nothing
    x = (x - mean) * scale
    values, vectors = torch.linalg.eigh(x.T @ x / len(x))
    rotated = x @ vectors
    standardised = torch.zeros(len(present), x.shape[1], dtype=x.dtype, device=x.device)  # (present, D), rotated axes
    bias = torch.zeros(len(present), dtype=x.dtype, device=x.device)
    for strength in strengths:
        axes = 1 / (values.clamp(min=0) / 2 + strength).sqrt()
        start = LinearHead(standardised / axes, bias)
        weight, bias = lbfgs(rotated * axes, targets, start, strength * axes.square())
        standardised = weight * axes
        own = standardised @ vectors.T * scale
        yield strength, spread(LinearHead(own, bias - own @ mean), present, num_classes)


def lbfgs(
    x: Float[Tensor, "N D"], targets: Int64[Tensor, " N"], start: LinearHead, penalty: Float[Tensor, " D"]
) -> LinearHead:
    """Minimise mean cross-entropy + 1/2 sum penalty_d W_kd^2 from `start`."""
    weight, bias = start.weight.clone().requires_grad_(), start.bias.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [weight, bias],
        max_iter=300,
        history_size=20,
        tolerance_grad=1e-7,
        tolerance_change=1e-11,  # of a loss around 1: probabilities are then right to about 1e-4
        line_search_fn="strong_wolfe",
    )

    def loss() -> float:
        optimizer.zero_grad()
        value = F.cross_entropy(F.linear(x, weight, bias), targets) + (penalty * weight.square()).sum() / 2
        value.backward()  # type: ignore[no-untyped-call]
        return value.item()

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    return LinearHead(weight.detach(), bias.detach())


def spread(head: LinearHead, present: Int64[Tensor, " present"], num_classes: int) -> LinearHead:
    """A head on the classes that are present as a head on all classes."""
    weight = head.weight.new_zeros(num_classes, head.weight.shape[1])
    bias = head.bias.new_full((num_classes,), ABSENT_BIAS)
    weight[present], bias[present] = head.weight, head.bias
    return LinearHead(weight, bias)


# AdamW


def adamw(
    features: Float[Tensor, "N D"], labels: Int64[Tensor, " N"], num_classes: int, decay: float, seed: int, epochs: int
) -> LinearHead:
    """The paper's recipe in fp32; `seed` decides initialisation (that of `torch.nn.Linear`) and order on any device."""
    generator = torch.Generator().manual_seed(seed)
    bound = 1 / math.sqrt(features.shape[1])
    weight = torch.empty(num_classes, features.shape[1]).uniform_(-bound, bound, generator=generator)
    bias = torch.empty(num_classes).uniform_(-bound, bound, generator=generator)
    weight, bias = (p.to(features.device).requires_grad_() for p in (weight, bias))
    labels = labels.to(features.device)
    optimizer = torch.optim.AdamW([weight, bias], lr=LEARNING_RATE, weight_decay=decay)
    for _ in range(epochs):
        order = torch.randperm(len(features), generator=generator).to(features.device)
        for batch in torch.split(order, BATCH_SIZE):
            optimizer.zero_grad()
            x, y = features[batch].float(), labels[batch]
            F.cross_entropy(F.linear(x, weight, bias), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return LinearHead(weight.detach(), bias.detach())
