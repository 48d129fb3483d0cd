"""What pruning saves: the speed, work, memory and energy of one model on one machine."""

from typing import ClassVar

from serpette.records.base import Record
from serpette.records.common import ModelRef, Provenance


class Cost(Record):
    """The result of `bench` for one model; names and units as in timm's `benchmark.py` where it has them.

    Attributes:
        infer_samples_per_sec: median images per second at `infer_batch_size`, with a 95 % interval.
        infer_step_time: median milliseconds per batch.
        latency_ms: median milliseconds at batch 1, with a 95 % interval.
        infer_gflops: 10^9 floating-point operations per image, two per multiply-accumulate.
        infer_gmacs: 10^9 multiply-accumulates per image.
        param_count: millions of parameters.
        peak_memory_mb: MiB at the peak of inference; `memory_note` says how it was read.
        checkpoint_mb: MiB of all parameters and buffers in the stored precision.
        energy_j_per_image: joules per image; `None` with the reason in `energy_note` where it cannot be measured.
        speedup: ratio of the median images per second to those of the model compared against, from the same run;
            `speedup_note` says so when the interval contains 1.
        gflops_reduction: percent of the FLOPs of the model compared against that are saved; `param_reduction` likewise.
        baseline: the cost of the model compared against; `None` where there is none.
    """

    kind: ClassVar[str] = "cost"
    model: ModelRef
    provenance: Provenance
    infer_samples_per_sec: float
    infer_samples_per_sec_low: float
    infer_samples_per_sec_high: float
    infer_step_time: float
    infer_batch_size: int
    infer_img_size: int
    latency_ms: float
    latency_ms_low: float
    latency_ms_high: float
    infer_gflops: float
    infer_gmacs: float
    param_count: float
    peak_memory_mb: float | None
    memory_note: str
    checkpoint_mb: float
    energy_j_per_image: float | None
    energy_note: str
    repeats: int
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    speedup_note: str = ""
    gflops_reduction: float | None = None
    param_reduction: float | None = None
    baseline: "Cost | None" = None
