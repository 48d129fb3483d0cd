"""Scores equal those of independent code: the library's forward, its own transform, scikit-learn's heads."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.preprocessing import StandardScaler
from timm.data import create_transform, resolve_data_config

import serpette
from serpette.errors import DataError, ModelError, NonFiniteError
from serpette.models import inference
from serpette.models.runtime import for_each_batch, is_out_of_memory
from serpette.records import Plan
from tiny import COLOURS, HF, TIMM, image_folder, named, tiny

CLASSES = ("ash", "birch", "cedar")
COUNTS = {
    "train": dict.fromkeys(CLASSES, 20),
    "val": dict.fromkeys(CLASSES, 6),
    "test": {"ash": 9, "birch": 7, "cedar": 5},
}
BRANCH = Plan(drop_attention=(1, 2), drop_mlp=(3,))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return image_folder(tmp_path_factory.mktemp("data") / "trees", COUNTS)


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return serpette.save(tiny("timm-vit-no-head"), tmp_path_factory.mktemp("models") / "dense")


def by_hand(model: torch.nn.Module, data: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Features by timm's own transform and forward, labels by the order of the folders."""
    transform = create_transform(**{**resolve_data_config({}, model=model), "input_size": (3, 32, 32)})
    rows, labels = [], []
    for label, name in enumerate(CLASSES):
        for file in sorted((data / split / name).iterdir()):
            rows.append(transform(Image.open(file).convert("RGB")))
            labels.append(label)
    with inference(model):
        features = model.forward_head(model.forward_features(torch.stack(rows)), pre_logits=True)
    return features.numpy(), np.array(labels)


@pytest.mark.parametrize("head", ["frozen", "refit"])
def test_a_fitted_head_is_that_of_scikit_learn(head: str, data: Path, dense: Path, tmp_path: Path) -> None:
    plain = timm.create_model(f"local-dir:{dense}", pretrained=True).eval()
    pruned = serpette.prune(serpette.load(dense), BRANCH)
    folder = serpette.save(pruned, tmp_path / "pruned")
    scores = serpette.evaluate(folder, data, head=head, device="cpu", batch_size=8)
    assert scores.fit is not None

    fitted_on = plain if head == "frozen" else pruned  # frozen: what the dense model sees, and then left alone
    train, labels = by_hand(fitted_on, data, "train")
    scaler = StandardScaler().fit(train)
    oracle = LogisticRegression(C=1 / (len(train) * scores.fit.strength), max_iter=5000, tol=1e-8)
    oracle.fit(scaler.transform(train), labels)
    test, truth = by_hand(pruned, data, "test")
    found = oracle.predict(scaler.transform(test))
    assert scores.n == 21
    assert list(scores.correct) == list(found == truth)
    assert scores.top1 == pytest.approx(100 * (found == truth).mean())
    assert scores.balanced_accuracy == pytest.approx(100 * balanced_accuracy_score(truth, found))
    assert scores.majority_baseline == pytest.approx(100 * 9 / 21)


def test_frozen_and_refit_are_the_same_for_the_dense_model(data: Path, dense: Path) -> None:
    frozen, refit = (serpette.evaluate(dense, data, head=head, device="cpu") for head in ("frozen", "refit"))
    assert frozen.correct == refit.correct
    assert frozen.fit == refit.fit


@pytest.mark.parametrize("name", [TIMM, HF])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2)], ids=str)
def test_the_own_head_is_aligned_by_name(name: str, order: tuple[int, ...], data: Path) -> None:
    known = tuple(tuple(COLOURS)[i] for i in order)
    model = named(tiny(name), known)
    scores = serpette.evaluate(model, data, batch_size=4)
    assert scores.head == "own"
    assert scores.data.classes == CLASSES
    assert [c.n for c in scores.per_class] == [9, 7, 5]
    if name == TIMM:
        with inference(model):
            features, truth = (torch.from_numpy(a) for a in by_hand(model, data, "test"))
            columns = [known.index(c) for c in CLASSES]
            assert list(scores.correct) == (model.head(features)[:, columns].argmax(1) == truth).tolist()


def test_an_own_head_that_lacks_a_class_is_refused_or_refitted(data: Path) -> None:
    model = named(tiny(TIMM), ("ash", "birch", "oak"))
    assert serpette.evaluate(model, data).head == "refit"
    with pytest.raises(ModelError, match="does not know 1 of the 3 classes of the data, such as 'cedar'"):
        serpette.evaluate(model, data, head="own")


@pytest.mark.parametrize("batch_size", [1, 4, 20, 21, 64])
def test_exactly_21_images_are_scored(batch_size: int, data: Path) -> None:
    model = named(tiny(TIMM), CLASSES)
    scores = serpette.evaluate(model, data, batch_size=batch_size)
    assert (scores.n, len(scores.correct), scores.n_bad) == (21, 21, 0)
    assert scores.correct == serpette.evaluate(model, data).correct


def test_bad_images_are_counted_and_no_image_is_scored_twice(data: Path, tmp_path: Path) -> None:
    import shutil

    mixed = shutil.copytree(data, tmp_path / "mixed")
    model = named(tiny(TIMM), CLASSES)
    clean = serpette.evaluate(model, data).correct
    whole = (mixed / "test" / "ash" / "03.png").read_bytes()
    (mixed / "test" / "ash" / "03.png").write_bytes(whole[: len(whole) // 2])
    (mixed / "test" / "birch" / "00.png").write_bytes(b"<html>")
    scores = serpette.evaluate(model, mixed, batch_size=4)
    assert (scores.n, scores.n_bad) == (19, 2)
    assert scores.correct == clean[:3] + clean[4:9] + clean[10:]
    assert set(scores.data.bad) == {"test/ash/03.png", "test/birch/00.png"}
    with pytest.raises(DataError, match=r"test/ash/03\.png is bad"):
        serpette.evaluate(model, mixed, on_bad="fail")


def test_one_class_is_refused_for_a_head(tmp_path: Path) -> None:
    single = image_folder(tmp_path / "single", {split: {"ash": 4} for split in ("train", "val", "test")})
    with pytest.raises(DataError, match="are of one class; a head needs at least two"):
        serpette.evaluate(tiny("timm-vit-no-head"), single)


@pytest.mark.parametrize("head", ["own", "refit"])
def test_a_model_that_overflows_in_fp16_is_reported_not_scored(head: str, data: Path) -> None:
    model = named(tiny(TIMM), CLASSES)
    model.blocks[2].mlp.fc2.weight.data.mul_(1e6)
    with pytest.raises(NonFiniteError, match="NaN or infinite"):
        serpette.evaluate(model, data, head=head, dtype="fp16")
    serpette.evaluate(model, data, head=head, dtype="fp32")


def test_a_frozen_head_needs_a_dense_base(data: Path, dense: Path, tmp_path: Path) -> None:
    pruned = serpette.prune(tiny("timm-vit-no-head"), BRANCH)
    with pytest.raises(ModelError, match="does not name its dense model; name it with --base"):
        serpette.evaluate(pruned, data, head="frozen")
    with pytest.raises(ModelError, match="is itself pruned"):
        serpette.evaluate(pruned, data, head="frozen", base=serpette.save(pruned, tmp_path / "pruned"))
    assert serpette.evaluate(pruned, data, head="frozen", base=dense).n == 21


def test_a_split_that_is_not_there_is_refused(data: Path) -> None:
    with pytest.raises(DataError, match="has no split 'holdout'; expected one of train, val, test"):
        serpette.evaluate(named(tiny(TIMM), CLASSES), data, split="holdout")


def test_the_demo_images_are_scored_up_to_the_limit() -> None:
    scores = serpette.evaluate(tiny("timm-vit-no-head"), "demo", limit=50, fit_with="ridge")
    assert scores.n == 50
    assert scores.fit is not None
    assert scores.fit.n_train == 50


def test_the_real_dinov2_tells_clothes_apart(assets: Path) -> None:
    scores = serpette.evaluate(
        assets / "dinov2-small", "demo", limit=20, image_size=98, fit_with="ridge", device="cpu", batch_size=10
    )
    assert scores.model.family == "dinov2"
    assert scores.top1 > 30  # chance is 10


# Memory


class Hungry:
    """Runs out of memory on more than `fits` images; remembers what it got through."""

    def __init__(self, fits: int, error: Exception) -> None:
        self.fits, self.error = fits, error
        self.sizes: list[int] = []
        self.seen: list[int] = []

    def __call__(self, pixels: torch.Tensor, labels: torch.Tensor) -> None:
        if len(pixels) > self.fits:
            raise self.error
        self.sizes.append(len(pixels))
        self.seen += labels.tolist()


def batches(n: int, size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    pixels, labels = torch.zeros(n, 3, 2, 2, dtype=torch.uint8), torch.arange(n)
    return zip(pixels.split(size), labels.split(size), strict=True)


OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory"),
    MemoryError(),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"),
    RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=lambda e: type(e).__name__ + str(e)[:12])
def test_batches_are_halved_where_memory_runs_out(error: Exception) -> None:
    step = Hungry(3, error)
    for_each_batch(batches(21, 8), step)
    assert step.seen == list(range(21))  # every image once, in order
    assert step.sizes == [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1]


def test_one_image_that_does_not_fit_raises_the_original_error() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        for_each_batch(batches(4, 4), Hungry(0, torch.OutOfMemoryError("no")))


def test_other_errors_are_not_taken_for_missing_memory() -> None:
    step = Hungry(1, RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        for_each_batch(batches(4, 4), step)
    assert step.seen == []
    assert not is_out_of_memory(RuntimeError("mat1"))


@pytest.mark.parametrize("name", [TIMM, HF])
def test_an_evaluation_that_runs_out_of_memory_scores_the_same(name: str, data: Path, monkeypatch) -> None:
    model = named(tiny(name), CLASSES)
    expected = serpette.evaluate(model, data, batch_size=16).correct
    monkeypatch.setattr(type(model), "forward", hungry_forward(type(model).forward))
    assert serpette.evaluate(model, data, batch_size=16).correct == expected
    assert len(serpette.predict(model, data / "test", batch_size=16)) == 21


def hungry_forward(forward):
    def limited(self: torch.nn.Module, *args: torch.Tensor, **kwargs: torch.Tensor) -> object:
        if len([*args, *kwargs.values()][0]) > 5:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(self, *args, **kwargs)

    return limited
