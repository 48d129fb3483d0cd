"""Joules per image, read from a counter in the hardware; never estimated.

    NvmlSensor       an NVIDIA GPU: its energy counter, else its power integrated over time
    RaplSensor       the processor packages, through Linux powercap

A window lasts at least two seconds and many ticks of the counter. What cannot be measured is `None` with the reason,
never 0.
"""

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

import torch

POWERCAP = Path("/sys/class/powercap")
TICKS = 20  # per window: the first and the last tick are cut off, so the error stays below a tenth
PATIENCE = 2.0  # seconds to wait for a counter to move


class NotMeasurableError(Exception):
    """The reason why a sensor has no number to give; it ends up in the note beside an energy of `None`."""


@runtime_checkable
class Sensor(AbstractContextManager["Sensor"], Protocol):
    """Reads the energy that a device has used; open it with `with` before reading.

    Both opening and reading raise `NotMeasurableError` with the reason where there is nothing to read.
    """

    @property
    def how(self) -> str:
        """What is read, for the note beside the number."""

    def joules(self) -> float:
        """Joules used since some fixed moment; grows in ticks."""


def measure_energy(
    run: Callable[[], object],
    images_per_run: int,
    sensor: Sensor,
    *,
    min_seconds: float = 2.0,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float | None, str]:
    """Joules per image of `run`, as the difference of an energy counter over a window of many runs.

    Args:
        run: one batch, complete when it returns: it synchronises the device.
        images_per_run: images in that batch.
        sensor: reads the energy.
        min_seconds: the shortest window; a counter that ticks slowly gets a longer one.
        clock: reads the time in seconds.

    Returns:
        Joules per image with a note on how they were read, or `None` with the reason.
    """
    try:
        with sensor:
            run()
            tick = _tick_seconds(sensor, clock)  # returns on a tick, so that the window starts on one
            wanted = max(min_seconds, TICKS * tick)
            runs, start, before = 0, clock(), sensor.joules()
            while (elapsed := clock() - start) < wanted:
                run()
                runs += 1
            used = sensor.joules() - before
    except NotMeasurableError as reason:
        return None, f"not measured: {reason}"
    if used <= 0:
        return None, f"not measured: the counter did not move in {elapsed:.1f} s"
    return used / (runs * images_per_run), f"{sensor.how}, over {elapsed:.1f} s"


def sensor_for(device: torch.device) -> Sensor | str:
    """The sensor that watches `device`, or the reason why there is none."""
    if device.type == "cpu":
        return RaplSensor()
    if device.type != "cuda":
        return f"not measured: no energy counter is known for {device.type}"
    try:
        import pynvml
    except ImportError:
        return "not measured: needs pynvml; install serpette[nvml]"
    ordinal = torch.cuda.current_device() if device.index is None else device.index
    uuid = str(torch.cuda.get_device_properties(ordinal).uuid)
    return NvmlSensor(pynvml, ordinal, os.environ.get("CUDA_VISIBLE_DEVICES"), uuid)


def _tick_seconds(sensor: Sensor, clock: Callable[[], float]) -> float:
    """Seconds between two ticks of the counter; returns right after a tick."""

    def next_tick() -> float:
        before, start = sensor.joules(), clock()
        while sensor.joules() == before:
            if clock() - start > PATIENCE:
                raise NotMeasurableError(f"the counter did not move in {PATIENCE:.0f} s")
        return clock()

    first = next_tick()
    return next_tick() - first


class RaplSensor:
    """The energy counters of all processor packages, from the powercap tree of Linux."""

    how = "RAPL, all processor packages with whatever else ran on them"

    def __init__(self, root: Path = POWERCAP) -> None:
        self.root = root
        self.packages: list[_Package] = []

    def __enter__(self) -> "RaplSensor":
        # `intel-rapl:0` is a package, `intel-rapl:0:0` a part of it; `intel-rapl-mmio:0` repeats the package.
        zones = [zone for zone in sorted(self.root.glob("intel-rapl:*")) if zone.name.count(":") == 1]
        packages = [zone for zone in zones if _read(zone / "name").startswith("package")]
        if not packages:
            raise NotMeasurableError(f"no RAPL package under {self.root}")
        self.packages = [_Package(zone) for zone in packages]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.packages = []

    def joules(self) -> float:
        """Joules of all packages since the sensor was opened.

        Raises:
            NotMeasurableError: a counter cannot be read.
        """
        return sum(package.microjoules() for package in self.packages) / 1e6


class _Package:
    """One RAPL counter, unrolled: it starts again from 0 when it passes its range."""

    def __init__(self, zone: Path) -> None:
        self.file = zone / "energy_uj"
        self.range = int(_read(zone / "max_energy_range_uj"))
        self.last = int(_read(self.file))
        self.total = 0

    def microjoules(self) -> int:
        now = int(_read(self.file))
        self.total += now - self.last if now >= self.last else now + self.range - self.last
        self.last = now
        return self.total


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError as error:
        raise NotMeasurableError(f"{file} cannot be read ({error.strerror})") from error


class NvmlSensor:
    """The board of one NVIDIA GPU.

    Args:
        nvml: the `pynvml` module, or something like it.
        ordinal: the GPU's number in CUDA.
        visible: the value of CUDA_VISIBLE_DEVICES, `None` where it is not set.
        cuda_uuid: the UUID that CUDA states for this GPU, where it is known.
        period: seconds between two readings of the power, on a GPU that has no energy counter.
    """

    def __init__(
        self, nvml: Any, ordinal: int, visible: str | None, cuda_uuid: str | None = None, period: float = 0.02
    ) -> None:
        self.nvml = nvml
        self.where = (ordinal, visible, cuda_uuid)
        self.period = period
        self.note = ""
        self.handle: Any = None
        self.power: _IntegratedPower | None = None
        self.opened = ExitStack()

    @property
    def how(self) -> str:
        """Counter or integrated power, and whether the board is shared by MIG slices."""
        return ("NVML power, integrated" if self.power else "NVML energy counter") + self.note

    def __enter__(self) -> "NvmlSensor":
        with self._reasons(), ExitStack() as stack:
            self.nvml.nvmlInit()
            stack.callback(self.nvml.nvmlShutdown)
            self.handle, self.note = find_gpu(self.nvml, *self.where)
            self.power = None if self._has_counter() else _IntegratedPower(self._watts, self.period)
            if self.power:
                stack.callback(self.power.stop)
            self.opened = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.opened.close()

    def joules(self) -> float:
        """Joules of the whole board.

        Raises:
            NotMeasurableError: NVML cannot read it.
        """
        if self.power:
            return self.power.joules
        with self._reasons():
            return float(self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle)) / 1e3  # mJ

    def _has_counter(self) -> bool:
        try:
            self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle)
        except self.nvml.NVMLError:
            self.nvml.nvmlDeviceGetPowerUsage(self.handle)  # without power either, the error is raised here
            return False
        return True

    @contextmanager
    def _reasons(self) -> Iterator[None]:
        try:
            yield
        except self.nvml.NVMLError as error:
            raise NotMeasurableError(f"NVML: {error}") from error

    def _watts(self) -> float:
        try:
            return float(self.nvml.nvmlDeviceGetPowerUsage(self.handle)) / 1e3  # mW
        except self.nvml.NVMLError:
            return math.nan


class _IntegratedPower:
    """Power summed over time (trapezoids) by a thread; a failed reading leaves a gap that the next one closes."""

    def __init__(self, watts: Callable[[], float], period: float) -> None:
        self.joules = 0.0
        self._watts = watts
        self._period = period
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join()

    def _sample(self) -> None:
        before, power = time.perf_counter(), self._watts()
        while not self._done.wait(self._period):
            now, latest = time.perf_counter(), self._watts()
            if math.isnan(latest):
                continue
            self.joules += (now - before) * (latest if math.isnan(power) else (power + latest) / 2)
            before, power = now, latest


def find_gpu(nvml: Any, ordinal: int, visible: str | None, cuda_uuid: str | None = None) -> tuple[Any, str]:
    """The NVML handle of a CUDA device, with a note if its board is shared.

    NVML counts all GPUs in the order of the bus; CUDA counts those that CUDA_VISIBLE_DEVICES names, in an order of its
    own. The UUID is the same in both, so it decides where CUDA states it.

    Args:
        nvml: the `pynvml` module, or something like it, after `nvmlInit`.
        ordinal: the GPU's number in CUDA.
        visible: the value of CUDA_VISIBLE_DEVICES, `None` where it is not set.
        cuda_uuid: the UUID that CUDA states, with or without its prefix.

    Raises:
        NotMeasurableError: CUDA sees no such GPU, or NVML does not know it.
    """
    entry = _visible_entry(ordinal, visible)
    if entry.startswith("MIG-"):
        slice_ = nvml.nvmlDeviceGetHandleByUUID(entry)
        return nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(slice_), _MIG_NOTE
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    uuids = [_text(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    wanted = f"GPU-{cuda_uuid.removeprefix('GPU-')}" if cuda_uuid else entry
    index = _index_of(wanted, uuids)
    if index is None and cuda_uuid:  # inside a MIG slice CUDA states the UUID of the slice
        index = _index_of(entry, uuids)
    if index is None:
        raise NotMeasurableError(f"NVML knows no GPU {wanted!r} (it has {len(uuids)})")
    return handles[index], _MIG_NOTE if _is_sliced(nvml, handles[index]) else ""


_MIG_NOTE = " of the whole board, which MIG divides: other slices are counted too"


def _visible_entry(ordinal: int, visible: str | None) -> str:
    if visible is None:
        return str(ordinal)
    entries: Sequence[str] = [entry.strip() for entry in visible.split(",")]
    usable = next((i for i, entry in enumerate(entries) if entry in ("", "-1")), len(entries))  # CUDA stops there too
    if ordinal >= usable:
        raise NotMeasurableError(f"CUDA_VISIBLE_DEVICES={visible!r} shows no GPU {ordinal}")
    return entries[ordinal]


def _index_of(entry: str, uuids: Sequence[str]) -> int | None:
    if entry.isdigit():
        return int(entry) if int(entry) < len(uuids) else None
    return next((i for i, uuid in enumerate(uuids) if uuid.startswith(entry)), None)  # UUIDs may be shortened


def _is_sliced(nvml: Any, handle: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError:
        return False


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
