"""Tiny random models and folders that several test modules share."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import serpette
from models.families import FAMILIES, build, images
from serpette.models import adapt, inference

FAMILY = {family.name: family for family in FAMILIES}
TIMM, HF = "timm-vit", "transformers-vit-classifier"
WEIGHTS = "model.safetensors"


def tiny(name: str) -> nn.Module:
    return build(FAMILY[name])


def blocks(name: str, model: nn.Module):
    return FAMILY[name].blocks(model)


def answers(model: nn.Module, x: Tensor | None = None) -> Tensor:
    """The logits, or the features of a model without a classifier."""
    adapter = adapt(model)
    with inference(model):
        x = images() if x is None else x
        return adapter.logits(x) if adapter.num_classes else adapter.features(x)


def plain_folder(model: nn.Module, folder: Path) -> Path:
    """A folder as the model's own library writes it, without the manifest of serpette."""
    serpette.save(model, folder)
    (folder / "pruning.json").unlink()
    return folder


def rename_weights(folder: Path, prefix: str) -> None:
    state = load_file(folder / WEIGHTS)
    save_file({prefix + name: tensor for name, tensor in state.items()}, folder / WEIGHTS, metadata={"format": "pt"})


def edit_json(file: Path, **changes: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def named(model: nn.Module, classes: Sequence[str]) -> nn.Module:
    """The model with a random head that knows its classes by name."""
    adapter = adapt(model)
    with inference(model):
        dim = adapter.features(images(n=1)).shape[1]
    generator = torch.Generator().manual_seed(3)
    weight = torch.randn(len(classes), dim, generator=generator)
    return adapter.with_classifier(weight, torch.zeros(len(classes)), classes)


COLOURS = {"ash": (200, 90, 90), "birch": (90, 200, 90), "cedar": (90, 90, 200), "datura": (160, 160, 60)}
Counts = dict[str, dict[str, int]]


def image_folder(root: Path, counts: Counts) -> Path:
    """Noisy images around one colour per class: `counts[split][class]` of them, so that heads are good, not perfect."""
    rng = np.random.default_rng(0)
    for split, classes in counts.items():
        for name, count in classes.items():
            (root / split / name).mkdir(parents=True)
            for i in range(count):
                pixels = np.array(COLOURS[name]) + rng.normal(0, 60, 3) + rng.normal(0, 40, (32, 32, 3))
                Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(root / split / name / f"{i:02d}.png")
    return root
