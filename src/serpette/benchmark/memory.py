"""What a model needs: parameters, checkpoint, and memory at the peak of inference.

Several models live in one process and may share parameters, so what the process holds says nothing about one of them.
The peak is therefore put together: the model's own parameters and buffers, plus what inference adds while it runs.
"""

import ctypes
import gc
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import psutil
import torch
from torch import Tensor, nn

from serpette.benchmark.throughput import synchroniser
from serpette.models.runtime import placement

MIB = 2**20
PROC = Path("/proc/self")


def param_count(model: nn.Module) -> int:
    """Number of parameters; one that is used in several places counts once."""
    return sum(parameter.numel() for parameter in model.parameters())


def checkpoint_mb(model: nn.Module) -> float:
    """MiB of what a checkpoint of the model holds, in the precision that it has now; shared tensors count once."""
    return _bytes(v for v in model.state_dict(keep_vars=True).values() if isinstance(v, Tensor)) / MIB


def peak_memory_mb(model: nn.Module, run: Callable[[], object]) -> tuple[float | None, str]:
    """MiB at the peak of inference, and a note that says how it was read.

    Args:
        model: the model that `run` runs; its parameters and buffers are counted.
        run: one forward pass. It is called twice: once so that lazily made workspaces exist, then measured.

    Returns:
        The peak, or `None` with the reason where the device cannot tell.
    """
    device, _ = placement(model)
    if device.type not in ("cpu", "cuda"):
        return None, f"not measured: {device.type} keeps no record of its peak"
    synchronise = synchroniser(device)
    run()
    synchronise()
    growth, source = _growth_on_gpu(run, device) if device.type == "cuda" else _growth_on_cpu(run)
    own = _bytes((*model.parameters(), *model.buffers()))
    return (own + growth) / MIB, f"parameters and buffers + growth of the {source} during one batch"


def _growth_on_gpu(run: Callable[[], object], device: torch.device) -> tuple[int, str]:
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    run()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before, "CUDA allocator's peak"


def _growth_on_cpu(run: Callable[[], object]) -> tuple[int, str]:
    _give_back_free_memory()
    before = _resident()
    try:
        (PROC / "clear_refs").write_text("5")  # Linux: starts the record of the peak (VmHWM) anew
    except OSError:
        return max(_sampled_peak(run) - before, 0), "resident set (sampled every ms)"
    run()
    return max(_recorded_peak() - before, 0), "resident set (VmHWM)"


def _recorded_peak() -> int:
    line = next(line for line in (PROC / "status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def _sampled_peak(run: Callable[[], object]) -> int:
    peak = _resident()
    done = threading.Event()

    def sample() -> None:
        nonlocal peak
        while not done.wait(0.001):
            peak = max(peak, _resident())

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        run()
    finally:
        done.set()
        sampler.join()
    return peak


def _resident() -> int:
    return int(psutil.Process().memory_info().rss)


def _give_back_free_memory() -> None:
    # Freed memory that the allocator keeps would be used again unseen, and the second model measured would look free.
    gc.collect()
    if sys.platform == "linux":
        with suppress(AttributeError):  # a C library other than glibc
            ctypes.CDLL(None).malloc_trim(0)


def _bytes(tensors: Iterable[Tensor]) -> int:
    unique = {id(tensor): tensor for tensor in tensors}
    return sum(tensor.numel() * tensor.element_size() for tensor in unique.values())
