"""`measure`: how redundant every site of a model is on a dataset."""

import os
from typing import Literal

from torch import nn

from serpette.data.dataset import Dataset, open_dataset
from serpette.data.pixels import Pixels
from serpette.export.load import as_module
from serpette.models.base import adapt
from serpette.progress import Progress
from serpette.records import Profile, Tokens
from serpette.redundancy.calibrate import profile_pixels


def measure(
    model: str | os.PathLike[str] | nn.Module,
    data: str | os.PathLike[str] | Dataset,
    *,
    images: int = 512,
    split: str = "train",
    tokens: Tokens = "all",
    batch_size: int = 32,
    image_size: int | None = None,
    device: str | None = None,
    dtype: str | None = None,
    seed: int = 0,
    on_bad: Literal["skip", "fail"] = "skip",
    progress: Progress | None = None,
) -> Profile:
    """Score every block, attention and MLP of a dense model by how little it changes the residual stream.

    One forward pass. The score is the mean cosine similarity, over images and tokens, of the stream before and after
    (Viespoli & Nanni 2026; He et al., TMLR 2026): near 1 is redundant.

    Args:
        model: a name, a folder, or a module of timm or transformers.
        data: what `open_dataset` takes; the images need no meaningful labels.
        images: how many calibration images to draw; the paper uses 512.
        split: where to draw them. Never the images that will judge the pruned model.
        tokens: `all` (as in the paper), `cls`, `patch` (no prefix tokens), or `pooled` (as the classifier sees them).
        batch_size: images per forward pass; smaller ones are tried where memory runs out.
        image_size: pixels a side, where it is not the model's own.
        device: `cpu`, `cuda`, ...; `None` picks one, or keeps that of a module.
        dtype: `fp32`, `bf16` or `fp16`; `None` keeps the model's own.
        seed: draws the images.
        on_bad: skip images that cannot be decoded, or fail.
        progress: called with the number of images done and in all.

    Raises:
        ModelError: no supported model, or it has no such tokens.
        PlanError: the model is pruned already.
        DataError: no images.
    """
    adapter = adapt(as_module(model, image_size=image_size, device=device, dtype=dtype))
    dataset = open_dataset(data, seed=seed)
    pixels = Pixels(dataset, split, adapter.preprocessing, limit=images, seed=seed, on_bad=on_bad)
    return profile_pixels(adapter, pixels, tokens=tokens, batch_size=batch_size, seed=seed, progress=progress)
