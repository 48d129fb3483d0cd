"""The bundled model and images: small, right, and loadable without serpette."""

from importlib.resources import files
from pathlib import Path

import numpy as np
import timm
import torch

import serpette
from serpette.models import adapt

FOLDER = Path(str(files("serpette") / "demo"))


def test_model_and_images_are_small() -> None:
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 12 * 2**20


def test_plain_timm_loads_the_model_and_gets_nine_of_ten_test_images_right() -> None:
    model = timm.create_model(f"local-dir:{FOLDER}", pretrained=True).eval()
    assert len(model.blocks) == 12
    data = np.load(FOLDER / "demo.npz", allow_pickle=False)
    config = model.pretrained_cfg
    pixels = torch.from_numpy(data["test_images"]).float().div(255).unsqueeze(1).expand(-1, 3, -1, -1)
    with torch.inference_mode():
        answers = model((pixels - config["mean"][0]) / config["std"][0]).argmax(1).numpy()
    correct = answers == data["test_labels"]
    assert len(correct) == 1000
    assert (
        correct.mean() >= 0.89
    )  # 90 % on all 10,000 test images, see training.log; 1,000 of them are one point uncertain


def test_the_log_of_the_training_run_is_there_and_says_so() -> None:
    last = (FOLDER / "training.log").read_text().strip().splitlines()[-1]
    assert float(last.rpartition("test ")[2]) >= 90


def test_the_model_knows_the_classes_of_the_images() -> None:
    adapter = adapt(serpette.load("demo"))
    assert adapter.class_names is not None
    assert set(adapter.class_names) == set(serpette.scan("demo", limit=20).classes)


def test_own_head_scores_as_plain_timm_does() -> None:
    scores = serpette.evaluate("demo", "demo", limit=100, device="cpu")
    assert scores.head == "own"
    assert scores.n == 100
    assert scores.top1 > 80
