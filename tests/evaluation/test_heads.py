from collections.abc import Iterator

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from serpette.errors import DataError, NonFiniteError
from serpette.evaluation import heads
from serpette.evaluation.heads import ABSENT_BIAS, STRENGTHS, HeadMethod, LinearHead, RidgeStatistics, fit, refit

METHODS: tuple[HeadMethod, ...] = ("ridge", "logistic", "adamw")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Problems this small are slower on two threads, far slower where the cores are shared."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def clusters(n: int, dim: int = 12, classes: int = 4, noise: float = 1.5, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Gaussian classes with uneven, shifted features; the centres are the same for every seed."""
    centres = torch.randn(classes, dim, generator=torch.Generator().manual_seed(99))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (n,), generator=generator)
    labels[:classes] = torch.arange(classes)
    x = centres[labels] + noise * torch.randn(n, dim, generator=generator)
    return x * torch.logspace(-1, 2, dim) + 50, labels


@pytest.mark.parametrize("method", METHODS)
def test_learns_and_says_how(method: HeadMethod) -> None:
    (x, y), (vx, vy) = clusters(400, noise=0.3), clusters(100, noise=0.3, seed=1)
    if method == "adamw":  # the recipe expects features of ordinary scale
        x, vx = (x - x.mean(0)) / x.std(0), (vx - x.mean(0)) / x.std(0)
    head, how = fit(method, x, y, vx, vy, 4, epochs=40)
    assert head.weight.dtype == torch.float32
    assert (how.method, how.n_train, how.n_validation) == (method, 400, 100)
    assert how.strength in STRENGTHS[method]
    assert how.validation_top1 == heads.top1(head, vx, vy) > 95


@pytest.mark.parametrize("method", METHODS)
def test_refit_at_the_chosen_strength_gives_the_same_head(method: HeadMethod) -> None:
    (x, y), (vx, vy) = clusters(150), clusters(60, seed=1)
    head, how = fit(method, x, y, vx, vy, 4, seed=3)
    again = refit(method, how.strength, x, y, 4, seed=3)
    torch.testing.assert_close(again.logits(vx).softmax(1), head.logits(vx).softmax(1), rtol=0, atol=1e-3)


@pytest.mark.parametrize("strength", [1e-4, 1e-2, 1.0])
def test_ridge_is_that_of_scikit_learn(strength: float) -> None:
    x, y = clusters(200)
    head = RidgeStatistics(12, 4).add(x, y).solve(strength)
    centred = (x - x.mean(0)).double()
    oracle = Ridge(alpha=strength * float((centred**2).sum()) / 12).fit(x.double().numpy(), np.eye(4)[y])
    np.testing.assert_allclose(head.weight, oracle.coef_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(head.bias, oracle.intercept_, rtol=1e-6, atol=1e-9)


def test_ridge_tends_to_least_squares() -> None:
    x, y = clusters(200)
    head = RidgeStatistics(12, 4).add(x, y).solve(1e-14)
    design = np.c_[x.double().numpy(), np.ones(200)]
    solution = np.linalg.lstsq(design, np.eye(4)[y], rcond=None)[0]
    np.testing.assert_allclose(head.logits(x), design @ solution, atol=1e-7)


def test_ridge_statistics_do_not_depend_on_how_images_are_dealt() -> None:
    x, y = clusters(100)
    whole = RidgeStatistics(12, 4).add(x, y)
    a = RidgeStatistics(12, 4).add(x[:10], y[:10]).add(x[10:37], y[10:37])
    b = RidgeStatistics(12, 4).add(x[37:], y[37:])
    merged = a.merge(b).merge(RidgeStatistics(12, 4))
    torch.testing.assert_close(merged.scatter, whole.scatter)
    torch.testing.assert_close(merged.solve(0.1).weight, whole.solve(0.1).weight)
    assert int(merged.count) == 100


def test_ridge_keeps_its_digits_far_from_the_origin() -> None:
    x, y = clusters(200)
    near = RidgeStatistics(12, 4).add(x.double(), y).solve(1e-3)
    far = RidgeStatistics(12, 4).add(x.double() + 1e6, y).solve(1e-3)
    torch.testing.assert_close(near.weight, far.weight, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("strength", [1e-1, 1e-2, 1e-4])
def test_logistic_is_that_of_scikit_learn(strength: float) -> None:
    x, y = clusters(200)
    head = refit("logistic", strength, x, y, 4)
    z = StandardScaler().fit_transform(x.double().numpy())
    oracle = LogisticRegression(C=1 / (200 * strength), tol=1e-9, max_iter=5000).fit(z, y.numpy())
    probabilities = head.logits(x).softmax(dim=1).numpy()
    np.testing.assert_allclose(probabilities, oracle.predict_proba(z), atol=1e-4)
    loss = -np.log(probabilities[np.arange(200), y]).mean()
    assert loss == pytest.approx(-np.log(oracle.predict_proba(z)[np.arange(200), y]).mean(), abs=1e-5)


def test_logistic_with_two_classes_and_a_constant_feature() -> None:
    x, y = clusters(80, classes=2)
    x[:, 3] = 7.0
    head = refit("logistic", 1e-2, x, y, 2)
    assert head.weight[:, 3].abs().max() == 0
    z = StandardScaler().fit_transform(x.double().numpy())
    oracle = LogisticRegression(C=1 / (80 * 1e-2), tol=1e-9, max_iter=5000).fit(z, y.numpy())
    # softmax over two classes shares one weight between both, so its penalty is half of the binary one
    binary = LogisticRegression(C=2 / (80 * 1e-2), tol=1e-9, max_iter=5000).fit(z, y.numpy())
    found = head.logits(x).softmax(dim=1).numpy()
    np.testing.assert_allclose(found, binary.predict_proba(z), atol=1e-4)
    assert np.abs(found - oracle.predict_proba(z)).max() > 1e-3


def test_warm_starts_end_where_cold_starts_do() -> None:
    x, y = clusters(120)
    for strength, warm in heads.heads("logistic", STRENGTHS["logistic"][:5], x, y, 4):
        cold = refit("logistic", strength, x, y, 4)
        torch.testing.assert_close(warm.logits(x).softmax(1), cold.logits(x).softmax(1), rtol=0, atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_a_class_without_training_images_is_allowed(method: HeadMethod) -> None:
    (x, y), (vx, vy) = clusters(100), clusters(40, seed=1)
    head, _ = fit(method, x, y, vx, vy, 6)
    assert head.weight.shape == (6, 12)
    assert head.logits(vx).isfinite().all()
    if method == "logistic":
        assert head.bias[4:].tolist() == [ABSENT_BIAS, ABSENT_BIAS]


def test_more_features_than_images() -> None:
    (x, y), (vx, vy) = clusters(20, dim=60), clusters(20, dim=60, seed=1)
    for method in ("ridge", "logistic"):
        assert fit(method, x, y, vx, vy, 4)[0].weight.isfinite().all()


def test_ties_go_to_the_stronger_regularisation() -> None:
    x = torch.tensor([[-1.0], [1.0]]).repeat(20, 1)
    y = torch.tensor([0, 1]).repeat(20)
    for method in ("ridge", "logistic"):
        assert fit(method, x, y, x, y, 2)[1].strength == max(STRENGTHS[method])


def test_adamw_depends_on_its_seed_only() -> None:
    x, y = clusters(64)
    torch.manual_seed(1)
    first = refit("adamw", 0.03, x, y, 4, seed=5)
    torch.manual_seed(2)
    assert torch.equal(first.weight, refit("adamw", 0.03, x, y, 4, seed=5).weight)
    assert not torch.equal(first.weight, refit("adamw", 0.03, x, y, 4, seed=6).weight)


@pytest.mark.parametrize("method", METHODS)
def test_takes_features_from_inside_inference_mode(method: HeadMethod) -> None:
    with torch.inference_mode():
        (x, y), (vx, vy) = clusters(60), clusters(20, seed=1)
        head, _ = fit(method, x, y, vx, vy, 4)
    assert not head.weight.requires_grad


@pytest.mark.parametrize("method", METHODS)
def test_refusals(method: HeadMethod) -> None:
    (x, y), (vx, vy) = clusters(40), clusters(20, seed=1)
    with pytest.raises(DataError, match="All 40 training images are of one class"):
        fit(method, x, torch.zeros_like(y), vx, vy, 4)
    with pytest.raises(DataError, match="there are 3 classes"):
        fit(method, x, y, vx, vy, 3)
    with pytest.raises(DataError, match="no validation image"):
        fit(method, x, y, vx[:0], vy[:0], 4)
    x[3, 1] = torch.nan
    with pytest.raises(NonFiniteError, match="1 of 40 training images"):
        fit(method, x, y, vx, vy, 4)


def test_logits_are_an_affine_map() -> None:
    head = LinearHead(torch.tensor([[1.0, 2.0]]), torch.tensor([0.5]))
    assert head.logits(torch.tensor([[3.0, 4.0]], dtype=torch.bfloat16)).item() == 11.5
