import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, precision_recall_fscore_support, top_k_accuracy_score

from serpette.errors import DataError, NonFiniteError
from serpette.evaluation.metrics import Metrics, score


def names(k: int) -> list[str]:
    return [f"class {i}" for i in range(k)]


def assert_matches_sklearn(labels: np.ndarray, logits: np.ndarray) -> Metrics:
    found = score(labels, logits, names(logits.shape[1]))
    answers = logits.argmax(axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns about answers that are not among the labels
        precision, recall, f1, _ = precision_recall_fscore_support(labels, answers, average="macro", zero_division=0)
        balanced = balanced_accuracy_score(labels, answers)
    assert found.top1 == pytest.approx(100 * (answers == labels).mean())
    assert found.balanced_accuracy == pytest.approx(100 * balanced)
    assert found.macro_precision == pytest.approx(100 * precision)
    assert found.macro_recall == pytest.approx(100 * recall)
    assert found.macro_f1 == pytest.approx(100 * f1)
    assert found.correct == tuple((answers == labels).tolist())
    return found


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 40), k=st.integers(2, 9), seed=st.integers(0, 999), used=st.integers(1, 9))
def test_agrees_with_scikit_learn_also_with_absent_classes(n: int, k: int, seed: int, used: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, min(used, k), n)
    found = assert_matches_sklearn(labels, rng.normal(size=(n, k)))
    assert found.n == n
    assert found.majority_baseline == pytest.approx(100 * np.bincount(labels).max() / n)


def test_top5_agrees_with_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    labels, logits = rng.integers(0, 9, 200), rng.normal(size=(200, 9))
    found = score(labels, logits, names(9))
    assert found.top_k == 5
    assert found.top5 == pytest.approx(100 * top_k_accuracy_score(labels, logits, k=5))


def test_top5_is_capped_at_the_number_of_classes() -> None:
    found = score(np.array([0, 1]), np.array([[0.0, 1.0], [0.0, 1.0]]), names(2))
    assert (found.top_k, found.top5, found.top1) == (2, 100.0, 50.0)


def test_one_image() -> None:
    found = score(np.array([1]), np.array([[0.0, 2.0, 1.0]]), names(3))
    assert (found.top1, found.balanced_accuracy, found.macro_f1, found.majority_baseline) == (100, 100, 100, 100)


def test_equal_logits_answer_with_the_first_class() -> None:
    found = score(np.array([0, 1, 6]), np.zeros((3, 7)), names(7))
    assert found.correct == (True, False, False)
    assert found.top5 == pytest.approx(200 / 3)


def test_imbalance_shows_in_balanced_accuracy_and_baseline() -> None:
    labels = np.repeat([0, 1], [990, 10])
    found = score(labels, np.tile([1.0, 0.0], (1000, 1)), names(2))
    assert (found.top1, found.majority_baseline, found.balanced_accuracy) == (99.0, 99.0, 50.0)


def test_per_class_says_none_where_there_is_nothing_to_count() -> None:
    a, b, c = score(np.array([0, 0, 1]), np.array([[1.0, 0, 0], [0, 0, 1.0], [1.0, 0, 0]]), "abc").per_class
    assert (a.name, a.n, a.recall, a.precision) == ("a", 2, 50.0, 50.0)
    assert (b.n, b.recall, b.precision) == (1, 0.0, None)
    assert (c.n, c.recall, c.precision) == (0, None, 0.0)


def test_non_finite_logits_are_counted() -> None:
    logits = np.zeros((4, 3), dtype=np.float32)
    logits[1, 2], logits[3] = np.nan, np.inf
    with pytest.raises(NonFiniteError, match="2 of 4 images"):
        score(np.zeros(4, dtype=np.int64), logits, names(3))


def test_refuses_no_image_and_unknown_labels() -> None:
    with pytest.raises(DataError, match="no image"):
        score(np.zeros(0, dtype=np.int64), np.zeros((0, 3)), names(3))
    with pytest.raises(DataError, match="0 to 3, but the model answers with 3 classes"):
        score(np.array([0, 3]), np.zeros((2, 3)), names(3))
