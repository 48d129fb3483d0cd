import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from serpette.data.scan import scan
from serpette.errors import DataError
from serpette.records import Duplicate, Scan


@pytest.fixture
def folder(make_folder) -> Path:
    return make_folder({"train/a": 4, "train/b": 2, "train/empty": 0, "val/a": 1, "val/b": 2, "test/b": 1})


def test_counts_sizes_and_modes_of_each_split(folder):
    Image.new("L", (40, 50)).save(folder / "train/a/000.png")
    Image.new("RGBA", (64, 5)).save(folder / "train/a/001.png")
    found = scan(folder)
    train, val, test = found.splits
    assert (found.name, found.classes) == ("pets", ("a", "b", "empty"))
    assert (train.split, train.n, train.per_class) == ("train", 6, {"a": 4, "b": 2, "empty": 0})
    assert (train.width, train.height) == ((12, 12, 64), (5, 9, 50))
    assert train.modes == {"L": 1, "RGB": 4, "RGBA": 1}
    assert train.imbalance == 2
    assert train.majority_baseline == pytest.approx(400 / 6)
    assert val.per_class == {"a": 1, "b": 2, "empty": 0}
    assert test.per_class == {"a": 0, "b": 1, "empty": 0}
    assert Scan.from_json(found.to_json()) == found


def test_case_25_bad_files_are_listed_with_reasons_and_not_counted(folder):
    (folder / "val/b/001.png").write_bytes(b"<html>")
    whole = (folder / "train/a/000.png").read_bytes()
    (folder / "train/a/000.png").write_bytes(whole[: len(whole) // 2])
    found = scan(folder)
    assert [(bad.path, bad.split) for bad in found.bad] == [("train/a/000.png", "train"), ("val/b/001.png", "val")]
    assert "damaged" in found.bad[0].reason
    assert [split.n for split in found.splits] == [5, 2, 1]
    with pytest.raises(DataError, match=r"train/a/000\.png is bad"):
        scan(folder, on_bad="fail")


def test_equal_pixels_in_two_splits_are_a_leak_even_in_another_format(folder):
    shutil.copy(folder / "train/a/001.png", folder / "test/b/copy.png")
    Image.open(folder / "train/b/000.png").save(folder / "val/b/copy.bmp")
    shutil.copy(folder / "train/a/002.png", folder / "train/a/copy.png")  # within a split: no leak
    found = scan(folder)
    assert found.duplicates == (
        Duplicate(paths=("train/a/001.png", "test/b/copy.png"), splits=("train", "test"), classes=("a", "b")),
        Duplicate(paths=("train/b/000.png", "val/b/copy.bmp"), splits=("train", "val"), classes=("b", "b")),
    )
    assert "images that repeat another one of the same split: 1" in found.notes
    assert "equal images with different classes: 1" in found.notes


def test_equal_values_in_another_shape_are_not_equal_images(folder):
    Image.fromarray(np.zeros((4, 6), np.uint8)).save(folder / "train/a/wide.png")
    Image.fromarray(np.zeros((6, 4), np.uint8)).save(folder / "val/a/tall.png")
    assert scan(folder).duplicates == ()


def test_the_fingerprint_is_of_the_content(folder, tmp_path):
    old = scan(folder).fingerprint
    assert scan(folder.rename(tmp_path / "moved")).fingerprint == old
    Image.new("RGB", (5, 5)).save(tmp_path / "moved/train/a/000.png")
    assert scan(tmp_path / "moved").fingerprint != old


def test_unknown_classes_are_dropped_with_a_count_or_refused(make_folder):
    root = make_folder({"train/a": 2, "val/d": 2, "test/a": 1})
    assert "2 images of unknown class 'd' dropped from val" in scan(root).notes
    with pytest.raises(DataError, match="'d'"):
        scan(root, on_unknown="fail")


def test_case_28_one_class_one_image_and_imbalance_are_noted(make_folder):
    found = scan(make_folder({"train/a": 1, "val/a": 1, "test/a": 1}))
    assert any("only one class" in note for note in found.notes)
    assert "classes with fewer than 2 images in train: a" in found.notes
    assert "images with a side below 32 pixels: 3" in found.notes


def test_case_28_990_to_10_shows_the_majority_baseline(tmp_path):
    with h5py.File(tmp_path / "rare.h5", "w") as file:
        file["images"] = np.random.default_rng(0).integers(0, 256, (1020, 4, 4), dtype=np.uint8)
        file["labels"] = ["common"] * 990 + ["rare"] * 10 + ["common", "rare"] * 10
        file["split"] = ["train"] * 1000 + ["val"] * 10 + ["test"] * 10
    found = scan(tmp_path / "rare.h5")
    train, val, _ = found.splits
    assert train.per_class == {"common": 990, "rare": 10}
    assert (train.imbalance, train.majority_baseline) == (99, 99)
    assert (val.imbalance, val.majority_baseline) == (1, 50)
    assert "train is imbalanced: the largest class is 99 times the smallest" in found.notes


def test_an_empty_split_has_zeros(make_folder):
    found = scan(make_folder({"a": 1}))
    val = found.splits[1]
    assert (val.n, val.per_class, val.width, val.imbalance, val.majority_baseline) == (0, {"a": 0}, (0, 0, 0), None, 0)
    assert "val has no good images" in found.notes


def test_progress_counts_to_the_end(folder):
    calls = []
    scan(folder, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(i, 10) for i in range(1, 11)]


def test_a_limit_looks_at_fewer_images_and_says_so():
    found = scan("demo", limit=20)
    assert [split.n for split in found.splits] == [20, 20, 20]
    assert set(found.splits[0].per_class.values()) == {2}
    assert "at most 20 images of each split were looked at" in found.notes
    with pytest.raises(DataError, match="limit of 0"):
        scan("demo", limit=0)


@pytest.mark.parametrize("name", ["fashion-mnist", "stamps"])
def test_example_datasets_have_no_bad_files(example_datasets, name):
    found = scan(example_datasets / name, limit=40)
    assert not found.bad
    assert all(split.n for split in found.splits)
