"""Memory of this process on its GPU as NVIDIA's management library sees it: context and workspaces included."""

import logging
import os
import time
from typing import Any, Final

import torch

logger = logging.getLogger(__name__)

SAMPLE_SECONDS: Final = 0.25
"""At most four queries a second: one takes about a millisecond."""


class NvmlMeter:
    """Samples the process's memory; `peak_bytes` stays None, with a logged reason, where NVML cannot say."""

    def __init__(self, device: torch.device) -> None:
        self.peak_bytes: int | None = None
        self._next_sample = 0.0
        self._nvml: Any = None
        self._handle: Any = None
        try:
            import pynvml

            pynvml.nvmlInit()
            uuid = torch.cuda.get_device_properties(device).uuid
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
            self._nvml = pynvml
        except Exception as error:  # noqa: BLE001 - a missing driver library must not end a training
            logger.warning("NVML gives no process memory: %s", error)

    def sample(self) -> None:
        """Query NVML, unless it was queried a moment ago."""
        now = time.monotonic()
        if self._nvml is None or now < self._next_sample:
            return
        self._next_sample = now + SAMPLE_SECONDS
        try:
            processes = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        except self._nvml.NVMLError as error:
            logger.warning("NVML gives no process memory: %s", error)
            self._nvml = None
            return
        # In a container with its own process ids ours may not be listed: then there is no figure.
        used = [process.usedGpuMemory for process in processes if process.pid == os.getpid()]
        if used and used[0] is not None:
            self.peak_bytes = max(self.peak_bytes or 0, used[0])
