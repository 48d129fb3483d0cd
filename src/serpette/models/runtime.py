"""Where and how a model runs: device, precision, batches that shrink when memory runs out, and a record of it all."""

import os
import platform
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor, nn

from serpette.errors import ModelError
from serpette.records import Preprocessing, Provenance

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def pick_device(name: str | None) -> torch.device:
    """The device called `name`; `None` or "auto" takes a CUDA GPU, then Apple's, then the CPU.

    Raises:
        ModelError: there is no such device here.
    """
    if name in (None, "auto"):
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(str(name))
        torch.zeros(1, device=device).item()  # also refuses "meta", which holds no numbers
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"device {name!r} is not usable here ({reason}); try --device cpu.") from error
    return device


def pick_dtype(name: str) -> torch.dtype:
    """The precision called `name`.

    Raises:
        ModelError: not one of fp32, bf16, fp16.
    """
    try:
        return DTYPES[name]
    except KeyError:
        raise ModelError(f"unknown dtype {name!r}; expected one of {', '.join(DTYPES)}.") from None


def dtype_name(dtype: torch.dtype) -> str:
    """What `pick_dtype` calls a precision; torch's name for one that it does not pick."""
    return next((name for name, value in DTYPES.items() if value == dtype), str(dtype))


def placement(model: nn.Module) -> tuple[torch.device, torch.dtype]:
    """Device and precision of a model, read from its first floating-point parameter."""
    parameter = next(p for p in model.parameters() if p.is_floating_point())
    return parameter.device, parameter.dtype


def to_input(
    pixels: UInt8[Tensor, "B 3 S S"], preprocessing: Preprocessing, device: torch.device, dtype: torch.dtype
) -> Float[Tensor, "B 3 S S"]:
    """Normalise decoded pixels on the device: (pixels / 255 - mean) / std, in fp32, then cast."""
    x = pixels.to(device, non_blocking=True).float().div_(255)
    mean = torch.tensor(preprocessing.mean, device=device).view(3, 1, 1)
    std = torch.tensor(preprocessing.std, device=device).view(3, 1, 1)
    return x.sub_(mean).div_(std).to(dtype)


def for_each_batch(
    batches: Iterable[tuple[UInt8[Tensor, "B 3 S S"], Int64[Tensor, " B"]]],
    step: Callable[[UInt8[Tensor, "b 3 S S"], Int64[Tensor, " b"]], None],
) -> None:
    """Call `step` on every batch; where memory runs out, halve the batch, and keep the smaller size from there on.

    `step` must keep nothing of a call that raised. A batch of one image that does not fit raises the original error.
    """
    size: int | None = None
    for pixels, labels in batches:
        start = 0
        while start < len(pixels):
            stop = len(pixels) if size is None else min(start + size, len(pixels))
            try:
                step(pixels[start:stop], labels[start:stop])
            except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error) or stop - start == 1:
                    raise
                size = (stop - start) // 2
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
            else:
                start = stop


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out: in Python, in an allocator of torch, in cuBLAS or cuDNN."""
    said = ("can't allocate memory", "out of memory", "ALLOC_FAILED")
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(words in str(error) for words in said)


def attention_backend() -> str:
    """The scaled-dot-product-attention kernels that torch may choose from, in the order of their names."""
    kernels: Any = torch.backends.cuda  # its functions carry no types
    enabled = {
        "cudnn": kernels.cudnn_sdp_enabled(),
        "flash": kernels.flash_sdp_enabled(),
        "math": kernels.math_sdp_enabled(),
        "mem_efficient": kernels.mem_efficient_sdp_enabled(),
    }
    return "sdpa:" + "+".join(name for name, on in enabled.items() if on)


def device_name(device: torch.device) -> str:
    """The name that a reader can look up: the GPU's, or the processor's with its threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{_processor()}, {torch.get_num_threads()} threads"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def provenance(model: nn.Module, seed: int) -> Provenance:
    """What software, hardware and settings a result of `model` came from, as of now."""
    device, dtype = placement(model)
    epoch = os.environ.get("SOURCE_DATE_EPOCH")  # reproducible builds: a fixed time stamp when it is set
    now = datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)
    return Provenance(
        serpette=version("serpette"),
        python=platform.python_version(),
        torch=torch.__version__,
        timm=version("timm"),
        transformers=version("transformers"),
        device=device_name(device),
        dtype=dtype_name(dtype),
        attention_backend=attention_backend(),
        threads=torch.get_num_threads(),
        seed=seed,
        created=now.isoformat(timespec="seconds"),
    )
