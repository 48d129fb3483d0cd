from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from streams import DEPTH, tiny_vit

from serpette.planning.plan import plan
from serpette.records import Profile
from serpette.redundancy.measure import measure


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for split in ("train", "val", "test"):
        for name in ("a", "b"):
            (tmp_path / split / name).mkdir(parents=True)
            for i in range(6):
                pixels = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / split / name / f"{i}.png")
    return tmp_path


def test_from_a_model_and_a_folder_to_a_plan(folder: Path, tmp_path: Path) -> None:
    profile = measure(tiny_vit(), folder, images=8, batch_size=3, seed=1)
    assert (profile.images, profile.data.n, profile.data.split, profile.depth) == (8, 8, "train", DEPTH)
    assert all(site.rankable and site.cka is None for site in profile.sites)  # batches of 3 have no CKA
    assert Profile.load(profile.save(tmp_path / "profile.json")) == profile
    assert len(plan(profile, method="contiguous", drop=2).drop_blocks) == 2


def test_is_deterministic(folder: Path) -> None:
    first, second = (measure(tiny_vit(), folder, images=6, device="cpu") for _ in range(2))
    assert (first.sites, first.windows) == (second.sites, second.windows)
