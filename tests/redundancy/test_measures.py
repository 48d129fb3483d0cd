import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import cosines_by_hand, pairs_by_hand
from torch import Tensor

from serpette.records import PARTS
from serpette.redundancy import measures
from serpette.redundancy.measures import angle, compare, relative_norm


def stream(
    depth: int = 3,
    images: int = 4,
    tokens: int = 5,
    dim: int = 24,
    step: float = 0.3,
    scale: float = 1.0,
    seed: int = 0,
) -> list[Tensor]:
    """A random walk of 2 depth + 1 states, each step a fraction `step` of the norm."""
    generator = torch.Generator().manual_seed(seed)
    states = [scale * torch.randn(images, tokens, dim, generator=generator)]
    for _ in range(2 * depth):
        states.append(states[-1] + scale * step * torch.randn(images, tokens, dim, generator=generator))
    return states


def assert_right(states: list[Tensor], atol: float = 1e-6) -> None:
    sites, steps, means = compare(states)
    for (i, part), (a, b) in pairs_by_hand(states).items():
        p = PARTS.index(part)  # type: ignore[arg-type]
        cosines = cosines_by_hand(a, b).clamp(-1, 1)
        a, b = a.double(), b.double()
        n = cosines.shape[1]
        torch.testing.assert_close(sites.distance[p, i] / n, (1 - cosines).mean(1), rtol=1e-4, atol=atol)
        torch.testing.assert_close(sites.angular[p, i] / n, (cosines.arccos() / math.pi).mean(1), rtol=1e-4, atol=1e-6)
        relative = ((b - a).norm(dim=-1) / a.norm(dim=-1)).mean(1)
        torch.testing.assert_close(sites.relative_norm[p, i] / n, relative, rtol=1e-4, atol=1e-6)
        assert (sites.tokens[p, i] == n).all()
    outer = states[::2]
    for i in range(len(outer)):
        for j in range(i + 1, len(outer)):
            found = steps.products[i:j, i:j].sum() / steps.tokens / 2
            expected = (1 - cosines_by_hand(outer[i], outer[j])).mean()
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=atol)
    torch.testing.assert_close(means, torch.stack([state.float().mean(1) for state in states]))


@pytest.mark.parametrize("step", [1.0, 0.1, 1e-3])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_agrees_with_fp64(step: float, scale: float) -> None:
    assert_right(stream(step=step, scale=scale))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_half_precision_states_are_compared_in_full_precision(dtype: torch.dtype, scale: float) -> None:
    states = [state.to(dtype) for state in stream(dim=384, step=0.014, scale=scale)]
    assert 1e-5 < float(compare(states).sites.distance.min()) / 5 < 3e-4
    assert_right(states)


def test_a_token_whose_norm_explodes_and_collapses_again_keeps_its_digits() -> None:
    states = stream(depth=4, step=0.01)
    for state in states[2:7]:
        state[:, 0, 3] += 3e4  # massive activations: they come in an early block and go in a late one
    assert_right(states)


def test_equal_states_have_cosine_one_and_opposite_ones_minus_one() -> None:
    x = stream()[0]
    sites, steps, _ = compare([x, x, x])
    assert sites.distance.abs().max() == 0
    assert sites.angular.abs().max() == 0
    assert steps.products.abs().max() == 0
    sites, _, _ = compare([x, x, -x])
    torch.testing.assert_close(sites.distance[0] / 5, torch.full((1, 4), 2.0).double(), rtol=0, atol=1e-6)
    torch.testing.assert_close(sites.angular[0] / 5, torch.ones(1, 4).double(), rtol=0, atol=1e-3)
    assert (sites.distance <= 2 * 5).all()


@settings(max_examples=30, deadline=None)
@given(factor=st.floats(1e-4, 1e4), seed=st.integers(0, 99))
def test_parallel_states_never_exceed_cosine_one(factor: float, seed: int) -> None:
    x = stream(seed=seed)[0].half()
    sites = compare([x, x.float() * factor, x]).sites
    assert (sites.distance >= 0).all()
    assert (sites.distance / 5 < 1e-12).all()


def test_zero_tokens_are_counted_and_left_out() -> None:
    states = stream()
    for state in states:
        state[1, 2] = 0
    states[2][0, 0] = 0  # between block 0 and block 1 only
    sites, steps, _ = compare(states)
    assert sites.zero[:, 2, 1].tolist() == [1, 1, 1]
    assert sites.zero[:, 0, 0].tolist() == [1, 0, 1]  # attention of block 0 ends before
    assert (sites.nonfinite == 0).all()
    assert steps.tokens == 4 * 5 - 2
    kept = [torch.cat([state[1, :2], state[1, 3:]])[None] for state in states]
    torch.testing.assert_close(sites.distance[..., 1], compare(kept).sites.distance[..., 0])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_non_finite_tokens_are_counted_and_left_out(bad: float) -> None:
    states = stream()
    clean = compare(states)
    states[3][2, 4, 7] = bad  # between the branches of block 1
    sites, steps, _ = compare(states)
    assert sites.nonfinite.sum(-1).tolist() == [[0, 0, 0], [0, 1, 0], [0, 1, 0]]
    assert sites.distance.isfinite().all()
    torch.testing.assert_close(sites.distance[0], clean.sites.distance[0])
    assert steps.products.isfinite().all()
    assert steps.tokens == 20


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    states = stream(images=7)
    whole = compare(states)
    monkeypatch.setitem(measures.CHUNK_BYTES, "cpu", 3 * 4 * 7 * 5 * 24)
    chunked = compare(states)
    for a, b in zip(
        (*whole.sites, *whole.steps, whole.means), (*chunked.sites, *chunked.steps, chunked.means), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)


def test_the_states_are_left_alone() -> None:
    states = stream()
    before = [state.clone() for state in states]
    compare(states)
    assert all(torch.equal(a, b) for a, b in zip(states, before, strict=True))


def test_angle_and_norm_by_known_values() -> None:
    right = torch.tensor(math.sqrt(2), dtype=torch.float64)
    assert angle(right).item() == pytest.approx(0.5)
    three, four = torch.tensor(3.0, dtype=torch.float64), torch.tensor(4.0, dtype=torch.float64)
    assert relative_norm(three, four, right).item() == pytest.approx(5 / 3)
