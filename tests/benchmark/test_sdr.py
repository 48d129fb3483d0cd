import pytest

from serpette.benchmark.sdr import sdr_gamma, sdr_gamma_absolute


@pytest.mark.parametrize(
    ("accuracy", "speedup", "gamma"), [(81.20, 1.41, 0.023), (81.01, 1.64, 0.019), (51.94, 3.22, 0.165)]
)
def test_matches_the_paper(accuracy: float, speedup: float, gamma: float) -> None:
    assert sdr_gamma(81.99, accuracy, speedup) == pytest.approx(gamma, abs=0.0006)


def test_does_not_depend_on_the_unit_of_accuracy() -> None:
    assert sdr_gamma(0.8199, 0.8120, 1.41) == pytest.approx(sdr_gamma(81.99, 81.20, 1.41))


def test_absolute_points_are_another_number() -> None:
    assert sdr_gamma_absolute(80.0, 76.0, 1.5) == pytest.approx(4 / 50)
    assert sdr_gamma(80.0, 76.0, 1.5) == pytest.approx(5 / 50)


def test_is_negative_where_pruning_helps() -> None:
    gamma = sdr_gamma(80.0, 81.0, 1.2)
    assert gamma is not None
    assert gamma < 0


@pytest.mark.parametrize("speedup", [1.0, 0.9, None, float("nan")])
def test_is_undefined_without_a_speedup(speedup: float | None) -> None:
    assert sdr_gamma(80.0, 79.0, speedup) is None
    assert sdr_gamma_absolute(80.0, 79.0, speedup) is None


def test_is_undefined_without_accuracy_to_lose() -> None:
    assert sdr_gamma(0.0, 0.0, 2.0) is None
