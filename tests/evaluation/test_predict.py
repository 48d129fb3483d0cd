"""Every image gets a label and a probability, or the reason why it has none."""

from pathlib import Path

import pytest
import torch
from PIL import Image
from timm.data import create_transform, resolve_data_config

import serpette
from serpette.errors import DataError, ModelError, NonFiniteError
from tiny import HF, TIMM, image_folder, named, tiny

CLASSES = ("ash", "birch", "cedar")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return image_folder(tmp_path / "images", {"": {"ash": 3, "birch": 2}})


def test_labels_and_probabilities_are_those_of_timm(images: Path) -> None:
    model = named(tiny(TIMM), CLASSES)
    transform = create_transform(**{**resolve_data_config({}, model=model), "input_size": (3, 32, 32)})
    files = sorted(images.rglob("*.png"))
    with torch.inference_mode():
        best = model(torch.stack([transform(Image.open(file)) for file in files])).softmax(1).max(1)
    found = serpette.predict(model, images, batch_size=2)
    assert [p.path for p in found] == [str(file) for file in files]
    assert [p.label for p in found] == [CLASSES[k] for k in best.indices]
    assert [p.probability for p in found] == pytest.approx(best.values.tolist(), abs=1e-5)
    assert all(p.error is None for p in found)


@pytest.mark.parametrize("name", [TIMM, HF])
@pytest.mark.parametrize("batch_size", [1, 2, 8])
def test_files_and_folders_keep_their_order_and_bad_ones_say_why(name: str, batch_size: int, images: Path) -> None:
    good = images / "ash" / "00.png"
    html, empty = images / "page.jpg", images / "empty.png"
    html.write_text("<html>")
    empty.write_bytes(b"")
    given = [html, good, empty, images / "birch", good]
    found = serpette.predict(named(tiny(name), CLASSES), given, batch_size=batch_size)
    births = [str(images / "birch" / f"{i:02d}.png") for i in (0, 1)]
    assert [p.path for p in found] == [str(html), str(good), str(empty), *births, str(good)]
    assert [p.error for p in found] == ["it is an HTML page", None, "the file is empty", None, None, None]
    assert found[0].label is None
    assert found[0].probability is None
    assert found[1] == found[5]


def test_progress_counts_all_images(images: Path) -> None:
    seen = []
    serpette.predict(named(tiny(TIMM), CLASSES), images, batch_size=2, progress=lambda *now: seen.append(now))
    assert seen == [(2, 5), (4, 5), (5, 5)]


def test_a_head_without_names_answers_with_numbers(images: Path) -> None:
    assert {p.label for p in serpette.predict(tiny(TIMM), images)} <= set("01234")


def test_what_cannot_be_predicted_is_refused(images: Path, tmp_path: Path) -> None:
    model = named(tiny(TIMM), CLASSES)
    with pytest.raises(ModelError, match="has no classifier"):
        serpette.predict(tiny("timm-vit-no-head"), images)
    with pytest.raises(DataError, match=r"there is no image .*nowhere"):
        serpette.predict(model, tmp_path / "nowhere.png")
    (tmp_path / "bare").mkdir()
    with pytest.raises(DataError, match="holds no images"):
        serpette.predict(model, tmp_path / "bare")
    model.head.weight.data.fill_(torch.nan)
    with pytest.raises(NonFiniteError, match="--dtype fp32"):
        serpette.predict(model, images)
