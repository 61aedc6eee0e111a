"""What NVIDIA's cards say of themselves: names, how busy they are, what processes hold, watts."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

MIB = 2**20


@dataclass(frozen=True)
class Gpu:
    name: str
    memory_mb: float
    driver: str


@dataclass(frozen=True)
class GpuReading:
    """Of all cards together: the driver counts per card how busy it is, and per process what it holds."""

    percent: float  # mean over cards
    memory_mb: float  # held by the processes asked for; of everybody where the driver does not tell them apart
    watts: float | None


class Gpus:
    """The driver's library, opened once: `nvidia-smi` would cost a tenth of a second at every reading."""

    def __init__(self) -> None:
        import pynvml

        self._nvml = pynvml
        pynvml.nvmlInit()
        self._handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]

    def cards(self) -> tuple[Gpu, ...]:
        driver = str(self._nvml.nvmlSystemGetDriverVersion())
        return tuple(
            Gpu(str(self._nvml.nvmlDeviceGetName(h)), self._nvml.nvmlDeviceGetMemoryInfo(h).total / MIB, driver)
            for h in self._handles
        )

    def read(self, processes: Iterable[int]) -> GpuReading:
        ours = set(processes)
        percent = sum(self._nvml.nvmlDeviceGetUtilizationRates(h).gpu for h in self._handles) / len(self._handles)
        watts = None
        with suppress(self._nvml.NVMLError):  # not every card tells
            watts = sum(self._nvml.nvmlDeviceGetPowerUsage(h) for h in self._handles) / 1000
        return GpuReading(float(percent), sum(self._held(h, ours) for h in self._handles) / MIB, watts)

    def _held(self, handle: object, ours: set[int]) -> float:
        """In a container the driver sees the host's process numbers and not ours: then all that is used counts."""
        running = self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        held = [process.usedGpuMemory for process in running if process.pid in ours]
        if held and None not in held:
            return float(sum(held))
        return float(self._nvml.nvmlDeviceGetMemoryInfo(handle).used)


def open_gpus() -> Gpus | None:
    try:
        gpus = Gpus()
    except Exception:  # no library, no driver, no card: each raises a class of its own, and all mean the same
        return None
    return gpus if gpus.cards() else None
