"""(a) What `measure` costs beyond the forward pass that it needs: in time, and over many images in memory."""

from collections.abc import Iterator
from pathlib import Path

import timm
from torch import nn

from serpette.benchmark.memory import peak_memory_mb
from serpette.data.pixels import Pixels
from serpette.models.base import Adapter, adapt, inference
from serpette.models.runtime import for_each_batch, placement, to_input
from serpette.redundancy.calibrate import measure_pixels

from .images import noise
from .report import Ratio, Report, Row
from .timing import interleaved

BATCH = 32
SLOWDOWN = 1.10
GROWTH = 0.05
FEW, MANY = 64, (512, 4096)


def run() -> Report:
    demo = timm.create_model("vit_tiny_patch16_224", img_size=28, patch_size=7, embed_dim=128, num_heads=4)
    dinov2 = timm.create_model("vit_small_patch14_dinov2", img_size=98)
    return Report(
        title=f"measure_pixels against the forward pass alone, batch {BATCH}",
        target=f"time at most {SLOWDOWN:.2f} x, both over the same decoded images; peak memory of the process within "
        f"{100 * GROWTH:.0f} % of that at {FEW} images, nothing cached",
        limit="comparing states moves memory in proportion to the width, and the model computes with its square, so "
        "narrow models pay most; memory grows while the decoding queue and the allocator's free lists fill.",
        rows=[
            *memory_rows("shape of demo", demo, 28),
            time_row("shape of demo", demo, 28, images=256, rounds=15),
            time_row("DINOv2-small", dinov2, 98, images=32, rounds=15),
        ],
    )


def time_row(name: str, model: nn.Module, side: int, images: int, rounds: int) -> Row:
    adapter = adapt(model)
    pixels = Pixels(noise(images, side), "train", adapter.preprocessing)
    measured, plain = interleaved(
        [lambda: measure_pixels(adapter, pixels, batch_size=BATCH), lambda: forward(adapter, pixels)], rounds
    )
    ratio = Ratio.of(measured, plain)
    miss = f"measuring {name} takes {ratio.value:.3f} x as long as running it; at most {SLOWDOWN:.2f} x is wanted."
    return row(name, side, images, "time", ratio, miss if ratio.value > SLOWDOWN else "")


def forward(adapter: Adapter, pixels: Pixels) -> None:
    """The forward passes of `measure_pixels`, and nothing else."""
    device, dtype = placement(adapter.model)
    with inference(adapter.model):
        for_each_batch(
            pixels.batches(BATCH),
            lambda images, _: adapter.features(to_input(images, adapter.preprocessing, device, dtype)),
        )


def memory_rows(name: str, model: nn.Module, side: int) -> Iterator[Row]:
    few, few_added = peaks(model, side, FEW)
    for images in MANY:
        many, added = peaks(model, side, images)
        ratio = many / few
        miss = f"measuring {images:,} images needs {ratio:.3f} x the memory of {FEW}; at most {1 + GROWTH} x is wanted."
        cells = f"memory, {few:.0f} to {many:.0f} MiB (the pass alone {few_added:.0f} to {added:.0f})"
        yield row(name, side, images, cells, ratio, miss if ratio > 1 + GROWTH else "")


def peaks(model: nn.Module, side: int, images: int) -> tuple[float, float]:
    """MiB at the peak of measuring `images` images: of the process, and what the model and the pass add to it."""
    adapter = adapt(model)
    sizes = iter((FEW, images))  # `peak_memory_mb` runs the pass twice, first to warm up

    def measure() -> None:
        pixels = Pixels(noise(next(sizes), side), "train", adapter.preprocessing, cache="none")
        measure_pixels(adapter, pixels, batch_size=BATCH)

    added, why = peak_memory_mb(model, measure)
    assert added is not None, why
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(peak.split()[1]) / 1024, added


def row(model: str, side: int, images: int, quantity: str, ratio: Ratio | float, miss: str) -> Row:
    return Row({"model": model, "px": side, "images": images, "quantity": quantity, "ratio": ratio}, miss)
