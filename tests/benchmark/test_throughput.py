"""Cases 16 and 17, on a fake device in fake time."""

import random
from collections.abc import Callable
from statistics import median

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from serpette.benchmark.throughput import (
    Speedup,
    Timing,
    measure_throughput,
    median_interval,
    random_images,
    speedup,
)
from serpette.errors import ModelError

from .fakes import AsynchronousDevice, Clock, Worker


@pytest.fixture
def device() -> AsynchronousDevice:
    return AsynchronousDevice(Clock())


def measure(device: AsynchronousDevice, *models: nn.Module, batch_size: int = 4, repeats: int = 6) -> list[Timing]:
    return measure_throughput(
        models, 8, batch_size, repeats=repeats, synchronise=device.synchronise, clock=device.clock
    )


def test_waits_for_the_device_inside_the_window(device: AsynchronousDevice) -> None:
    slow, fast = measure(device, Worker(device, 0.5), Worker(device, 0.25))
    assert slow.samples == pytest.approx((0.5,) * 6)
    assert fast.samples == pytest.approx((0.25,) * 6)
    assert speedup(fast, slow).ratio == pytest.approx(2)
    assert fast.images_per_second == pytest.approx(16)


def test_fills_short_windows(device: AsynchronousDevice) -> None:
    measure(device, Worker(device, 0.01, "m"), repeats=1)
    assert device.log[-11:-1] == ["m"] * 10  # 0.1 s


def test_alternates_the_order(device: AsynchronousDevice) -> None:
    measure(device, Worker(device, 0.2, "a"), Worker(device, 0.2, "b"), repeats=4)
    ran = [name for name in device.log if name != "wait"]
    assert ran[-8:] == ["a", "b", "b", "a"] * 2


def test_halves_the_batch_of_all_models_alike(device: AsynchronousDevice) -> None:
    timings = measure(device, Worker(device, 0.2), Worker(device, 0.2, limit=3), batch_size=8)
    assert [t.batch_size for t in timings] == [2, 2]


def test_a_single_image_that_does_not_fit_is_an_error(device: AsynchronousDevice) -> None:
    with pytest.raises(torch.OutOfMemoryError):
        measure(device, Worker(device, 0.2, limit=0))


def test_other_errors_are_not_taken_for_a_lack_of_memory() -> None:
    with pytest.raises(RuntimeError, match=r"size mismatch|mat1 and mat2"):
        measure_throughput([nn.Linear(5, 5)], 8, 2, repeats=1)


def test_models_must_share_device_and_precision(device: AsynchronousDevice) -> None:
    with pytest.raises(ModelError, match=r"bfloat16.*float32"):
        measure(device, Worker(device, 0.1), Worker(device, 0.1).to(torch.bfloat16))


# Attention kernels (case 17)


class Attends(nn.Module):
    def __init__(self, attend: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.attend = attend

    def forward(self, images: Tensor) -> Tensor:
        return self.attend(images * self.weight)


def fused(x: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x, x, x)


def unfused(x: Tensor) -> Tensor:
    return (x @ x.transpose(-1, -2)).softmax(-1) @ x


def none(x: Tensor) -> Tensor:
    return x


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_records_the_attention_kernel(mode: Callable[[], torch.no_grad]) -> None:
    with mode():
        timings = measure_throughput([Attends(fused), Attends(none)], 8, 2, repeats=1, min_seconds=0.0)
        unfused_timing = measure_throughput([Attends(unfused)], 8, 2, repeats=1, min_seconds=0.0)[0]
    assert [t.attention for t in timings] == ["flash_attention_for_cpu", "no"]
    assert unfused_timing.attention == "unfused"


def test_refuses_different_attention_kernels() -> None:
    with torch.no_grad(), pytest.raises(ModelError, match="flash_attention_for_cpu attention and the other unfused"):
        measure_throughput([Attends(fused), Attends(unfused)], 8, 2, repeats=1)


def test_refuses_a_model_that_switches_kernels_for_all(device: AsynchronousDevice) -> None:
    switched = [0]

    def switch(x: Tensor) -> Tensor:
        device.queued += 0.2
        switched[0] += 1
        torch.backends.cuda.enable_flash_sdp(switched[0] < 6)  # one probe, three warm-ups, one trial, then the rounds
        return x

    try:
        with torch.no_grad(), pytest.raises(ModelError, match="changed from sdpa"):
            measure(device, Attends(switch))
    finally:
        torch.backends.cuda.enable_flash_sdp(True)


# Intervals


@pytest.mark.parametrize(("n", "rank"), [(1, 1), (5, 1), (6, 1), (8, 1), (9, 2), (10, 2), (20, 6), (100, 40)])
def test_ranks_of_the_interval_are_those_of_the_tables(n: int, rank: int) -> None:
    low, high = median_interval([float(i) for i in range(1, n + 1)])
    assert (low, high) == (rank, n + 1 - rank)


def test_interval_covers_the_median_as_often_as_it_says() -> None:
    draw = random.Random(0)
    hits = 0
    for _ in range(2000):
        low, high = median_interval([draw.expovariate(1.0) for _ in range(15)])
        hits += low <= 0.6931 <= high
    assert hits / 2000 >= 0.945  # 95 %, less two standard errors


def test_a_speedup_inside_the_noise_says_so() -> None:
    noisy = Timing((1.0, 1.2, 0.9, 1.1, 1.0, 0.95), 1)
    other = Timing((1.1, 1.0, 1.0, 1.0, 1.1, 0.9), 1)
    assert speedup(noisy, other).note.startswith("inside the noise")
    assert Speedup(1.3, 1.2, 1.4).note == ""
    assert Speedup(0.8, 0.7, 0.9).note == ""


def test_rounds_are_paired() -> None:
    """A drift that slows both models alike leaves the interval of the ratio narrow."""
    baseline = Timing(tuple(1.0 + 0.2 * i for i in range(8)), 1)
    model = Timing(tuple(s / 1.5 for s in baseline.samples), 1)
    gain = speedup(model, baseline)
    assert (gain.low, gain.ratio, gain.high) == pytest.approx((1.5, 1.5, 1.5))


def test_timing_reports_speeds_in_order() -> None:
    timing = Timing((0.5, 1.0, 2.0), batch_size=4)
    assert timing.seconds == median(timing.samples)
    assert timing.images_per_second_interval == (2.0, 8.0)


def test_random_images_follow_the_seed() -> None:
    make = [random_images(2, 4, torch.device("cpu"), torch.float32, seed) for seed in (0, 0, 1)]
    assert torch.equal(make[0], make[1])
    assert not torch.equal(make[0], make[2])
