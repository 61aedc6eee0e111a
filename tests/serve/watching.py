"""A worker watched from outside: what it has used of memory and of the processors."""

import os
import re
from pathlib import Path

MB = 2**20


class Watch:
    """From now on."""

    def __init__(self, process: int) -> None:
        self._process = process
        Path(f"/proc/{process}/clear_refs").write_text("5")  # the peak is forgotten: proc(5)
        self._resident_bytes, self._cpu_s = self._memory("VmRSS"), self._cpu()

    def peak_mb(self) -> float:
        """The most memory it has had since, over what it had."""
        return (self._memory("VmHWM") - self._resident_bytes) / MB

    def grown_mb(self) -> float:
        return (self._memory("VmRSS") - self._resident_bytes) / MB

    def cpu_s(self) -> float:
        return self._cpu() - self._cpu_s

    def _memory(self, name: str) -> int:
        status = Path(f"/proc/{self._process}/status").read_text()
        return 1024 * int(re.findall(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)[0])

    def _cpu(self) -> float:
        fields = Path(f"/proc/{self._process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
