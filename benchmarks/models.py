"""Models to measure: architectures with random weights, the same in every run."""

from typing import Any

import timm
import torch
from torch import nn


def dinov2_small(side: int) -> nn.Module:
    """12 blocks of width 384, patches of 14 pixels."""
    return _random("vit_small_patch14_dinov2", img_size=side)


def demo_like() -> nn.Module:
    """The shape of the demo model: 12 blocks of width 128, 17 tokens of 28 x 28 pixels."""
    return _random("vit_tiny_patch16_224", img_size=28, patch_size=7, embed_dim=128, num_heads=4)


def _random(architecture: str, **arguments: Any) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return timm.create_model(architecture, **arguments).eval()
