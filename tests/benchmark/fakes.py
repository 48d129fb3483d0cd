"""Stand-ins for hardware: a clock, a device that works late, NVML, a powercap tree."""

# ruff: noqa: N802 (the names are those of NVML)

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn


class Clock:
    """Time that passes only when something lets it, and by `tick` at every look."""

    def __init__(self, tick: float = 0.0) -> None:
        self.now = 0.0
        self.tick = tick

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


class AsynchronousDevice:
    """Queues work at once and does it, in fake time, when somebody waits for it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.queued = 0.0
        self.log: list[str] = []

    def synchronise(self) -> None:
        self.clock.now += self.queued
        self.queued = 0.0
        self.log.append("wait")


class Worker(nn.Module):
    """A model whose forward pass costs `seconds` on a fake device; `drift` makes every pass slower than the last."""

    def __init__(self, device: AsynchronousDevice, seconds: float, name: str = "", limit: float = math.inf) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.device = device
        self.seconds = seconds
        self.name = name
        self.limit = limit

    def forward(self, images: Tensor) -> Tensor:
        if len(images) > self.limit:
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.device.queued += self.seconds
        self.device.log.append(self.name)
        return images


class SteppedSensor:
    """A counter that shows `watts` x time, but only every `period` seconds of a fake clock."""

    how = "a fake counter"

    def __init__(self, clock: Clock, watts: float, period: float) -> None:
        self.clock = clock
        self.watts = watts
        self.period = period

    def __enter__(self) -> "SteppedSensor":
        return self

    def __exit__(self, *_: object) -> None: ...

    def joules(self) -> float:
        return self.watts * self.period * math.floor(self.clock() / self.period)


class FakeNvml:
    """As much of `pynvml` as serpette uses; handles are the numbers of the boards."""

    class NVMLError(Exception): ...

    def __init__(self, boards: int = 8, *, counter: bool = True, power: bool = True, mig: tuple[int, ...] = ()) -> None:
        self.uuids = [f"GPU-{i:08d}-aaaa" for i in range(boards)]
        self.counter, self.power, self.mig = counter, power, mig
        self.millijoules = 0
        self.open = 0

    def nvmlInit(self) -> None:
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.uuids)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return self.uuids[handle]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:
        if not uuid.startswith("MIG-"):
            raise self.NVMLError("not found")
        return SimpleNamespace(parent=self.mig[0])

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: Any) -> Any:
        return handle.parent

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        return [int(handle in self.mig), 0]

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        if not self.counter:
            raise self.NVMLError("Not Supported")
        self.millijoules += 500
        return self.millijoules

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        if not self.power:
            raise self.NVMLError("Not Supported")
        return 200_000


def powercap(root: Path, microjoules: dict[str, int], range_uj: int = 1_000_000) -> Path:
    """A powercap tree: zone directory -> counter; `intel-rapl:N` are packages, `intel-rapl:N:0` their cores."""
    for zone, value in microjoules.items():
        folder = root / zone
        folder.mkdir(parents=True)
        (folder / "name").write_text("core\n" if zone.count(":") == 2 else f"package-{zone[-1]}\n")
        (folder / "energy_uj").write_text(f"{value}\n")
        (folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
    return root
