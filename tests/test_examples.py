"""The examples do what they say, on a small model with random weights and the demo images."""

import runpy
from pathlib import Path
from typing import Any

import pytest
import timm
import torch

import serpette
from serpette.data.dataset import open_dataset
from serpette.models.base import adapt

EXAMPLES = Path(__file__).parents[1] / "examples"
DEPTH = 4


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A folder in timm's format with a small ViT whose classifier knows the classes of the demo images."""
    torch.manual_seed(0)
    backbone = timm.create_model(
        "vit_tiny_patch16_224", img_size=28, patch_size=7, embed_dim=48, num_heads=3, depth=DEPTH, num_classes=0
    )
    classes = open_dataset("demo").classes
    head = torch.randn(len(classes), backbone.num_features), torch.zeros(len(classes))
    folder = tmp_path / "model"
    folder.mkdir()
    adapt(adapt(backbone).with_classifier(*head, classes)).write_stock(folder)
    return str(folder)


def run(name: str, *arguments: Any) -> None:
    runpy.run_path(str(EXAMPLES / name))["main"]([str(argument) for argument in arguments])


def test_prune_a_model(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "pruned"
    run("prune_a_model.py", model, "--images", 32, "--drop", 2, "--out", out)
    *blocks, last = capsys.readouterr().out.splitlines()
    assert [line.endswith("removed") for line in blocks].count(True) == 2
    assert len(blocks) == DEPTH
    assert str(out) in last
    assert len(adapt(serpette.load(out)).blocks) == DEPTH - 2


def test_prune_an_architecture(tmp_path: Path) -> None:
    out = tmp_path / "pruned"
    options = ("--random-weights", "--images", 4, "--drop", 1, "--out", out)
    run("prune_a_model.py", "timm:test_vit", *options)
    assert len(adapt(serpette.load(out)).blocks) == 5


def test_compare_heads(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    run("compare_heads.py", model, "--drop", 1, "--limit", 200)
    words = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [head for head, *_ in words] == ["dense", "own", "frozen", "refit"]
    top1 = {head: float(percent) for head, percent, *_ in words}
    assert top1["refit"] > 25  # of random features; chance is 10


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_help(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        run(example.name, "--help")
    assert "python examples/" in capsys.readouterr().out
