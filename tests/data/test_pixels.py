import hashlib
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from serpette.data import pixels as pixels_module
from serpette.data import store
from serpette.data.dataset import Dataset, Item, open_dataset
from serpette.data.decode import decode
from serpette.data.pixels import Pixels
from serpette.data.prefetch import Prefetch
from serpette.errors import DataError


class CountingSource:
    """Counts the reads of each image on the way to the real source."""

    def __init__(self, source):
        self.source = source
        self.reads = Counter()
        self.lock = threading.Lock()

    def read(self, path):
        with self.lock:
            self.reads[path] += 1
        return self.source.read(path)

    def locate(self, path):
        return self.source.locate(path)


def counted(root: Path) -> tuple[Dataset, Counter]:
    dataset = open_dataset(root)
    source = CountingSource(dataset.source)
    return replace(dataset, source=source), source.reads


def decode_threads() -> int:
    return sum(thread.name.startswith("serpette-decode") for thread in threading.enumerate())


@pytest.fixture(params=["stored", "in a file", "passing"])
def cache(request, monkeypatch):
    """Each of the three ways to hold decoded images."""
    if request.param == "in a file":
        monkeypatch.setattr(store, "_free_memory", lambda: 0.0)
    return "none" if request.param == "passing" else "auto"


@pytest.fixture
def folder(make_folder) -> Path:
    """21 training images, of which two can be spoiled."""
    return make_folder({"train/a": 12, "train/b": 9, "val/a": 2, "test/a": 2})


def spoil(root: Path) -> None:
    (root / "train/a/003.png").write_bytes(b"")
    (root / "train/b/008.png").write_bytes(b"<html>")


def test_case_20_21_images_in_batches_of_4_are_21_images(folder, preprocessing, cache):
    dataset = open_dataset(folder)
    pixels = Pixels(dataset, "train", preprocessing, cache=cache, workers=2)
    for _ in range(2):
        batches = list(pixels.batches(4))
        assert [len(images) for images, _ in batches] == [4, 4, 4, 4, 4, 1]
        images, labels = (torch.cat(part) for part in zip(*batches, strict=True))
        expected = np.stack([decode(dataset.read(item), preprocessing) for item in dataset.split("train")])
        assert torch.equal(images.permute(0, 2, 3, 1), torch.from_numpy(expected))
        assert labels.tolist() == [0] * 12 + [1] * 9
    assert len(pixels) == pixels.n == 21
    assert torch.equal(pixels.labels, labels)


def test_case_25_bad_images_are_skipped_listed_and_shift_nothing(folder, preprocessing, cache):
    whole = Pixels(open_dataset(folder), "train", preprocessing)
    before = torch.cat([images for images, _ in whole.batches(21)])
    spoil(folder)
    pixels = Pixels(open_dataset(folder), "train", preprocessing, cache=cache)
    for _ in range(2):
        batches = list(pixels.batches(4))
        assert [len(images) for images, _ in batches] == [4, 4, 4, 4, 3]
        good = [i for i in range(21) if i not in (3, 20)]
        assert torch.equal(torch.cat([images for images, _ in batches]), before[good])
        assert torch.cat([labels for _, labels in batches]).tolist() == [0] * 11 + [1] * 8
    assert (len(pixels), pixels.n, pixels.n_bad) == (21, 19, 2)
    assert [(bad.path, bad.split, bad.reason) for bad in pixels.bad] == [
        ("train/a/003.png", "train", "the file is empty"),
        ("train/b/008.png", "train", "it is an HTML page"),
    ]
    assert len(pixels.items) == len(pixels.labels) == 19


def test_case_25_on_bad_fail_names_the_file_and_the_reason(folder, preprocessing, cache):
    spoil(folder)
    pixels = Pixels(open_dataset(folder), "train", preprocessing, cache=cache, on_bad="fail")
    for _ in range(2):
        with pytest.raises(DataError, match=r"train/a/003\.png is bad: the file is empty"):
            list(pixels.batches(4))
        assert decode_threads() == 0


def test_no_good_image_is_an_error(make_folder, preprocessing, cache):
    root = make_folder({"train/a": 1, "val/a": 1, "test/a": 1})
    (root / "train/a/000.png").write_bytes(b"")
    pixels = Pixels(open_dataset(root), "train", preprocessing, cache=cache)
    for ask in (lambda: list(pixels.batches(1)), lambda: pixels.n, pixels.ref):
        with pytest.raises(DataError, match="none of the 1 images of train is good"):
            ask()


def test_an_empty_split_and_impossible_numbers_are_refused(make_folder, preprocessing):
    dataset = open_dataset(make_folder({"a": 1}))
    with pytest.raises(DataError, match="holds no images"):
        Pixels(dataset, "val", preprocessing)
    with pytest.raises(DataError, match="limit of 0"):
        Pixels(dataset, "train", preprocessing, limit=0)
    with pytest.raises(DataError, match="batch of 0"):
        next(Pixels(dataset, "train", preprocessing).batches(0))


def test_each_image_is_read_and_decoded_once(folder, preprocessing, monkeypatch):
    decoded = []
    monkeypatch.setattr(pixels_module, "decode", lambda *args: decoded.append(1) or decode(*args))
    dataset, reads = counted(folder)
    pixels = Pixels(dataset, "train", preprocessing, workers=3)
    assert not reads
    for stop_after in (1, 2, 3, 100):  # passes that stop early leave their work to the next
        for i, _ in enumerate(pixels.batches(2), start=1):
            if i == stop_after:
                break
    assert pixels.n == 21
    assert pixels.ref().n == 21
    assert len(list(pixels.batches(5))) == 5
    assert reads == Counter(item.path for item in dataset.split("train"))
    assert len(decoded) == 21


def test_without_a_cache_each_pass_reads_again_but_never_a_bad_file(folder, preprocessing):
    spoil(folder)
    dataset, reads = counted(folder)
    pixels = Pixels(dataset, "train", preprocessing, cache="none")
    assert pixels.n == 19
    list(pixels.batches(4))
    assert reads["train/a/000.png"] == 2
    assert reads["train/a/003.png"] == 1


def test_leaving_a_pass_early_stops_the_threads_and_the_object_stays_usable(folder, preprocessing, cache):
    pixels = Pixels(open_dataset(folder), "train", preprocessing, cache=cache)
    for _ in pixels.batches(3):
        break
    with pytest.raises(ZeroDivisionError):
        [1 // 0 for _ in pixels.batches(3)]
    stopped = pixels.batches(3)
    next(stopped)
    stopped.close()
    assert decode_threads() == 0
    assert sum(len(images) for images, _ in pixels.batches(4)) == 21


def test_two_passes_at_once_do_not_disturb_each_other(folder, preprocessing, cache):
    pixels = Pixels(open_dataset(folder), "train", preprocessing, cache=cache)
    pairs = list(zip(pixels.batches(2), pixels.batches(2), strict=True))
    assert len(pairs) == 11
    assert all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in pairs)


def test_cached_batches_are_views(folder, preprocessing):
    pixels = Pixels(open_dataset(folder), "train", preprocessing)
    first, second = ([images.data_ptr() for images, _ in pixels.batches(4)] for _ in range(2))
    assert first == second


def test_a_limit_is_stratified_seeded_ordered_and_noted(folder, preprocessing):
    dataset = open_dataset(folder)
    drawn = Pixels(dataset, "train", preprocessing, limit=7, seed=1)
    assert torch.bincount(drawn.labels).tolist() == [4, 3]
    assert list(drawn.items) == [item for item in dataset.split("train") if item in drawn.items]
    assert drawn.items == Pixels(dataset, "train", preprocessing, limit=7, seed=1).items
    assert drawn.items != Pixels(dataset, "train", preprocessing, limit=7, seed=2).items
    assert "7 of 21 images of train, stratified, seed 1" in drawn.ref().notes
    assert Pixels(dataset, "train", preprocessing, limit=500).ref() == Pixels(dataset, "train", preprocessing).ref()


def test_the_reference_is_a_hash_of_the_content_of_the_good_images(folder, preprocessing, cache):
    spoil(folder)
    dataset = open_dataset(folder)
    ref = Pixels(dataset, "training", preprocessing, cache=cache).ref()
    digest = hashlib.sha256()
    for item in dataset.split("train"):
        if item.path not in ref.bad:
            content = hashlib.sha256((folder / item.path).read_bytes()).hexdigest()
            digest.update(f"{content} {dataset.classes[item.label]}\n".encode())
    assert ref.fingerprint == digest.hexdigest()[:16]
    assert (ref.name, ref.split, ref.n, ref.n_bad, ref.classes) == ("pets", "train", 19, 2, ("a", "b"))
    assert ref.bad == ("train/a/003.png", "train/b/008.png")


def test_the_reference_moves_with_the_files_and_changes_with_a_label(folder, preprocessing, tmp_path):
    def reference() -> str:
        return Pixels(open_dataset(folder), "val", preprocessing).ref().fingerprint

    old = reference()
    (folder / "val/a").rename(folder / "val/b")
    assert reference() != old
    (folder / "val/b").rename(folder / "val/a")
    folder = folder.rename(tmp_path / "moved")
    assert reference() == old


def test_many_bad_paths_are_cut_short_in_the_reference(make_folder, preprocessing):
    root = make_folder({"train/a": 30, "val/a": 1, "test/a": 1})
    for i in range(25):
        (root / f"train/a/{i:03d}.png").write_bytes(b"")
    ref = Pixels(open_dataset(root), "train", preprocessing).ref()
    assert (len(ref.bad), ref.n_bad, ref.n) == (20, 25, 5)


def test_without_room_anywhere_images_are_decoded_on_each_pass(folder, preprocessing, monkeypatch):
    monkeypatch.setattr(pixels_module, "allocate", lambda n, size: None)
    dataset, reads = counted(folder)
    pixels = Pixels(dataset, "train", preprocessing)
    for _ in range(2):
        assert sum(len(images) for images, _ in pixels.batches(4)) == 21
    assert set(reads.values()) == {2}


def test_room_is_sought_in_memory_then_on_disk_then_nowhere(monkeypatch):
    assert store.allocate(2, 8).shape == (2, 3, 8, 8)
    monkeypatch.setattr(store, "_free_memory", lambda: 0.0)
    in_file = store.allocate(2, 8)
    in_file[1] = 7
    assert in_file.sum() == 7 * 3 * 64
    monkeypatch.setattr(store, "_OF_DISK", 0)
    assert store.allocate(2, 8) is None


def test_the_memory_of_a_container_counts(tmp_path):
    assert store._container_memory(tmp_path) == float("inf")
    (tmp_path / "memory.current").write_text("30\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert store._container_memory(tmp_path) == float("inf")
    (tmp_path / "memory.max").write_text("100\n")
    assert store._container_memory(tmp_path) == 70


def test_work_ahead_is_bounded_and_stays_in_order():
    started = []

    def work(i: int) -> int:
        started.append(i)
        time.sleep(0.001 * (i % 3))
        return i

    feed = Prefetch(work, range(100), workers=4, ahead=6)
    for expected in range(20):
        assert next(feed) == expected
        assert len(started) <= expected + 6
    rest = feed.close()
    assert rest == list(range(20, 20 + len(rest)))
    assert sorted(started) == list(range(20 + len(rest)))
    assert decode_threads() == 0


def test_an_exception_in_a_thread_reaches_the_consumer_and_nothing_hangs(folder, preprocessing, cache, monkeypatch):
    dataset = open_dataset(folder)
    third = dataset.split("train")[2]
    real = Dataset.read

    def broken(self: Dataset, item: Item) -> object:
        if item == third:
            raise MemoryError
        return real(self, item)

    pixels = Pixels(dataset, "train", preprocessing, cache=cache)
    with monkeypatch.context() as patch:
        patch.setattr(Dataset, "read", broken)
        with pytest.raises(MemoryError):
            list(pixels.batches(4))
    assert decode_threads() == 0
    assert sum(len(images) for images, _ in pixels.batches(4)) == 21  # memory is back: nothing was lost or doubled


def test_the_demo_becomes_pixels(preprocessing):
    pixels = Pixels(open_dataset("demo"), "val", preprocessing, limit=50)
    images, labels = next(pixels.batches(64))
    assert images.shape == (50, 3, 8, 8)
    assert torch.equal(labels.bincount(), torch.full((10,), 5))
    assert torch.equal(images[:, 0], images[:, 2])  # grey


def test_an_example_dataset_with_transparency_becomes_pixels(example_datasets, preprocessing):
    pixels = Pixels(open_dataset(example_datasets / "stamps"), "val", preprocessing, limit=20)
    assert (pixels.n, pixels.n_bad) == (20, 0)
