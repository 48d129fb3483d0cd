"""Cases 13 to 15, against hand formulas and the paper's numbers."""

import copy
from collections.abc import Sequence
from functools import cache

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from serpette.benchmark.flops import count_flops, meta_twin
from serpette.errors import ModelError


def block_flops(
    tokens: int, dim: int, hidden: int, *, attention: bool = True, mlp: bool = True, gated: bool = False
) -> int:
    """Two FLOPs per multiply-accumulate: qkv and output projections, scores and values, the MLP's linear layers."""
    projections, products = 2 * tokens * 4 * dim * dim, 2 * 2 * tokens * tokens * dim
    layers = 2 * tokens * (3 if gated else 2) * dim * hidden
    return attention * (projections + products) + mlp * layers


def vit_flops(
    depth: int, dim: int, patch: int, image_size: int, hidden: int, classes: int, *, gated: bool = False
) -> int:
    patches = (image_size // patch) ** 2
    embedding, head = 2 * patches * 3 * patch**2 * dim, 2 * dim * classes
    return embedding + depth * block_flops(patches + 1, dim, hidden, gated=gated) + head


@cache
def on_meta(name: str, image_size: int) -> nn.Module:
    with torch.device("meta"):
        return timm.create_model(name, img_size=image_size).eval()


@cache
def dense_flops(name: str) -> int:
    return count_flops(on_meta(name, 224), 224)


class Branch(nn.Module):
    """A timm block that keeps one of its two residual branches."""

    def __init__(self, block: nn.Module, keep: str) -> None:
        super().__init__()
        number = "1" if keep == "attn" else "2"
        self.branch = nn.Sequential(
            getattr(block, f"norm{number}"), getattr(block, keep), getattr(block, f"ls{number}")
        )

    def forward(self, x: Tensor, **_: object) -> Tensor:
        return x + self.branch(x)


def pruned(
    model: nn.Module, *, block: Sequence[int] = (), attention: Sequence[int] = (), mlp: Sequence[int] = ()
) -> nn.Module:
    model = copy.deepcopy(model)
    left = []
    for i, whole in enumerate(model.blocks):
        if i in block:
            continue
        left.append(Branch(whole, "mlp") if i in attention else Branch(whole, "attn") if i in mlp else whole)
    model.blocks = nn.Sequential(*left)
    return model


@pytest.mark.parametrize(
    ("name", "formula", "published"),
    [
        ("vit_tiny_patch16_224", vit_flops(12, 192, 16, 224, 768, 1000), 2.507),
        ("vit_base_patch16_224", vit_flops(12, 768, 16, 224, 3072, 1000), 35.13),
        ("vit_giant_patch14_dinov2", vit_flops(40, 1536, 14, 224, 4096, 0, gated=True), 598.8),
    ],
)
def test_agrees_with_the_formula(name: str, formula: int, published: float) -> None:
    count = dense_flops(name)
    assert count == pytest.approx(formula, rel=1e-3)
    assert count / 1e9 == pytest.approx(published, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "image_size", "gflops"),
    [("vit_large_patch16_dinov3", 224, 125.7), ("swinv2_base_window16_256", 256, 43.9)],
)
def test_agrees_with_the_specification(name: str, image_size: int, gflops: float) -> None:
    with torch.device("meta"):
        model = timm.create_model(name)
    assert count_flops(model, image_size) / 1e9 == pytest.approx(gflops, rel=1.5e-3)


@pytest.mark.parametrize(
    ("name", "cut", "percent"),
    [
        ("vit_base_patch16_224", {"mlp": range(4)}, 20.99),
        ("vit_base_patch16_224", {"block": range(4)}, 32.83),
        ("vit_giant_patch14_dinov2", {"block": range(4)}, 9.98),
        ("vit_giant_patch14_dinov2", {"mlp": range(8)}, 12.94),
        ("vit_giant_patch14_dinov2", {"attention": range(14), "mlp": range(20, 30)}, 28.45),
    ],
)
def test_reductions_match_the_paper(name: str, cut: dict[str, range], percent: float) -> None:
    reduction = 100 * (1 - count_flops(pruned(on_meta(name, 224), **cut), 224) / dense_flops(name))
    assert reduction == pytest.approx(percent, abs=0.6)  # the tolerance that the method states


def test_attention_grows_sixteenfold_and_the_rest_fourfold() -> None:
    """Case 14: from 224 to 448 pixels."""
    small, large = (count_flops(on_meta("vit_tiny_patch16_224", s), s) for s in (224, 448))
    attention = [12 * 2 * 2 * t * t * 192 for t in (197, 785)]
    head = 2 * 192 * 1000
    assert attention[1] / attention[0] == pytest.approx(16, rel=0.02)
    assert (large - attention[1] - head) / (small - attention[0] - head) == pytest.approx(4, rel=0.01)


class Attention(nn.Module):
    """Patches, one attention layer, and a plain tensor that is neither parameter nor buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, 4)
        self.qkv = nn.Linear(8, 24)
        self.offset = torch.zeros(8)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2) + self.offset  # (B, 3, S, S) -> (B, T, 8)
        q, k, v = self.qkv(tokens).unflatten(2, (3, 2, 4)).permute(2, 0, 3, 1, 4)  # -> 3 x (B, 2 heads, T, 4)
        out: Tensor = F.scaled_dot_product_attention(q, k, v)
        return out


EXPECTED = 2 * 16 * 48 * 8 + 2 * 16 * 8 * 24 + 2 * 2 * 16 * 16 * 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("requires_grad", [True, False])
def test_does_not_depend_on_precision_or_gradients(dtype: torch.dtype, requires_grad: bool) -> None:
    model = Attention().to(dtype).requires_grad_(requires_grad)
    assert count_flops(model, 16) == EXPECTED
    with torch.no_grad():
        assert count_flops(model, 16) == EXPECTED
    with torch.inference_mode():
        assert count_flops(model, 16) == EXPECTED
        assert count_flops(Attention(), 16) == EXPECTED


@pytest.mark.parametrize("backend", [torch.nn.attention.SDPBackend.FLASH_ATTENTION, torch.nn.attention.SDPBackend.MATH])
def test_does_not_depend_on_the_kernel(backend: torch.nn.attention.SDPBackend) -> None:
    with torch.nn.attention.sdpa_kernel(backend):
        assert count_flops(Attention(), 16) == EXPECTED


def test_leaves_the_model_as_it_was() -> None:
    model = Attention().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    count_flops(model, 16)
    assert all(module.training for module in model.modules())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_meta_twin_keeps_shared_parameters_shared() -> None:
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    model[1].weight = model[0].weight
    twin = meta_twin(model)
    assert twin[0].weight is twin[1].weight
    assert all(p.is_meta for p in twin.parameters())


def test_says_why_it_cannot_count() -> None:
    with pytest.raises(ModelError, match="at 225 pixels"):
        count_flops(on_meta("vit_tiny_patch16_224", 224), 225)
