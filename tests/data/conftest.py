"""Small datasets, made by hand in a temporary folder."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from serpette.records import Preprocessing

Counts = dict[str, int]  # "train/cat" or "cat" -> number of images
MakeFolder = Callable[[Counts], Path]


def save_image(path: Path, seed: int, size: tuple[int, int] = (12, 9)) -> None:
    """Noise of `size` (width, height), different for every seed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def make_folder(tmp_path: Path) -> MakeFolder:
    """Make a dataset of the given number of distinct images in each folder; 0 makes an empty folder."""

    def make(counts: Counts) -> Path:
        root = tmp_path / "pets"
        seed = 0
        for folder, count in counts.items():
            (root / folder).mkdir(parents=True, exist_ok=True)
            for i in range(count):
                save_image(root / folder / f"{i:03d}.png", seed)
                seed += 1
        return root

    return make


@pytest.fixture
def preprocessing() -> Preprocessing:
    return Preprocessing(image_size=8, resize=10, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


@pytest.fixture(scope="session")
def example_datasets() -> Path:
    """The example datasets that lie beside the repository; not part of it."""
    assets = os.environ.get("SERPETTE_ASSETS") or Path(__file__).parents[3] / "shared" / "assets"
    folder = Path(assets) / "datasets"
    if not folder.is_dir():
        pytest.skip("no example datasets: neither SERPETTE_ASSETS nor ../shared/assets exists")
    return folder
