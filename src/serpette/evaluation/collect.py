"""Run a model, or many plans of it, over decoded images and keep what comes out, one row per image.

Shapes: N images, D outputs.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from serpette.data.pixels import Pixels
from serpette.evaluation.sweep import Sweep
from serpette.evaluation.trunk import Output
from serpette.models.base import Adapter, inference
from serpette.models.runtime import for_each_batch, placement, to_input
from serpette.progress import Progress
from serpette.records import Plan


def collect(
    adapter: Adapter, pixels: Pixels, output: Output, batch_size: int, progress: Progress | None = None
) -> Tensor:
    """The output of one model for every good image: (N, D) in fp32 on the CPU, in the order of `pixels`."""
    (rows,) = _collect(adapter, lambda images: [output(adapter, images)], pixels, batch_size, progress)
    return rows


def collect_plans(
    adapter: Adapter,
    plans: Sequence[Plan],
    pixels: Pixels,
    output: Output,
    batch_size: int,
    progress: Progress | None = None,
) -> list[Tensor]:
    """The outputs of many plans of one dense model, in one pass: for each plan (N, D) in fp32 on the CPU."""
    return _collect(adapter, Sweep(adapter, plans, output).run, pixels, batch_size, progress)


def _collect(
    adapter: Adapter,
    run: Callable[[Tensor], list[Tensor]],
    pixels: Pixels,
    batch_size: int,
    progress: Progress | None,
) -> list[Tensor]:
    device, dtype = placement(adapter.model)
    rows: list[list[Tensor]] = []
    done = 0

    def step(batch: Tensor, _labels: Tensor) -> None:
        nonlocal done
        outputs = [out.float().cpu() for out in run(to_input(batch, pixels.preprocessing, device, dtype))]
        rows.append(outputs)
        done += len(batch)
        if progress:
            progress(done, len(pixels))

    with inference(adapter.model):
        for_each_batch(pixels.batches(batch_size), step)
    return [torch.cat(column) for column in zip(*rows, strict=True)]
