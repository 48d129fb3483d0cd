"""Label and probability of single images."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from serpette.data.decode import BadImage, decode
from serpette.data.tree import walk
from serpette.errors import DataError, ModelError, NonFiniteError
from serpette.export.load import as_module
from serpette.models.base import adapt, inference
from serpette.models.runtime import for_each_batch, placement, to_input


class Prediction(NamedTuple):
    """The answer for one image; `error` says why there is none, and then the others are `None`."""

    path: str
    label: str | None
    probability: float | None
    error: str | None = None


def predict(
    model: str | os.PathLike[str] | nn.Module,
    images: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    limit: int | None = None,
    batch_size: int = 32,
    image_size: int | None = None,
    device: str | None = None,
    dtype: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Prediction]:
    """Classify images, or all images below folders, with the model's own classifier.

    Args:
        model: anything that `serpette.load` takes, or a module of a supported family.
        images: one path or several; folders are searched.
        limit: at most so many images, the first ones.
        batch_size: images at a time; halved where memory runs out.
        image_size: see `serpette.load`, as `device` and `dtype`.
        device: where to run.
        dtype: "fp32", "bf16" or "fp16".
        progress: called with (images done, images in all) after each batch.

    Returns:
        One prediction per image in the order of the paths; files that cannot be decoded have an `error`.

    Raises:
        DataError: a path does not exist or a folder holds no image.
        ModelError: the model has no classifier.
        NonFiniteError: the model's outputs are NaN or infinite.
    """
    adapter = adapt(as_module(model, image_size=image_size, device=device, dtype=dtype))
    if not adapter.num_classes:
        raise ModelError(f"{adapter.origin.name} has no classifier; `serpette select` saves a model that has one.")
    names = adapter.class_names or tuple(str(k) for k in range(adapter.num_classes))
    paths = [path for given in _listed(images) for path in _files(Path(given))][:limit]
    found: dict[int, Prediction] = {}

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, len(paths), batch_size):
            good = {}
            for i, path in enumerate(paths[start : start + batch_size], start):
                try:
                    good[i] = torch.tensor(decode(path, adapter.preprocessing)).permute(2, 0, 1)
                except BadImage as error:
                    found[i] = Prediction(str(path), None, None, error.reason)
            if good:
                yield torch.stack(list(good.values())), torch.tensor(list(good))

    def step(pixels: Tensor, positions: Tensor) -> None:
        inputs = to_input(pixels, adapter.preprocessing, *placement(adapter.model))
        probabilities = adapter.logits(inputs).float().softmax(1).cpu()
        if not probabilities.isfinite().all():
            raise NonFiniteError(f"{adapter.origin.name} answers with NaN; try --dtype fp32.")
        best = probabilities.max(1)
        for i, k, p in zip(positions.tolist(), best.indices.tolist(), best.values.tolist(), strict=True):
            found[i] = Prediction(str(paths[i]), names[k], p)
        if progress:
            progress(len(found), len(paths))

    with inference(adapter.model):
        for_each_batch(batches(), step)
    return [found[i] for i in range(len(paths))]


def _listed(
    images: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
) -> list[str | os.PathLike[str]]:
    return [images] if isinstance(images, str | os.PathLike) else list(images)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = [path.joinpath(*names) for names in walk(path).images]
        if not found:
            raise DataError(f"{path} holds no images; expected a folder with image files.")
        return found
    if not path.exists():
        raise DataError(f"there is no image {path}; expected a file or a folder.")
    return [path]
