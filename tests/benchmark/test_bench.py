import csv
from pathlib import Path

import pytest
import timm
import torch
from torch import nn

from serpette.benchmark import bench as module
from serpette.benchmark.bench import bench, bench_modules
from serpette.benchmark.table import TIMM_COLUMNS, timm_rows, write_csv
from serpette.errors import ModelError
from serpette.records import Cost


def tiny(depth: int = 4, image_size: int = 32) -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = timm.create_model(
        "vit_tiny_patch16_224", img_size=image_size, patch_size=8, embed_dim=32, depth=depth, num_heads=2, num_classes=5
    )
    return model


@pytest.fixture(scope="module")
def comparison() -> Cost:
    return bench_modules(tiny(depth=2), tiny(), image_size=32, batch_size=2, repeats=6, energy=False)


def test_compares_two_models(comparison: Cost) -> None:
    cost, baseline = comparison, comparison.baseline
    assert 0 < comparison.gflops_reduction < 50
    assert 0 < comparison.param_reduction < 50
    assert (cost.model.depth, baseline.model.depth) == (2, 4)
    assert cost.speedup is not None
    assert cost.speedup_low is not None
    assert cost.speedup_high is not None
    assert cost.speedup_low <= cost.speedup <= cost.speedup_high
    assert baseline.speedup is None
    assert cost.speedup == pytest.approx(cost.infer_samples_per_sec / baseline.infer_samples_per_sec)


def test_numbers_fit_together(comparison: Cost) -> None:
    cost = comparison.baseline
    assert cost.infer_gflops == 2 * cost.infer_gmacs
    assert cost.infer_step_time == pytest.approx(1e3 * cost.infer_batch_size / cost.infer_samples_per_sec)
    assert cost.infer_samples_per_sec_low <= cost.infer_samples_per_sec <= cost.infer_samples_per_sec_high
    assert cost.latency_ms_low <= cost.latency_ms <= cost.latency_ms_high
    assert cost.peak_memory_mb is not None
    assert cost.peak_memory_mb >= cost.checkpoint_mb
    assert (cost.infer_batch_size, cost.infer_img_size, cost.repeats) == (2, 32, 6)
    assert (cost.energy_j_per_image, cost.energy_note) == (None, "not asked for")
    assert cost.provenance.attention_backend.endswith(", ran flash_attention_for_cpu")


def test_survives_json(comparison: Cost) -> None:
    assert Cost.from_json(comparison.to_json()) == comparison


def test_one_model_gives_its_cost() -> None:
    model = tiny().train()
    lines: list[str] = []
    cost = bench(model, image_size=32, batch_size=2, repeats=1, energy=False, progress=lines.append)
    assert isinstance(cost, Cost)
    assert cost.speedup is None
    assert lines[0] == "throughput at batch 2"
    assert all(m.training for m in model.modules())


def test_a_model_against_itself_has_a_speedup() -> None:
    model = tiny()
    result = bench(model, against=model, image_size=32, batch_size=1, repeats=1, energy=False)
    assert isinstance(result.baseline, Cost)
    assert result.speedup is not None
    assert result.gflops_reduction == 0


def test_energy_comes_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "sensor_for", lambda device: f"not measured: no sensor for {device.type}")
    cost = bench(tiny(), image_size=32, batch_size=1, repeats=1)
    assert isinstance(cost, Cost)
    assert (cost.energy_j_per_image, cost.energy_note) == (None, "not measured: no sensor for cpu")


def test_models_of_different_image_sizes_do_not_compare() -> None:
    with pytest.raises(ModelError, match="32 and 64 pixels"):
        bench_modules(tiny(), tiny(image_size=64))


def test_rows_have_the_columns_of_timm_and_the_fastest_first(comparison: Cost) -> None:
    slow = comparison.baseline.model_copy(update={"infer_samples_per_sec": 1.0})
    fast = comparison.model_copy(update={"infer_samples_per_sec": 2.0})
    rows = timm_rows([slow, fast])
    assert [row["infer_samples_per_sec"] for row in rows] == [2.0, 1.0]
    assert set(TIMM_COLUMNS) < set(rows[0])
    assert rows[0]["energy_j_per_image"] is None


def test_csv_can_be_read_back(comparison: Cost, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "new" / "costs.csv", [comparison, comparison.baseline])
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2
    assert rows[0]["energy_j_per_image"] == ""
    assert float(rows[0]["infer_gmacs"]) > 0
    assert rows[0]["device"] == comparison.provenance.device
