"""A tiny dense model, its stream by hand, and the scores by hand in fp64."""

from collections.abc import Iterator, Sequence
from typing import Any

import timm
import torch
from torch import Tensor, nn

from serpette.data.pixels import Pixels
from serpette.models.base import adapt
from serpette.models.timm import TimmAdapter
from serpette.records import DataRef

DEPTH = 4


def tiny_vit(seed: int = 0) -> nn.Module:
    """A ViT with LayerScale, and weights large enough to turn the stream; in training mode."""
    torch.manual_seed(seed)
    model: nn.Module = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=48, num_heads=3, depth=DEPTH, init_values=0.1,
        num_classes=0, drop_path_rate=0.2,
    )  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


def tiny(seed: int = 0) -> TimmAdapter:
    """The tiny model, adapted."""
    adapter = adapt(tiny_vit(seed))
    assert isinstance(adapter, TimmAdapter)
    return adapter


@torch.no_grad()
def stream_by_hand(model: Any, x: Tensor) -> list[Tensor]:
    """The states of the tiny model, written out: (in, mid) of every block, then the last out."""
    model.eval()
    x = model.norm_pre(model.patch_drop(model._pos_embed(model.patch_embed(x))))
    states = []
    for block in model.blocks:
        states.append(x)
        x = x + block.ls1.gamma * block.attn(block.norm1(x))
        states.append(x)
        x = x + block.ls2.gamma * block.mlp(block.norm2(x))
    model.train()
    return [*states, x]


def pairs_by_hand(states: Sequence[Any]) -> dict[tuple[int, str], tuple[Any, Any]]:
    """What comes before and after every site."""
    pairs = {}
    for i in range(len(states) // 2):
        before, between, after = states[2 * i : 2 * i + 3]
        pairs |= {(i, "block"): (before, after), (i, "attention"): (before, between), (i, "mlp"): (between, after)}
    return pairs


def cosines_by_hand(a: Tensor, b: Tensor) -> Tensor:
    """cos per token in fp64: (B, T)."""
    a, b = a.double(), b.double()
    return (a * b).sum(-1) / a.norm(dim=-1) / b.norm(dim=-1)


class FakePixels(Pixels):
    """Random images in memory."""

    def __init__(self, n: int = 10, size: int = 32, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.images = torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=generator)

    def __len__(self) -> int:
        return len(self.images)

    def batches(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        for images in self.images.split(batch_size):
            yield images, torch.zeros(len(images), dtype=torch.int64)

    def ref(self) -> DataRef:
        return DataRef(name="fake", split="train", fingerprint="f", classes=("a",), n=len(self), n_bad=0)
