from typing import Any

import pytest
import torch
from streams import DEPTH, FakePixels, cosines_by_hand, pairs_by_hand, stream_by_hand, tiny
from torch import Tensor

from serpette.errors import ModelError
from serpette.models.base import Adapter
from serpette.models.runtime import to_input
from serpette.records import PARTS, Profile, Tokens
from serpette.redundancy.calibrate import check_tokens, measure_pixels, profile_pixels


def select(states: list[Tensor], tokens: Tokens, adapter: Adapter) -> list[Tensor]:
    cut = {
        "all": lambda x: x,
        "cls": lambda x: x[:, :1],
        "patch": lambda x: x[:, 1:],
        "pooled": lambda x: adapter.pool(x)[:, None],
    }
    return [cut[tokens](state) for state in states]


@pytest.mark.parametrize("tokens", ["all", "cls", "patch", "pooled"])
def test_scores_by_hand(tokens: Tokens) -> None:
    adapter, pixels = tiny(), FakePixels(10)
    sums = measure_pixels(adapter, pixels, tokens=tokens, batch_size=4)
    x = to_input(pixels.images, adapter.preprocessing, torch.device("cpu"), torch.float32)
    states = select(stream_by_hand(adapter.model, x), tokens, adapter)
    scores = {(site.block, str(site.part)): site for site in sums.sites()}
    for key, (a, b) in pairs_by_hand(states).items():
        assert scores[key].cosine == pytest.approx(float(cosines_by_hand(a, b).mean()), abs=1e-6)
        a, b = a.double(), b.double()
        relative = (b - a).norm(dim=-1) / a.norm(dim=-1)
        assert scores[key].relative_norm == pytest.approx(float(relative.mean()), rel=1e-4)
    for window in sums.windows():
        ends = states[2 * window.start], states[2 * (window.start + window.length)]
        assert window.cosine == pytest.approx(float(cosines_by_hand(*ends).mean()), abs=1e-6)


def test_profile_is_a_record() -> None:
    adapter, seen = tiny(), list[tuple[int, int]]()
    profile = profile_pixels(adapter, FakePixels(10), batch_size=4, seed=3, progress=lambda *p: seen.append(p))
    assert seen == [(4, 10), (8, 10), (10, 10)]
    assert (profile.images, profile.depth, profile.tokens, profile.provenance.seed) == (10, DEPTH, "all", 3)
    assert [len(profile.part(part)) for part in PARTS] == [DEPTH] * 3
    assert len(profile.windows) == DEPTH * (DEPTH + 1) // 2
    assert Profile.from_json(profile.to_json()) == profile


def test_the_model_is_left_as_it_was() -> None:
    adapter = tiny()
    adapter.blocks[1].eval()
    state = {key: value.clone() for key, value in adapter.model.state_dict().items()}
    measure_pixels(adapter, FakePixels(4))
    assert all(torch.equal(value, state[key]) for key, value in adapter.model.state_dict().items())
    assert adapter.model.training
    assert not adapter.blocks[1].training
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in adapter.model.modules())


def test_a_batch_that_runs_out_of_memory_leaves_no_trace() -> None:
    adapter, pixels = tiny(), FakePixels(8)
    expected = measure_pixels(adapter, pixels, batch_size=4)

    def full(_: Any, args: tuple[Tensor, ...]) -> None:
        if len(args[0]) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")

    adapter.blocks[3].register_forward_pre_hook(full)
    found = measure_pixels(adapter, pixels, batch_size=8)
    assert found.images == 8
    assert found.sites() == expected.sites()


def test_bf16_agrees_with_fp32() -> None:
    exact = measure_pixels(tiny(), FakePixels(8))
    adapter = tiny()
    adapter.model.bfloat16()
    rough = measure_pixels(adapter, FakePixels(8))
    for a, b in zip(exact.sites(), rough.sites(), strict=True):
        assert b.cosine == pytest.approx(a.cosine, abs=5e-3)
        assert b.cosine is not None
        assert b.cosine <= 1


def test_a_layer_with_nan_is_reported_and_the_others_are_ranked() -> None:
    adapter = tiny()
    with torch.no_grad():
        adapter.blocks[3].get_submodule("mlp.fc2").get_parameter("bias")[0] = torch.nan
    sites = measure_pixels(adapter, FakePixels(6)).sites()
    assert [(site.part, site.block) for site in sites if not site.rankable] == [("block", 3), ("mlp", 3)]
    assert next(site for site in sites if site.part == "mlp" and site.block == 3).nonfinite_tokens == 6 * 17


def test_tokens_that_the_model_lacks() -> None:
    adapter = tiny()
    with pytest.raises(ModelError, match="unknown tokens 'none'; expected one of all, cls, patch, pooled"):
        check_tokens(adapter, "none")
    adapter.model.num_prefix_tokens = 0  # type: ignore[assignment]
    with pytest.raises(ModelError, match="has no class token"):
        check_tokens(adapter, "cls")
