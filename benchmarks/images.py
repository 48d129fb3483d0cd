"""Images to measure on: noise that takes no memory, and files as large as photographs."""

from collections.abc import Iterable
from pathlib import Path
from typing import final

import numpy as np
from PIL import Image

from serpette.data.dataset import CLASS_ORDER, Dataset, Item
from serpette.data.sources import FileSource, Source

PHOTO = (500, 375)  # pixels, as most of ImageNet


@final
class NoiseSource:
    """Random RGB images of `side` pixels, made when they are read; the id of an image is its seed."""

    def __init__(self, side: int) -> None:
        self._side = side

    def read(self, path: str) -> np.ndarray:
        """The image (side, side, 3) with the id `path`."""
        return np.random.default_rng(int(path)).integers(0, 256, (self._side, self._side, 3), dtype=np.uint8)

    def locate(self, path: str) -> str:
        """The id."""
        return path


def noise(count: int, side: int) -> Dataset:
    """`count` random images that are never all in memory."""
    return _training_set("noise", NoiseSource(side), map(str, range(count)))


def photos(folder: Path, count: int, suffix: str) -> Dataset:
    """Write `count` files that are as costly to decode as photographs: soft shapes under a little grain."""
    rng = np.random.default_rng(0)
    names = [f"{i}{suffix}" for i in range(count)]
    for name in names:
        shapes = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize(PHOTO)
        grainy = np.asarray(shapes) + rng.normal(0, 6, (*PHOTO[::-1], 3))
        Image.fromarray(grainy.clip(0, 255).astype(np.uint8)).save(folder / name, quality=90)
    return _training_set(f"{suffix} of {PHOTO[0]} x {PHOTO[1]}", FileSource(folder), names)


def _training_set(name: str, source: Source, paths: Iterable[str]) -> Dataset:
    items = tuple(Item(path, label=0) for path in paths)
    return Dataset(name, "", CLASS_ORDER, classes=(name,), splits={"train": items}, notes=(), seed=0, source=source)
