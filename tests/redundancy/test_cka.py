from itertools import permutations

import pytest
import torch
from torch import Tensor

from serpette.redundancy.cka import cka_terms


def hsic_by_hand(x: Tensor, y: Tensor) -> float:
    """HSIC_1 as the U-statistic over all quadruples of different images (Song et al. 2012, eq. 4)."""
    k, l = x.double() @ x.double().T, y.double() @ y.double().T  # noqa: E741
    values = [k[i, j] * (l[i, j] + l[q, r] - 2 * l[i, q]) for i, j, q, r in permutations(range(len(x)), 4)]
    return float(torch.stack(values).mean())


def test_agrees_with_the_u_statistic() -> None:
    means = torch.randn(5, 7, 6, generator=torch.Generator().manual_seed(0)) + 3
    xy, xx, yy = cka_terms(means)
    pairs = {(0, 0): (0, 2), (0, 1): (2, 4), (1, 0): (0, 1), (1, 1): (2, 3), (2, 0): (1, 2), (2, 1): (3, 4)}
    for (part, block), (a, b) in pairs.items():
        assert float(xy[part, block]) == pytest.approx(hsic_by_hand(means[a], means[b]), rel=1e-6, abs=1e-6)
        assert float(xx[part, block]) == pytest.approx(hsic_by_hand(means[a], means[a]), rel=1e-6)
        assert float(yy[part, block]) == pytest.approx(hsic_by_hand(means[b], means[b]), rel=1e-6)


def test_a_far_origin_costs_no_digits() -> None:
    means = torch.randn(3, 8, 6, generator=torch.Generator().manual_seed(1)).round(decimals=2)
    torch.testing.assert_close(cka_terms(means + 1024), cka_terms(means), rtol=1e-3, atol=1e-3)


def test_nan_stays_with_its_site() -> None:
    means = torch.randn(5, 6, 4, generator=torch.Generator().manual_seed(2))
    means[3, 0, 0] = torch.nan  # between the branches of block 1
    finite = cka_terms(means).isfinite().all(dim=0)
    assert finite.tolist() == [[True, True], [True, False], [True, False]]
