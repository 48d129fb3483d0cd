"""The main job on a small random model and the demo images."""

import json
from pathlib import Path

import pytest
import timm
import torch
import transformers

import serpette
from serpette.data.dataset import open_dataset
from serpette.data.pixels import Pixels
from serpette.models import adapt
from serpette.records import Selection
from serpette.selection import confirm as confirming
from serpette.selection import search as searching
from serpette.selection.units import Units
from serpette.testing import tiny_model

SETTINGS = {"drops": (1, 2), "images": 20, "images_search": 60, "limit": 60, "repeats": 2, "seed": 0}


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    return tiny_model()


@pytest.fixture(scope="module")
def run(model, tmp_path_factory) -> tuple[Selection, Path]:
    out = tmp_path_factory.mktemp("run")
    return serpette.select(model, "demo", out, max_loss=100.0, **SETTINGS), out


def test_the_record_has_what_programs_look_for(run) -> None:
    selection, out = run
    found = json.loads((out / "selection.json").read_text())
    assert found["kind"] == "selection"
    assert Selection.load(out / "selection.json") == selection
    assert {"validation_top1", "test_top1"} <= found["baseline"].keys()
    wanted = {"method", "drop", "validation_top1", "test_top1", "gflops_reduction", "speedup"}
    assert wanted <= found["winner"].keys()
    assert len(found["candidates"]) == 8
    assert all("validation_top1" in c and "gflops" in c for c in found["candidates"])
    assert (out / "report.html").stat().st_size > 10_000


def test_the_winner_removes_the_most_work_that_the_rule_allows(run) -> None:
    selection, _ = run
    most = max(c.gflops_reduction for c in selection.candidates)
    assert selection.winner.gflops_reduction == pytest.approx(most)
    assert selection.winner.method == "block"
    assert selection.winner.drop == 2


def test_the_saved_winner_scores_what_the_record_says(run) -> None:
    selection, out = run
    plain = timm.create_model(f"local-dir:{out / 'model'}", pretrained=True).eval()
    adapter = adapt(serpette.load(out / "model"))
    assert adapter.class_names == open_dataset("demo").classes
    test = Pixels(open_dataset("demo"), "test", adapter.preprocessing, limit=60, seed=0)
    (pixels, labels), *_ = test.batches(100)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (adapter.preprocessing.mean, adapter.preprocessing.std))
    with torch.inference_mode():
        answers = plain((pixels / 255 - mean) / std).argmax(1)
    assert 100 * (answers == labels).float().mean().item() == pytest.approx(selection.winner.test_top1)
    wrapper = transformers.AutoModelForImageClassification.from_pretrained(out / "model")
    assert tuple(wrapper.config.id2label.values()) == adapter.class_names


def test_the_search_equals_pruning_and_fitting_one_by_one(run, model) -> None:
    selection, _ = run
    for candidate in selection.candidates[::3]:
        pruned = serpette.prune(model, candidate.plan)
        scores = serpette.evaluate(pruned, "demo", split="val", head="refit", fit_with="ridge", limit=60)
        assert scores.top1 == pytest.approx(candidate.validation_top1)


class Interrupted(BaseException):
    """Stands for Ctrl-C, a crash or a full disk."""


def test_an_interrupted_run_continues_and_repeats_nothing(run, model, tmp_path, monkeypatch) -> None:
    whole, _ = run
    finished: list[tuple] = []
    original = searching.collect_plans

    def counted(adapter, plans, pixels, *rest):
        if len(finished) == stop:
            raise Interrupted
        rows = original(adapter, plans, pixels, *rest)
        finished.append((pixels.split, tuple(plan.content_hash for plan in plans)))
        return rows

    monkeypatch.setattr(searching, "collect_plans", counted)
    monkeypatch.setattr(confirming, "collect_plans", counted)
    attempts = 0
    while True:
        attempts += 1
        stop = len(finished) + 2  # a unit needs up to two passes: one over validation, one over training images
        try:
            again = serpette.select(model, "demo", tmp_path, max_loss=100.0, **SETTINGS)
            break
        except Interrupted:
            assert attempts < 12
    assert attempts > 4
    assert len(finished) == len(set(finished))  # no pass twice
    assert again.candidates == whole.candidates
    assert again.winner_scores.correct == whole.winner_scores.correct
    assert again.winner.test_top1 == whole.winner.test_top1

    finished.clear()
    stop = 0
    once_more = serpette.select(model, "demo", tmp_path, max_loss=100.0, **SETTINGS)  # computes nothing at all
    assert once_more.candidates == whole.candidates
    assert not finished


def test_test_images_are_not_opened_before_the_choice(model, tmp_path, monkeypatch) -> None:
    opened: list[str] = []
    original = Pixels.__init__

    def watched(self, dataset, split, *args, **kwargs):
        opened.append(split)
        original(self, dataset, split, *args, **kwargs)

    def stop(*_args, **_kwargs):
        raise Interrupted

    monkeypatch.setattr(Pixels, "__init__", watched)
    monkeypatch.setattr("serpette.selection.select.choose", stop)
    with pytest.raises(Interrupted):
        serpette.select(model, "demo", tmp_path, **SETTINGS)
    assert "test" not in opened
    assert {"train", "val"} <= set(opened)


def test_the_unpruned_model_stays_where_nothing_is_good_enough(model, tmp_path) -> None:
    selection = serpette.select(model, "demo", tmp_path, methods=("block",), max_loss=-100.0, **SETTINGS)
    assert selection.winner.method == "baseline"
    assert selection.winner.drop == 0
    assert selection.winner.test_top1 == selection.baseline.test_top1
    assert timm.create_model(f"local-dir:{tmp_path / 'model'}", pretrained=True).num_classes == 10


def test_a_drop_count_that_a_method_cannot_have_is_listed_with_the_reason(model, tmp_path) -> None:
    settings = {**SETTINGS, "drops": (1, 4)}
    selection = serpette.select(model, "demo", tmp_path, methods=("block",), **settings)
    fine, refused = selection.candidates
    assert fine.error is None
    assert refused.validation_top1 is None
    assert "4" in (refused.error or "")


def test_units_are_read_back_and_depend_on_every_input(tmp_path) -> None:
    units, calls = Units(tmp_path), []

    def compute() -> int:
        calls.append(1)
        return len(calls)

    assert units.get({"a": 1}, compute) == 1
    assert units.get({"a": 1}, compute) == 1
    assert units.get({"a": 2}, compute) == 2
    for damaged in (b"", b"[]", b'{"hash": "0", "result": 1}'):
        calls.clear()
        for file in tmp_path.glob("*.json"):
            file.write_bytes(damaged)
        assert units.get({"a": 1}, compute) == 1  # computed once more
    tensors = units.get_tensors({"a": 1}, lambda: {"x": torch.arange(3)})
    assert torch.equal(tensors["x"], units.get_tensors({"a": 1}, dict)["x"])
    assert not list(tmp_path.glob(".*"))
    (file,) = tmp_path.glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-1])
    assert torch.equal(units.get_tensors({"a": 1}, lambda: {"x": torch.ones(2)})["x"], torch.ones(2))
