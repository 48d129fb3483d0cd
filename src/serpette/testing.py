"""Fakes for the tests of serpette and of those who build on it: a small model, a small folder of images."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from serpette.models.timm import load_timm

SIDE = 28


def tiny_model(*, depth: int = 4, num_classes: int = 0, image_size: int = SIDE, seed: int = 0) -> nn.Module:
    """A timm ViT with random weights: width 48, patches of a quarter of the image's side, one class token."""
    torch.manual_seed(seed)
    return load_timm(
        "vit_tiny_patch16_224",
        image_size=image_size,
        random_weights=True,
        patch_size=image_size // 4,
        embed_dim=48,
        num_heads=3,
        depth=depth,
        num_classes=num_classes,
    )


def image_folder(
    root: Path,
    *,
    splits: Sequence[str] = ("train", "val", "test"),
    classes: Sequence[str] = ("cat", "dog", "fox"),
    per_class: int = 4,
    side: int = SIDE,
    seed: int = 0,
) -> Path:
    """Write PNG images of noise, one brightness per class, as `root/SPLIT/CLASS/NUMBER.png`; return `root`."""
    rng = np.random.default_rng(seed)
    for split in splits:
        for k, name in enumerate(classes):
            folder = root / split / name
            folder.mkdir(parents=True, exist_ok=True)
            for i in range(per_class):
                noise = rng.normal(255 * (k + 1) / (len(classes) + 1), 20, (side, side, 3))
                Image.fromarray(noise.clip(0, 255).astype(np.uint8)).save(folder / f"{i}.png")
    return root
