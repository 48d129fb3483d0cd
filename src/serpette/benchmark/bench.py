"""Measure one model, or one against another in the same run: the `bench` stage."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from torch import nn

from serpette.benchmark.energy import measure_energy, sensor_for
from serpette.benchmark.flops import count_flops
from serpette.benchmark.memory import checkpoint_mb, param_count, peak_memory_mb
from serpette.benchmark.throughput import Timing, measure_throughput, random_images, speedup, synchroniser
from serpette.errors import ModelError
from serpette.models.base import adapt, inference
from serpette.models.reference import model_ref
from serpette.models.runtime import placement, provenance
from serpette.records import Cost

Model = str | os.PathLike[str] | nn.Module
Progress = Callable[[str], None]


def bench(
    model: Model,
    *,
    against: Model | None = None,
    batch_size: int = 32,
    repeats: int = 10,
    image_size: int | None = None,
    device: str | None = None,
    dtype: str | None = None,
    random_weights: bool = False,
    seed: int = 0,
    energy: bool = True,
    progress: Progress | None = None,
) -> Cost:
    """Measure speed, latency, work, memory and energy of a model on random images.

    Args:
        model: a name, a folder, a file or a module.
        against: the model to compare with, usually the dense one; both run in this process, in alternating order.
        batch_size: images per batch; halved for both models where memory runs out.
        repeats: timed rounds; six and more give a 95 % interval.
        image_size: pixels a side; the models' own by default.
        device: such as "cuda"; the best there is by default.
        dtype: "fp32", "bf16" or "fp16".
        random_weights: build named models without loading their weights, which cost the same.
        seed: of the random images.
        energy: also measure joules per image, which takes some seconds per model.
        progress: called with a line on each step.

    Returns:
        The cost of `model`; with `against`, its `baseline` is the cost of the other.

    Raises:
        ModelError: a model cannot be loaded, or the two cannot be compared fairly.
    """
    from serpette.export.load import as_module

    load = partial(as_module, image_size=image_size, device=device, dtype=dtype, random_weights=random_weights)
    named = [model] if against is None else [model, against]
    modules = [load(each) for each in named]
    costs = measure_costs(
        modules,
        image_size=image_size,
        batch_size=batch_size,
        repeats=repeats,
        seed=seed,
        energy=energy,
        progress=progress,
    )
    return costs[0] if against is None else compare(*costs)


def bench_modules(
    model: nn.Module,
    baseline: nn.Module,
    *,
    image_size: int | None = None,
    batch_size: int = 32,
    repeats: int = 10,
    seed: int = 0,
    energy: bool = True,
    progress: Progress | None = None,
) -> Cost:
    """Measure two modules in memory against each other; arguments as in `bench`.

    Raises:
        ModelError: the two cannot be compared fairly.
    """
    costs = measure_costs(
        [model, baseline],
        image_size=image_size,
        batch_size=batch_size,
        repeats=repeats,
        seed=seed,
        energy=energy,
        progress=progress,
    )
    return compare(*costs)


def compare(cost: Cost, baseline: Cost) -> Cost:
    """A cost with the one it is compared against, both from one run, and what is saved in percent."""
    return cost.model_copy(
        update={
            "gflops_reduction": 100 * (1 - cost.infer_gflops / baseline.infer_gflops),
            "param_reduction": 100 * (1 - cost.param_count / baseline.param_count),
            "baseline": baseline,
        }
    )


def measure_costs(
    models: Sequence[nn.Module],
    *,
    image_size: int | None,
    batch_size: int,
    repeats: int,
    seed: int,
    energy: bool,
    progress: Progress | None,
) -> list[Cost]:
    """The costs of several models from one run; the last one is the baseline of the others' speedups.

    Raises:
        ModelError: the models differ in image size, device, precision or attention kernel.
    """
    say = progress or (lambda line: None)
    size = image_size or _common_image_size(models)
    with ExitStack() as stack:
        for model in models:
            stack.enter_context(inference(model))
        say(f"throughput at batch {batch_size}")
        batches = measure_throughput(models, size, batch_size, repeats=repeats, seed=seed)
        say("latency at batch 1")
        singles = measure_throughput(models, size, 1, repeats=repeats, seed=seed)
        costs = []
        for model, batch, single in zip(models, batches, singles, strict=True):
            say(f"memory, energy and FLOPs of {adapt(model).origin.name}")
            costs.append(_cost(model, batch, single, size, seed, energy))
    compared = [_with_speedup(cost, batch, batches[-1]) for cost, batch in zip(costs[:-1], batches, strict=False)]
    return [*compared, costs[-1]]


def _cost(model: nn.Module, batch: Timing, single: Timing, size: int, seed: int, energy: bool) -> Cost:
    device, dtype = placement(model)
    images = random_images(batch.batch_size, size, device, dtype, seed)
    synchronise = synchroniser(device)

    def run() -> None:
        model(images)
        synchronise()

    flops = count_flops(model, size)
    peak, memory_note = peak_memory_mb(model, run)
    joules, energy_note = _energy(model, run, batch.batch_size) if energy else (None, "not asked for")
    per_second_low, per_second_high = batch.images_per_second_interval
    latency_low, latency_high = single.seconds_interval
    came_from = provenance(model, seed)
    return Cost(
        model=model_ref(adapt(model)),
        provenance=came_from.model_copy(
            update={"attention_backend": f"{came_from.attention_backend}, ran {batch.attention}"}
        ),
        infer_samples_per_sec=batch.images_per_second,
        infer_samples_per_sec_low=per_second_low,
        infer_samples_per_sec_high=per_second_high,
        infer_step_time=1e3 * batch.seconds,
        infer_batch_size=batch.batch_size,
        infer_img_size=size,
        latency_ms=1e3 * single.seconds,
        latency_ms_low=1e3 * latency_low,
        latency_ms_high=1e3 * latency_high,
        infer_gflops=flops / 1e9,
        infer_gmacs=flops / 2e9,
        param_count=param_count(model) / 1e6,
        peak_memory_mb=peak,
        memory_note=memory_note,
        checkpoint_mb=checkpoint_mb(model),
        energy_j_per_image=joules,
        energy_note=energy_note,
        repeats=len(batch.samples),
    )


def _energy(model: nn.Module, run: Callable[[], None], images_per_run: int) -> tuple[float | None, str]:
    sensor = sensor_for(placement(model)[0])
    return (None, sensor) if isinstance(sensor, str) else measure_energy(run, images_per_run, sensor)


def _with_speedup(cost: Cost, batch: Timing, baseline: Timing) -> Cost:
    gain = speedup(batch, baseline)
    rounds = len(batch.samples)
    few = f"only {rounds} rounds: the range is given, which is no 95 % interval" if rounds < 6 else ""
    return cost.model_copy(
        update={
            "speedup": gain.ratio,
            "speedup_low": gain.low,
            "speedup_high": gain.high,
            "speedup_note": gain.note or few,
        }
    )


def _common_image_size(models: Sequence[nn.Module]) -> int:
    sizes = {adapt(model).preprocessing.image_size for model in models}
    if len(sizes) > 1:
        raise ModelError(
            f"the models take {' and '.join(map(str, sorted(sizes)))} pixels, so their speeds do not compare; "
            "give one --image-size that both accept."
        )
    return sizes.pop()
