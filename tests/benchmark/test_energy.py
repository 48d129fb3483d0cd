"""Cases 18 and 19."""

from pathlib import Path

import pytest
import torch

from serpette.benchmark.energy import (
    NotMeasurableError,
    NvmlSensor,
    RaplSensor,
    find_gpu,
    measure_energy,
    sensor_for,
)

from .fakes import Clock, FakeNvml, SteppedSensor, powercap

# The window


def test_a_short_run_on_a_slow_counter_gets_a_longer_window() -> None:
    """Runs of 5 ms, a counter that moves every 100 ms, and a user who asks for 5 ms."""
    clock = Clock(tick=1e-4)
    runs = 0

    def run() -> None:
        nonlocal runs
        runs += 1
        clock.now += 0.005

    joules, note = measure_energy(run, 2, SteppedSensor(clock, watts=50, period=0.1), min_seconds=0.005, clock=clock)
    assert runs * 0.005 > 1.5
    assert joules == pytest.approx(50 * 0.005 / 2, rel=0.1)
    assert note.startswith("a fake counter, over 2.")


def test_the_window_lasts_two_seconds() -> None:
    clock = Clock(tick=1e-3)
    _, note = measure_energy(lambda: None, 1, SteppedSensor(clock, watts=1, period=0.002), clock=clock)
    assert note == "a fake counter, over 2.0 s"


def test_a_counter_that_stands_still_is_not_zero() -> None:
    clock = Clock(tick=0.01)
    joules, note = measure_energy(lambda: None, 1, SteppedSensor(clock, watts=0, period=0.1), clock=clock)
    assert joules is None
    assert note == "not measured: the counter did not move in 2 s"


def test_a_counter_that_goes_back_is_not_negative() -> None:
    clock = Clock(tick=0.01)
    joules, note = measure_energy(lambda: None, 1, SteppedSensor(clock, watts=-5, period=0.1), clock=clock)
    assert joules is None
    assert note.startswith("not measured")


# RAPL


def test_rapl_adds_packages_and_leaves_their_parts_out(tmp_path: Path) -> None:
    zones = {"intel-rapl:0": 0, "intel-rapl:0:0": 0, "intel-rapl:1": 0, "intel-rapl-mmio:0": 0}
    root = powercap(tmp_path, zones)
    with RaplSensor(root) as sensor:
        for zone in zones:
            (root / zone / "energy_uj").write_text("500000")
        assert sensor.joules() == 1.0


def test_rapl_counter_that_wraps_goes_on(tmp_path: Path) -> None:
    root = powercap(tmp_path, {"intel-rapl:0": 900_000}, range_uj=1_000_000)
    with RaplSensor(root) as sensor:
        for value in (100_000, 800_000, 50_000):
            (root / "intel-rapl:0" / "energy_uj").write_text(str(value))
            last = sensor.joules()
        assert last == pytest.approx(0.2 + 0.7 + 0.25)


def test_rapl_that_cannot_be_read_gives_the_reason(tmp_path: Path) -> None:
    root = powercap(tmp_path, {"intel-rapl:0": 1})
    counter = root / "intel-rapl:0" / "energy_uj"
    counter.unlink()
    counter.mkdir()  # unreadable for every user, root included
    joules, note = measure_energy(lambda: None, 1, RaplSensor(root))
    assert joules is None
    assert note.startswith("not measured: ")
    assert "energy_uj cannot be read (" in note


def test_no_rapl_gives_the_reason(tmp_path: Path) -> None:
    assert measure_energy(lambda: None, 1, RaplSensor(tmp_path)) == (
        None,
        f"not measured: no RAPL package under {tmp_path}",
    )


# NVML


def test_nvml_reads_the_counter() -> None:
    nvml = FakeNvml()
    clock = Clock(tick=0.01)
    joules, note = measure_energy(lambda: None, 1, NvmlSensor(nvml, 0, None), clock=clock)
    assert joules is not None
    assert joules > 0
    assert note.startswith("NVML energy counter, over ")
    assert nvml.open == 0


def test_nvml_without_a_counter_integrates_power_and_says_so() -> None:
    sensor = NvmlSensor(FakeNvml(counter=False), 0, None, period=0.001)
    joules, note = measure_energy(lambda: None, 1, sensor, min_seconds=0.05)
    assert joules is not None
    assert joules > 0
    assert note.startswith("NVML power, integrated")


def test_nvml_with_neither_gives_the_reason() -> None:
    nvml = FakeNvml(counter=False, power=False)
    assert measure_energy(lambda: None, 1, NvmlSensor(nvml, 0, None)) == (None, "not measured: NVML: Not Supported")
    assert nvml.open == 0


@pytest.mark.parametrize(
    ("visible", "ordinal", "board"),
    [
        (None, 3, 3),
        ("2,5", 0, 2),
        ("2,5", 1, 5),
        (" 5 , 2", 0, 5),
        ("GPU-00000004-aaaa", 0, 4),
        ("GPU-00000004,GPU-00000001", 1, 1),
    ],
)
def test_cuda_visible_devices_is_mapped(visible: str | None, ordinal: int, board: int) -> None:
    assert find_gpu(FakeNvml(), ordinal, visible) == (board, "")


@pytest.mark.parametrize("uuid", ["00000007-aaaa", "GPU-00000007-aaaa"])
def test_the_uuid_that_cuda_states_decides(uuid: str) -> None:
    """CUDA orders GPUs by speed unless told otherwise, so that its numbers need not be NVML's."""
    assert find_gpu(FakeNvml(), 0, "2,5", uuid) == (7, "")


def test_mig_is_flagged() -> None:
    nvml = FakeNvml(mig=(6,))
    for visible, uuid in (("MIG-1234", "1234"), ("6", None)):
        handle, note = find_gpu(nvml, 0, visible, uuid)
        assert handle == 6
        assert "MIG" in note
    _, note = measure_energy(lambda: None, 1, NvmlSensor(nvml, 0, "MIG-1234"), clock=Clock(tick=0.01))
    assert note.startswith("NVML energy counter of the whole board, which MIG divides")


@pytest.mark.parametrize(
    ("visible", "ordinal"), [("", 0), ("-1", 0), ("2,5", 2), ("2,-1,5", 1), ("9", 0), ("GPU-no", 0)]
)
def test_a_gpu_that_is_not_there_gives_the_reason(visible: str, ordinal: int) -> None:
    with pytest.raises(NotMeasurableError, match=r"shows no GPU|knows no GPU"):
        find_gpu(FakeNvml(), ordinal, visible)


def test_sensors_by_device() -> None:
    assert isinstance(sensor_for(torch.device("cpu")), RaplSensor)
    assert sensor_for(torch.device("meta")) == "not measured: no energy counter is known for meta"
