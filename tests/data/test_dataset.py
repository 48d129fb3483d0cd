import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from serpette.data.dataset import Dataset, Item, open_dataset
from serpette.data.listing import Entry
from serpette.data.opening import image_extensions
from serpette.data.splits import cut, draw
from serpette.errors import DataError

SPLIT_FOLDERS = {"train/a": 3, "train/b": 2, "val/a": 1, "val/b": 1, "test/a": 2, "test/b": 1}


def per_class(dataset: Dataset, split: str) -> dict[str, int]:
    counts = Counter(item.label for item in dataset.split(split))
    return {name: counts[i] for i, name in enumerate(dataset.classes)}


def labels_by_path(dataset: Dataset, split: str) -> dict[str, str]:
    return {item.path: dataset.classes[item.label] for item in dataset.split(split)}


def refused(data: object, **options: object) -> str:
    with pytest.raises(DataError) as caught:
        open_dataset(data, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Folders


def test_split_folders_are_taken_as_they_are(make_folder):
    dataset = open_dataset(make_folder(SPLIT_FOLDERS))
    assert (dataset.name, dataset.layout) == ("pets", "folder with train/val/test")
    assert {split: per_class(dataset, split) for split in dataset.splits} == {
        "train": {"a": 3, "b": 2},
        "val": {"a": 1, "b": 1},
        "test": {"a": 2, "b": 1},
    }
    assert dataset.split("train")[0] == Item("train/a/000.png", 0)
    assert dataset.notes == ()


@pytest.mark.parametrize("alias", ["valid", "validation", "dev", "Val"])
def test_other_names_of_splits_are_understood(make_folder, alias):
    dataset = open_dataset(make_folder({"training/a": 3, f"{alias}/a": 1, "testing/a": 2}))
    assert [len(dataset.split(name)) for name in ("train", "val", "test", "validation")] == [3, 1, 2, 1]


def test_two_folders_for_one_split_are_refused(make_folder):
    assert "valid" in refused(make_folder({"train/a": 3, "val/a": 1, "valid/a": 1}))


def test_an_unknown_split_names_those_there_are(make_folder):
    with pytest.raises(DataError, match="train, val, test"):
        open_dataset(make_folder(SPLIT_FOLDERS)).split("holdout")


def test_missing_val_is_cut_from_train_and_said(make_folder):
    dataset = open_dataset(make_folder({"train/a": 20, "train/b": 40, "test/a": 2}))
    assert per_class(dataset, "val") == {"a": 3, "b": 6}
    assert per_class(dataset, "train") == {"a": 17, "b": 34}
    assert per_class(dataset, "test") == {"a": 2, "b": 0}
    assert dataset.notes == ("train cut into train/val 85:15, stratified, seed 0",)


def test_missing_val_and_test_are_both_cut_from_train(make_folder):
    dataset = open_dataset(make_folder({"train/a": 20}))
    assert [len(items) for items in dataset.splits.values()] == [14, 3, 3]
    assert "70:15:15" in dataset.notes[0]


def test_splits_without_train_are_refused(make_folder):
    assert "no train" in refused(make_folder({"val/a": 3, "test/a": 3}))


def test_one_folder_of_classes_is_split_70_15_15_the_same_each_time(make_folder):
    root = make_folder({"a": 20, "b": 100})
    first, again, other = open_dataset(root), open_dataset(root), open_dataset(root, seed=1)
    assert [per_class(first, split) for split in ("train", "val", "test")] == [
        {"a": 14, "b": 70},
        {"a": 3, "b": 15},
        {"a": 3, "b": 15},
    ]
    assert first.splits == again.splits
    assert first.splits != other.splits
    assert sorted(item.path for items in first.splits.values() for item in items) == sorted(
        f"{name}/{i:03d}.png" for name, count in (("a", 20), ("b", 100)) for i in range(count)
    )
    assert first.notes == ("all images cut into train/val/test 70:15:15, stratified, seed 0",)


def test_a_class_called_train_is_a_class_when_its_folder_holds_images(make_folder):
    assert open_dataset(make_folder({"car": 4, "train": 4, "plane": 4})).classes == ("car", "plane", "train")


def test_case_21_classes_are_aligned_by_name(make_folder):
    dataset = open_dataset(make_folder({"train/a": 1, "train/b": 1, "train/c": 1, "val/b": 2, "val/c": 1, "test/c": 1}))
    assert dataset.classes == ("a", "b", "c")
    assert [item.label for item in dataset.split("val")] == [1, 1, 2]
    assert [item.label for item in dataset.split("test")] == [2]


def test_case_21_a_class_that_train_lacks_is_an_error_or_dropped_with_a_count(make_folder):
    root = make_folder({"train/a": 2, "train/b": 2, "val/b": 1, "val/d": 3, "test/a": 1})
    message = refused(root)
    assert "'d'" in message
    assert "3 images in val" in message
    dataset = open_dataset(root, on_unknown="drop")
    assert per_class(dataset, "val") == {"a": 0, "b": 1}
    assert "3 images of unknown class 'd' dropped from val" in dataset.notes


def test_case_22_one_stated_order_of_classes(make_folder):
    dataset = open_dataset(make_folder(dict.fromkeys(("B", "a", "10", "2", "1"), 3)))
    assert dataset.classes == ("1", "10", "2", "B", "a")
    assert dataset.class_order == "by Unicode code point of the class name"


def test_case_23_two_levels_are_noticed_and_asked_about(make_folder):
    root = make_folder({"site1/cat": 3, "site1/dog": 3, "site2/cat": 3})
    message = refused(root)
    for part in ("site1, site2 (pass --class-level 1)", "cat, dog (pass --class-level 2)"):
        assert part in message
    assert open_dataset(root, class_level=1).classes == ("site1", "site2")
    by_animal = open_dataset(root, class_level=2)
    assert by_animal.classes == ("cat", "dog")
    assert sum(per_class(by_animal, split)["cat"] for split in by_animal.splits) == 6


def test_case_23_below_split_folders_levels_count_from_the_split(make_folder):
    root = make_folder({"train/site1/cat": 3, "val/site1/cat": 1, "test/site2/cat": 1})
    assert "--class-level 2" in refused(root)
    assert open_dataset(root, class_level=2).classes == ("cat",)


def test_images_in_subfolders_of_a_class_that_holds_images_belong_to_it(make_folder):
    dataset = open_dataset(make_folder({"train/a": 2, "train/a/more": 1, "val/a": 1, "test/a": 1}))
    assert labels_by_path(dataset, "train") == {
        "train/a/000.png": "a",
        "train/a/001.png": "a",
        "train/a/more/000.png": "a",
    }


def test_case_24_hidden_entries_are_skipped_and_empty_classes_kept(make_folder):
    root = make_folder({"train/a": 2, "train/empty": 0, "train/.ipynb_checkpoints": 1, "__MACOSX/a": 1, "val/a": 1})
    for name in ("._x.jpg", ".DS_Store", "Thumbs.db", "desktop.ini"):
        (root / "train" / "a" / name).write_bytes(b"?")
    dataset = open_dataset(root)
    assert dataset.classes == ("a", "empty")
    assert per_class(dataset, "val") == {"a": 1, "empty": 0}
    assert not any("ignored" in note for note in dataset.notes)


def test_other_files_are_ignored_and_counted(make_folder):
    root = make_folder(SPLIT_FOLDERS)
    (root / "README.md").write_text("hello")
    (root / "train" / "a" / "notes.txt").write_text("hello")
    assert open_dataset(root).notes == ("2 files that are not images ignored: README.md, train/a/notes.txt",)


def test_images_outside_the_class_folders_are_ignored_and_counted(make_folder):
    root = make_folder({"train/a": 2, "train": 1, "val/a": 1, "test/a": 1, "extra/a": 2})
    assert open_dataset(root).notes[0].startswith("3 images outside the class folders ignored: extra/a/000.png")


def test_extensions_may_be_upper_case_and_formats_that_run_programs_are_left_out(make_folder):
    root = make_folder(SPLIT_FOLDERS)
    (root / "train/a/000.png").rename(root / "train/a/000.PNG")
    assert open_dataset(root).split("train")[0].path == "train/a/000.PNG"
    assert {".jpg", ".jpeg", ".png", ".tif", ".webp", ".bmp", ".gif"} <= image_extensions()
    assert image_extensions().isdisjoint({".eps", ".ps", ".h5", ".mpg", ".pdf"})


def test_links_in_a_circle_do_not_hang(make_folder):
    root = make_folder(SPLIT_FOLDERS)
    (root / "train/a/loop").symlink_to(root)
    (root / "train/b/self.png").symlink_to("self.png")
    dataset = open_dataset(root)
    assert per_class(dataset, "train") == {"a": 3, "b": 3}  # the broken link is listed as bad when it is read


def test_links_to_one_folder_from_two_splits_are_both_followed(make_folder):
    root = make_folder({"train/a": 2, "val/a": 1, "test": 0})
    (root / "test/a").symlink_to(root / "val/a")
    assert len(open_dataset(root).split("test")) == 1


def test_what_is_no_dataset_is_refused_with_what_was_expected(tmp_path, make_folder):
    assert "does not exist" in refused(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "holds no images" in refused(tmp_path / "empty")
    (tmp_path / "data.zip").write_bytes(b"")
    assert "unpack" in refused(tmp_path / "data.zip")
    flat = make_folder({"": 3})
    (flat / "labels.csv").write_text("path,label\n")
    message = refused(flat)
    assert "no folders that name their classes" in message
    assert "labels.csv" in message
    assert "class level 0" in refused(flat, class_level=0)


def test_a_name_that_is_not_unicode_is_refused(make_folder):
    root = make_folder(SPLIT_FOLDERS)
    os.rename(root / "train/a/000.png", os.fsencode(root / "train/a") + b"/\xff.png")
    assert "not UTF-8" in refused(root)


def test_split_folders_without_class_folders_are_refused_even_beside_others(make_folder):
    assert "no folders that name their classes" in refused(make_folder({"train": 2, "val": 2, "annotations": 0}))


def test_split_folders_without_class_folders_are_refused(make_folder):
    assert "no folders that name their classes" in refused(make_folder({"train": 2, "val": 2, "test": 1}))


@pytest.mark.parametrize("counts", [{"a": 1}, {"a": 1, "b": 1, "c": 1}, {"a": 990, "b": 10}, {"a": 2, "b": 3}])
def test_case_28_few_classes_and_few_images_are_legal(counts):
    entries = [Entry(f"{name}/{i}", name) for name, count in counts.items() for i in range(count)]
    splits = cut(entries, {"train": 0.7, "val": 0.15, "test": 0.15}, seed=0)
    for name, count in counts.items():
        found = [sum(entry.label == name for entry in split) for split in splits.values()]
        assert sum(found) == count
        assert min(found) >= (1 if count >= 3 else 0)
        assert found[0] >= 1


def test_case_28_one_image_per_class_leaves_val_empty_and_says_so(make_folder):
    dataset = open_dataset(make_folder({"a": 1, "b": 1}))
    assert [len(items) for items in dataset.splits.values()] == [2, 0, 0]
    assert dataset.notes[1] == "classes with fewer than 3 images, and so none in val and test: 2"


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(1, 100), st.integers(0, 3))
def test_a_limit_takes_each_class_in_proportion(counts, limit, seed):
    items = [(f"{label}/{i}", label) for label, count in enumerate(counts) for i in range(count)]
    drawn = draw(items, limit, seed, path=lambda item: item[0], label=lambda item: item[1])
    assert len(drawn) == min(limit, len(items))
    assert sorted(drawn, key=items.index) == list(drawn)
    for label, count in enumerate(counts):
        exact = min(limit, len(items)) * count / len(items)
        assert abs(sum(item[1] == label for item in drawn) - exact) < 1


# Tables


@pytest.fixture
def table_folder(tmp_path: Path) -> Path:
    for i in range(6):
        Image.new("RGB", (4, 4), (i, 0, 0)).save(tmp_path / f"{i}.png")
    return tmp_path


def write_table(path: Path, columns: dict[str, list[object]]) -> Path:
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
    else:
        rows = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
        path.write_text("\n".join(rows), encoding="utf-8-sig")
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_gives_paths_labels_and_splits(table_folder, suffix):
    paths = [f"{i}.png" for i in range(5)] + [str(table_folder / "5.png")]
    table = write_table(
        table_folder / f"list{suffix}",
        {
            "path": paths,
            "label": [10, 2, 10, 2, 2, 10],
            "split": ["train", "train", "validation", "val", "test", "test"],
        },
    )
    dataset = open_dataset(table)
    assert (dataset.name, dataset.layout, dataset.classes) == ("list", "manifest", ("10", "2"))
    assert [len(items) for items in dataset.splits.values()] == [2, 2, 2]
    assert dataset.read(dataset.split("test")[1]) == (table_folder / "5.png").read_bytes()


def test_a_table_without_splits_is_split_70_15_15(table_folder):
    table = write_table(table_folder / "list.csv", {"path": [f"{i}.png" for i in range(6)], "label": ["x"] * 6})
    assert [len(items) for items in open_dataset(table).splits.values()] == [4, 1, 1]


def test_a_table_that_is_not_right_says_where(tmp_path):
    def message(text: str) -> str:
        (tmp_path / "list.csv").write_text(text)
        return refused(tmp_path / "list.csv")

    assert "no column 'label' (found: path, class)" in message("path,class\n1.png,a")
    assert "no column 'path' (found: none)" in message("")
    assert "has no rows" in message("path,label\n")
    assert "row 2: the label is empty" in message("path,label\n1.png,a\n2.png,")
    assert "row 2: 1.png is already in row 1" in message("path,label\n1.png,a\n1.png,b")
    assert "unknown split 'fold1'" in message("path,label,split\n1.png,a,fold1")
    assert "row 1: 3 values, expected 2" in message("path,label\n1.png,a,b")
    assert "no images in the split 'train'" in message("path,label,split\n1.png,a,val")
    (tmp_path / "list.csv").write_bytes(b"path,label\n\xff\xfe,a")
    assert "UTF-8" in refused(tmp_path / "list.csv")
    (tmp_path / "list.parquet").write_bytes(b"no")
    assert "not a Parquet file" in refused(tmp_path / "list.parquet")


@pytest.mark.parametrize(("module", "name"), [("pyarrow", "x.parquet"), ("h5py", "x.h5")])
def test_a_missing_extra_is_named(tmp_path, monkeypatch, module, name):
    (tmp_path / name).write_bytes(b"")
    monkeypatch.setitem(sys.modules, module, None)
    assert f"pip install 'serpette[{'parquet' if module == 'pyarrow' else 'hdf5'}]'" in refused(tmp_path / name)


@pytest.mark.parametrize("place", ["pets/split.csv", "elsewhere/split.csv"])
def test_the_stored_split_opens_as_the_same_dataset(make_folder, tmp_path, place):
    dataset = open_dataset(make_folder({"a": 10, "b": 5, 'c, "d"': 4}), seed=7)
    again = open_dataset(dataset.write_manifest(tmp_path / place))
    assert again.classes == dataset.classes
    for split in ("train", "val", "test"):
        assert [item.label for item in again.split(split)] == [item.label for item in dataset.split(split)]
        for old, new in zip(dataset.split(split), again.split(split), strict=True):
            assert again.read(new) == dataset.read(old)
            assert Path(new.path).is_absolute() == place.startswith("elsewhere")


# HDF5 and the demo


def write_hdf5(path: Path, **members: object) -> Path:
    with h5py.File(path, "w") as file:
        for name, value in members.items():
            if isinstance(value, dict):
                for key, array in value.items():
                    file[f"{name}/{key}"] = array
            else:
                file[name] = value
    return path


def test_hdf5_with_one_array_of_images(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (6, 5, 4, 3), dtype=np.uint8)
    path = write_hdf5(
        tmp_path / "x.h5",
        images=images,
        labels=np.array([1, 0, 1, 0, 1, 0]),
        classes=["zebra", "ant", "unused"],
        split=["train", "train", "val", "val", "test", "test"],
    )
    dataset = open_dataset(path)
    assert (dataset.layout, dataset.classes) == ("HDF5", ("ant", "unused", "zebra"))
    assert labels_by_path(dataset, "train") == {"images[0]": "ant", "images[1]": "zebra"}
    np.testing.assert_array_equal(dataset.read(dataset.split("val")[0]), images[2])


def test_hdf5_with_images_of_different_sizes_and_encoded_ones(tmp_path, make_folder):
    encoded = (make_folder({"a": 1}) / "a/000.png").read_bytes()
    members = {"0": np.ones((3, 4), np.uint8), "1": np.ones((5, 2, 3), np.uint8), "2": np.frombuffer(encoded, np.uint8)}
    dataset = open_dataset(write_hdf5(tmp_path / "x.hdf5", images=members, labels=["a", "a", "a"]))
    stored = {item.path: dataset.read(item) for items in dataset.splits.values() for item in items}
    assert [len(items) for items in dataset.splits.values()] == [1, 1, 1]
    assert stored["images[0]"].shape == (3, 4)
    assert stored["images[1]"].shape == (5, 2, 3)
    assert stored["images[2]"] == encoded


def test_hdf5_class_names_may_be_an_attribute(tmp_path):
    path = write_hdf5(tmp_path / "x.h5", images=np.zeros((3, 2, 2), np.uint8), labels=np.array([0, 1, 0]))
    with h5py.File(path, "a") as file:
        file.attrs["classes"] = ["b", "a"]
    assert labels_by_path(open_dataset(path), "train").keys() <= {"images[0]", "images[1]", "images[2]"}
    assert open_dataset(path).classes == ("a", "b")


def test_hdf5_that_is_not_right_says_what_was_expected(tmp_path):
    images, labels = np.zeros((3, 2, 2), np.uint8), np.zeros(3, int)
    path = tmp_path / "x.h5"
    assert "holds no 'labels' (found: images)" in refused(write_hdf5(path, images=images))
    assert "3 images but 2 labels" in refused(write_hdf5(path, images=images, labels=labels[:2]))
    assert "(3, 3, 9, 9)" in refused(write_hdf5(path, images=np.zeros((3, 3, 9, 9), np.uint8), labels=labels))
    assert "label 5" in refused(write_hdf5(path, images=images, labels=labels + 5, classes=["a"]))
    assert "no images/1" in refused(write_hdf5(path, images={"0": images[0], "7": images[1]}, labels=labels[:2]))
    assert "'fold'" in refused(write_hdf5(path, images=images, labels=labels, split=["train", "train", "fold"]))
    path.write_bytes(b"no")
    assert "not an HDF5 file" in refused(path)


def test_the_demo_has_three_splits_of_ten_classes():
    dataset = open_dataset("demo")
    assert len(dataset.classes) == 10
    assert list(dataset.classes) == sorted(dataset.classes)
    assert [len(items) for items in dataset.splits.values()] == [1000, 1000, 1000]
    assert dataset.read(dataset.split("test")[17]).shape == (28, 28)
    with np.load(Path(sys.modules["serpette"].__file__).parent / "demo" / "demo.npz") as archive:
        names = archive["classes"][archive["val_labels"]]
    assert [dataset.classes[item.label] for item in dataset.split("val")] == list(names)


def test_an_open_dataset_is_returned_as_it_is():
    dataset = open_dataset("demo")
    assert open_dataset(dataset, seed=5) is dataset


def test_listing_a_dataset_does_not_import_torch():
    program = "import sys, serpette.data.dataset, serpette.data.scan; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
