"""Room for decoded images: in memory if they fit well, else in a temporary file, else nowhere."""

import math
import shutil
import tempfile
from pathlib import Path

import numpy as np
import psutil
import torch
from jaxtyping import UInt8
from torch import Tensor

_OF_MEMORY = 0.25  # the model needs the rest
_OF_DISK = 0.5


def allocate(n: int, size: int) -> UInt8[Tensor, "n 3 S S"] | None:
    """An uninitialised tensor for `n` images of `size` pixels a side, or None if there is no room for it.

    The temporary file has no name and disappears with the tensor.
    """
    shape = (n, 3, size, size)
    needed = math.prod(shape)
    if needed <= _OF_MEMORY * _free_memory():
        return torch.empty(shape, dtype=torch.uint8)
    if needed <= _OF_DISK * shutil.disk_usage(tempfile.gettempdir()).free:
        with tempfile.TemporaryFile() as file:  # the mapping outlives the handle
            return torch.from_numpy(np.memmap(file, dtype=np.uint8, mode="w+", shape=shape))
    return None


def _free_memory() -> float:
    """Bytes that can be used: of the machine, or of the container if that has less."""
    return min(float(psutil.virtual_memory().available), _container_memory(Path("/sys/fs/cgroup")))


def _container_memory(group: Path) -> float:
    try:
        limit, used = ((group / name).read_text() for name in ("memory.max", "memory.current"))
        return math.inf if limit.strip() == "max" else float(limit) - float(used)
    except (OSError, ValueError):
        return math.inf
