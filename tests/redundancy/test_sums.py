from dataclasses import fields

import numpy as np
import pytest
import torch
from scipy import stats
from streams import cosines_by_hand, pairs_by_hand
from torch import Tensor

from serpette.records import PARTS
from serpette.redundancy.measures import compare
from serpette.redundancy.sums import Sums


def stream(images: int = 12, depth: int = 4, tokens: int = 6, dim: int = 16, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(images, tokens, dim, generator=generator)
    states = [x]
    for i in range(2 * depth):
        x = x + (0.1 + 0.1 * (i % 5)) * torch.randn(images, tokens, dim, generator=generator)
        states.append(x)
    return states


def summed(states: list[Tensor], *sizes: int) -> Sums:
    """The sums of the images taken in batches of these sizes."""
    sums = Sums.empty(len(states) // 2)
    for batch in zip(*(state.split(sizes) for state in states), strict=True):
        sums.add(compare(batch))
    return sums


def test_sites_are_the_means_over_images_and_tokens_with_students_interval() -> None:
    states = stream()
    sites = {(site.block, str(site.part)): site for site in summed(states, 5, 4, 3).sites()}
    assert list(sites) == [(i, part) for part in PARTS for i in range(4)]
    for key, (a, b) in pairs_by_hand(states).items():
        images = cosines_by_hand(a, b).mean(1).numpy()
        low, high = stats.t.interval(0.95, len(images) - 1, images.mean(), stats.sem(images))
        site = sites[key]
        assert site.cosine == pytest.approx(images.mean(), abs=1e-7)
        assert site.cosine_low == pytest.approx(low, abs=1e-6)
        assert site.cosine_high == pytest.approx(min(1, high), abs=1e-6)
        assert site.rankable


def test_the_mean_weighs_tokens_where_some_are_left_out() -> None:
    states = stream(images=4)
    for state in states:
        state[0, :4] = 0
    site = summed(states, 4).sites()[0]
    cosines = cosines_by_hand(states[0], states[2])
    assert site.cosine == pytest.approx(float(cosines.nanmean()), abs=1e-7)
    assert site.zero_tokens == 4


def test_windows_by_brute_force() -> None:
    states = stream()
    windows = {(w.start, w.length): w.cosine for w in summed(states, 7, 5).windows()}
    assert len(windows) == 4 + 3 + 2 + 1
    for (start, length), cosine in windows.items():
        expected = cosines_by_hand(states[2 * start], states[2 * (start + length)]).mean()
        assert cosine == pytest.approx(float(expected), abs=1e-6)


def test_stability_is_kendalls_tau_between_even_and_odd_images() -> None:
    states = stream()
    stability = summed(states, 5, 7).stability()
    pairs = pairs_by_hand(states)
    for part in PARTS:
        images = np.stack([cosines_by_hand(*pairs[i, part]).mean(1).numpy() for i in range(4)])
        expected = stats.kendalltau(images[:, ::2].mean(1), images[:, 1::2].mean(1)).statistic
        assert stability[part] == pytest.approx(expected)


def test_cka_adds_its_terms_over_batches_and_skips_the_smallest() -> None:
    states = stream(images=13)
    whole, without = summed(states, 5, 5, 3), summed([state[:10] for state in states], 5, 5)
    assert [site.cka for site in whole.sites()] == [site.cka for site in without.sites()]
    ckas = [site.cka for site in whole.sites()]
    assert all(cka is not None and 0 < cka <= 1 for cka in ckas)
    assert summed([state[:3] for state in states], 3).sites()[0].cka is None


def test_cka_of_a_stream_that_stays_is_one() -> None:
    x = stream(images=6)[0]
    assert [site.cka for site in summed([x, x, x], 6).sites()] == pytest.approx([1, 1, 1])


def test_merging_adds_exactly() -> None:
    a, b = summed(stream(seed=1), 12), summed(stream(images=8, seed=2), 8)
    expected = {field.name: getattr(a, field.name) + getattr(b, field.name) for field in fields(Sums)}
    a.merge(b)
    for name, value in expected.items():
        assert np.array_equal(getattr(a, name), value)
    assert a.images == 20


def test_shards_give_the_same_scores_as_one_run() -> None:
    states = stream(images=16)
    whole = summed(states, 8, 8)
    first, second = summed([s[:8] for s in states], 8), summed([s[8:] for s in states], 8)
    first.merge(second)
    assert (whole.sites(), whole.windows()) == (first.sites(), first.windows())


def test_a_site_with_nan_is_reported_and_not_ranked() -> None:
    states = stream()
    states[3][2, 1, 0] = torch.nan
    sums = summed(states, 6, 6)
    ranked = {(site.part, site.block): site.rankable for site in sums.sites()}
    assert [key for key, rankable in ranked.items() if not rankable] == [("attention", 1), ("mlp", 1)]
    assert all(site.cosine is not None for site in sums.sites())
    assert all(window.cosine is not None for window in sums.windows())


def test_what_cannot_be_measured_is_none() -> None:
    states = [torch.full_like(state, torch.nan) for state in stream()]
    sums = summed(states, 12)
    assert {site.cosine for site in sums.sites()} == {None}
    assert {site.nonfinite_tokens for site in sums.sites()} == {12 * 6}
    assert {site.cka for site in sums.sites()} == {None}
    assert {window.cosine for window in sums.windows()} == {None}
    assert set(sums.stability().values()) == {None}
    assert Sums.empty(3).sites()[0].cosine is None


def test_one_image_has_no_interval() -> None:
    site = summed(stream(images=1), 1).sites()[0]
    assert site.cosine is not None
    assert (site.cosine_low, site.cosine_high) == (None, None)
