from pathlib import Path

import pytest
import torch
from torch import nn

from serpette.benchmark import memory
from serpette.benchmark.memory import checkpoint_mb, param_count, peak_memory_mb


def test_shared_parameters_count_once() -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    assert param_count(model) == 16
    assert checkpoint_mb(model) == 16 * 4 / 2**20


def test_checkpoint_follows_the_precision_and_holds_what_is_saved() -> None:
    model = nn.Linear(256, 256, bias=False).to(torch.bfloat16)
    model.register_buffer("saved", torch.zeros(256, dtype=torch.int64))
    model.register_buffer("rebuilt", torch.zeros(1000), persistent=False)
    assert checkpoint_mb(model) == (256 * 256 * 2 + 256 * 8) / 2**20


def test_works_without_memory() -> None:
    with torch.device("meta"):
        model = nn.Linear(10, 10)
    assert param_count(model) == 110


def grab(mib: int) -> None:
    torch.ones(mib * 2**20 // 4)


@pytest.mark.parametrize("permitted", [True, False])
def test_reads_the_growth_of_the_resident_set(permitted: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if not permitted:
        monkeypatch.setattr(memory, "PROC", tmp_path / "missing")
    elif not Path("/proc/self/clear_refs").exists():
        pytest.skip("needs Linux")
    model = nn.Linear(1024, 1024, bias=False)  # 4 MiB
    peak, note = peak_memory_mb(model, lambda: grab(64))
    assert peak is not None
    assert 4 + 56 < peak < 4 + 90
    assert ("VmHWM" if permitted else "sampled") in note


def test_a_second_measurement_does_not_look_free() -> None:
    """Memory that the allocator keeps from the first must not hide what the second needs."""
    model = nn.Linear(1, 1)
    first, _ = peak_memory_mb(model, lambda: grab(24))
    second, _ = peak_memory_mb(model, lambda: grab(24))
    assert first is not None
    assert second is not None
    assert second > 16


def test_a_device_without_a_record_gives_the_reason() -> None:
    with torch.device("meta"):
        model = nn.Linear(1, 1)
    assert peak_memory_mb(model, lambda: None) == (None, "not measured: meta keeps no record of its peak")
