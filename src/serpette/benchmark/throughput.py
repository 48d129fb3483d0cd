"""How long a forward pass takes: interleaved rounds, the device synchronised inside every timed window.

Two models are compared by the rounds that they share, A B then B A, so that a clock or a temperature that drifts meets
both alike.

Shapes: B images, S pixels a side.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from jaxtyping import Float
from torch import Tensor, nn

from serpette.benchmark.attention import attention_kernels, described, require_same_kernels
from serpette.errors import ModelError
from serpette.models.runtime import attention_backend, is_out_of_memory, placement

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Timing:
    """One model's rounds.

    Attributes:
        samples: seconds per batch, one number per round.
        batch_size: images per batch.
        attention: the attention kernels that ran.
    """

    samples: tuple[float, ...]
    batch_size: int
    attention: str = ""

    @property
    def seconds(self) -> float:
        """Median seconds per batch."""
        return median(self.samples)

    @property
    def seconds_interval(self) -> tuple[float, float]:
        """95 % interval of the median seconds per batch."""
        return median_interval(self.samples)

    @property
    def images_per_second(self) -> float:
        """Median images per second."""
        return self.batch_size / self.seconds

    @property
    def images_per_second_interval(self) -> tuple[float, float]:
        """95 % interval of the median images per second."""
        low, high = self.seconds_interval
        return self.batch_size / high, self.batch_size / low


@dataclass(frozen=True)
class Speedup:
    """How many times faster one model is than another, with a 95 % interval from the rounds that they share."""

    ratio: float
    low: float
    high: float

    @property
    def note(self) -> str:
        """Says so when the interval contains 1; else nothing."""
        inside = self.low <= 1 <= self.high
        return f"inside the noise: the 95 % interval {self.low:.3f} to {self.high:.3f} contains 1" if inside else ""


def speedup(model: Timing, baseline: Timing) -> Speedup:
    """Ratio of the median speeds; the interval is that of the median of the ratios round by round."""
    ratio = baseline.seconds / model.seconds
    low, high = median_interval([b / m for b, m in zip(baseline.samples, model.samples, strict=True)])
    return Speedup(ratio, min(low, ratio), max(high, ratio))


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """Distribution-free interval of the median: the order statistics k and n + 1 - k.

    k is the largest rank for which the interval covers at least 95 %, that is 2 P(Bin(n, 1/2) < k) <= 0.05 (Conover,
    Practical Nonparametric Statistics, section 3.2). Five samples and fewer cannot reach 95 %: the whole range is
    given.
    """
    ordered = sorted(samples)
    n = len(ordered)
    tail, k = 0.0, 0
    while (tail := tail + math.comb(n, k) / 2**n) <= (1 - CONFIDENCE) / 2:
        k += 1
    k = max(k, 1)
    return ordered[k - 1], ordered[n - k]


def measure_throughput(
    models: Sequence[nn.Module],
    image_size: int,
    batch_size: int,
    *,
    repeats: int = 10,
    min_seconds: float = 0.1,
    warmup: int = 3,
    seed: int = 0,
    synchronise: Callable[[], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Timing]:
    """Time the models against each other on random images, in the same process and the same rounds.

    The models are run as they are, so put them in evaluation and inference mode (`serpette.models.base.inference`).
    Where memory runs out for one of them the batch is halved for all.

    Args:
        models: the models, all on one device in one precision.
        image_size: pixels a side.
        batch_size: images per batch.
        repeats: timed rounds; each model has one window per round, in an order that alternates.
        min_seconds: a window repeats the batch until the fastest model fills this time.
        warmup: untimed batches per model.
        seed: of the random images.
        synchronise: waits until the device has done its work; that of the models' device by default.
        clock: reads the time in seconds.

    Raises:
        ModelError: the models differ in device, precision or attention kernel, or the kernels changed meanwhile.
    """
    places = {placement(model) for model in models}
    if len(places) > 1:
        raise ModelError(f"the models to compare are on {_listed(places)}; expected one device and one dtype for all.")
    device, dtype = places.pop()
    wait = synchronise or synchroniser(device)
    while True:
        images = random_images(batch_size, image_size, device, dtype, seed)
        try:
            return _rounds(models, images, repeats, min_seconds, warmup, wait, clock)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error) or batch_size == 1:
                raise
        batch_size //= 2
        if device.type == "cuda":
            torch.cuda.empty_cache()


def _rounds(
    models: Sequence[nn.Module],
    images: Float[Tensor, "B 3 S S"],
    repeats: int,
    min_seconds: float,
    warmup: int,
    synchronise: Callable[[], None],
    clock: Callable[[], float],
) -> list[Timing]:
    def window(model: nn.Module, iterations: int) -> float:
        synchronise()  # work left over from before is not this model's
        start = clock()
        for _ in range(iterations):
            model(images)
        synchronise()  # the window ends when the device is done, not when the work is queued
        return (clock() - start) / iterations

    kernels = [attention_kernels(model, images[:1]) for model in models]
    require_same_kernels(kernels)
    backend = attention_backend()
    for model in models:
        window(model, max(warmup, 1))
    fastest = min(window(model, 1) for model in models)
    iterations = max(1, math.ceil(min_seconds / max(fastest, 1e-6)))
    samples: list[list[float]] = [[] for _ in models]
    for repeat in range(repeats):
        order = range(len(models)) if repeat % 2 == 0 else reversed(range(len(models)))
        for i in order:
            samples[i].append(window(models[i], iterations))
            if attention_backend() != backend:
                raise ModelError(
                    f"the attention kernels allowed in torch changed from {backend} to {attention_backend()} while "
                    f"model {i} ran; expected one setting for all: do not set it inside a forward pass."
                )
    return [Timing(tuple(s), len(images), described(k)) for s, k in zip(samples, kernels, strict=True)]


def random_images(
    batch_size: int, image_size: int, device: torch.device, dtype: torch.dtype, seed: int
) -> Float[Tensor, "B 3 S S"]:
    """Normally distributed images, the same on every device."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch_size, 3, image_size, image_size, generator=generator).to(device, dtype)


def synchroniser(device: torch.device) -> Callable[[], None]:
    """The function that waits until `device` has done all its work; nothing on the CPU, which works at once."""
    if device.type == "cuda":
        return lambda: torch.cuda.synchronize(device)
    if device.type == "mps":
        return torch.mps.synchronize
    return lambda: None


def _listed(places: set[tuple[torch.device, torch.dtype]]) -> str:
    return " and ".join(sorted(f"{device} ({dtype})" for device, dtype in places))
