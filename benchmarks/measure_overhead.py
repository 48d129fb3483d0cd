"""(a) What `measure` costs beyond the forward pass that it needs: in time, and over many images in memory."""

from collections.abc import Iterator
from pathlib import Path
from statistics import median

from torch import Tensor, nn

from serpette.benchmark.memory import peak_memory_mb
from serpette.data.pixels import Pixels
from serpette.models.base import Adapter, adapt, inference
from serpette.models.runtime import for_each_batch, placement, to_input
from serpette.redundancy.calibrate import measure_pixels

from .images import noise
from .models import demo_like, dinov2_small
from .report import Cells, Ratio, Report, Row
from .timing import interleaved

BATCH = 32
ROUNDS = 15
SLOWDOWN = 1.10
GROWTH = 1.05
FEW, MANY = 64, (512, 4096)


def run() -> Report:
    small, large = demo_like(), dinov2_small(98)
    return Report(
        title=f"measure_pixels, batch {BATCH}: time against the forward pass alone, memory against {FEW} images",
        target=f"time at most {SLOWDOWN:.2f}, over the same decoded images; peak memory of the process at most "
        f"{GROWTH:.2f}, with nothing cached",
        limit="comparing states moves memory in proportion to the width, and the model computes with its square, so "
        "narrow models pay most; memory levels off after some hundred images (decoding queue, allocator).",
        rows=[
            *memory_rows("ViT like demo", small, 28),
            time_row("ViT like demo", small, 28, images=256),
            time_row("DINOv2-small", large, 98, images=32),
        ],
    )


def time_row(name: str, model: nn.Module, side: int, images: int) -> Row:
    adapter = adapt(model)
    pixels = Pixels(noise(images, side), "train", adapter.preprocessing)
    measured, plain = interleaved(
        [lambda: measure_pixels(adapter, pixels, batch_size=BATCH), lambda: forward(adapter, pixels)], ROUNDS
    )
    ratio = Ratio.of(measured, plain)
    miss = f"measuring {name} takes {ratio.value:.3f} times as long as running it; at most {SLOWDOWN:.2f} is wanted."
    miss = miss if ratio.value > SLOWDOWN else ""
    return row(name, side, images, "seconds", median(measured), median(plain), ratio, miss)


def forward(adapter: Adapter, pixels: Pixels) -> None:
    """The forward passes of `measure_pixels`, and nothing else."""
    device, dtype = placement(adapter.model)

    def step(images: Tensor, _labels: Tensor) -> None:
        adapter.features(to_input(images, adapter.preprocessing, device, dtype))

    with inference(adapter.model):
        for_each_batch(pixels.batches(BATCH), step)


def memory_rows(name: str, model: nn.Module, side: int) -> Iterator[Row]:
    few, few_alone = peaks(model, side, FEW)
    for images in MANY:
        many, alone = peaks(model, side, images)
        ratio = many / few
        miss = f"measuring {images:,} images needs {ratio:.3f} times the memory of {FEW}; at most {GROWTH} is wanted."
        yield row(name, side, images, "peak MiB", many, few, ratio, miss if ratio > GROWTH else "")
        yield row(name, side, images, "of it model and pass", alone, few_alone, alone / few_alone, None)


def peaks(model: nn.Module, side: int, images: int) -> tuple[float, float]:
    """MiB at the peak of measuring `images` images: of the whole process, and of the model and the pass alone."""
    adapter = adapt(model)
    sizes = iter((FEW, images))  # `peak_memory_mb` runs the pass twice, first to warm up

    def measure() -> None:
        pixels = Pixels(noise(next(sizes), side), "train", adapter.preprocessing, cache="none")
        measure_pixels(adapter, pixels, batch_size=BATCH)

    alone, why = peak_memory_mb(model, measure)
    assert alone is not None, why
    process = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(process.split()[1]) / 1024, alone


def row(
    model: str, px: int, images: int, what: str, measure: float, against: float, ratio: Ratio | float, miss: str | None
) -> Row:
    cells: Cells = {
        "model": model,
        "px": px,
        "images": images,
        "quantity": what,
        "measure": measure,
        "against": against,
    }
    return Row(cells | {"ratio": ratio}, miss)
