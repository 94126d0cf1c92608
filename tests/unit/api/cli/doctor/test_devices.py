"""What the doctor says of GPUs: this machine as it is, and stand-ins for drivers and builds of PyTorch that fail."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from api.cli.doctor.check import Check
from api.cli.doctor.devices import NvidiaDriver, TorchBuild, gpu, nvml_check, pci_devices

DRIVER = NvidiaDriver(version="560.35.03", cuda=(12, 6), devices=("NVIDIA H100 (80 GiB)",), notes=())
BUILD = TorchBuild(version="2.13.0", cuda=(12, 6), visible=None, error=None, devices=("NVIDIA H100",))


class Library:
    """NVML over one device, or one error at its beginning; errors are NVML's own."""

    NVMLError = pynvml.NVMLError

    def __init__(self, fault: int | None = None, *, parts: bool = False, devices: int = 1, pid: int = 0) -> None:
        self.fault, self.parts, self.devices, self.pid = fault, parts, devices, pid or os.getpid()

    def nvmlInit(self) -> None:  # noqa: N802
        if self.fault is not None:
            raise pynvml.NVMLError(self.fault)

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self.devices

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:  # noqa: N802
        return 12060

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"560.35.03"

    def nvmlDeviceGetName(self, _handle: int) -> str:  # noqa: N802
        return "NVIDIA H100"

    def nvmlDeviceGetMemoryInfo(self, _handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(total=80 * 2**30)

    def nvmlDeviceGetMigMode(self, _handle: int) -> list[int]:  # noqa: N802
        if not self.parts:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [1, 1]

    def nvmlDeviceGetTotalEnergyConsumption(self, _handle: int) -> int:  # noqa: N802
        return 5

    def nvmlDeviceGetComputeRunningProcesses(self, _handle: int) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(pid=self.pid)]


def looked(library: Library, *, pci: bool = True, files: bool = True) -> Check:
    return nvml_check(
        library, pci=["NVIDIA device at 0000:01:00.0"] if pci else [], device_files=["/dev/nvidia0"] if files else []
    )


def test_a_driver_that_works():
    check = looked(Library())
    assert (check.ok, check.way_out) == (True, "")
    assert check.found == "driver 560.35.03, CUDA up to 12.6: NVIDIA H100 (80 GiB)"


@pytest.mark.parametrize(
    ("library", "words"),
    [
        (Library(parts=True), "in parts (MIG)"),
        pytest.param(
            Library(pid=2**30),
            "in a container",
            marks=pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc"),
        ),
    ],
)
def test_what_a_driver_will_not_tell_is_no_fault(library: Library, words: str):
    check = looked(library)
    assert check.ok
    assert words in check.found


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "modprobe nvidia"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "restart the machine"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "/dev/nvidia*"),
        (pynvml.NVML_ERROR_GPU_IS_LOST, "Xid"),
    ],
)
def test_a_driver_that_does_not_work_says_what_mends_it(fault: int, words: str):
    check = looked(Library(fault))
    assert not check.ok
    assert words in check.way_out


@pytest.mark.parametrize(
    ("pci", "files", "ok", "words"),
    [
        (False, False, True, ""),
        (True, False, False, "install NVIDIA's driver"),
        (True, True, True, "NVIDIA_DRIVER_CAPABILITIES=compute,utility"),
        (False, True, True, "NVIDIA_DRIVER_CAPABILITIES=compute,utility"),
    ],
)
def test_without_its_library_it_depends_on_what_else_is_there(pci: bool, files: bool, ok: bool, words: str):
    check = looked(Library(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND), pci=pci, files=files)
    assert check.ok is ok
    assert words in check.way_out
    assert bool(check.way_out) is bool(words)


def test_a_driver_without_devices_is_broken():
    assert not looked(Library(devices=0)).ok


def test_devices_on_the_bus_are_read_as_linux_tells_of_them(tmp_path: Path):
    for place, maker, kind in (("0000:01:00.0", "0x10de", "0x030200"), ("0000:02:00.0", "0x10de", "0x020000"),
                               ("0000:03:00.0", "0x8086", "0x030000")):  # fmt: skip
        (tmp_path / place).mkdir()
        (tmp_path / place / "vendor").write_text(f"{maker}\n")
        (tmp_path / place / "class").write_text(f"{kind}\n")
    (tmp_path / "empty").mkdir()
    assert pci_devices(tmp_path) == ("NVIDIA device at 0000:01:00.0",)
    assert pci_devices(tmp_path / "nothing") == ()


@pytest.mark.parametrize(
    ("build", "driver", "words"),
    [
        (replace(BUILD, cuda=None, devices=()), DRIVER, "install a CUDA build"),
        (replace(BUILD, visible="", devices=()), DRIVER, "unset CUDA_VISIBLE_DEVICES"),
        (replace(BUILD, cuda=(13, 0), devices=()), DRIVER, "install a newer driver, or a PyTorch for CUDA 12"),
        (replace(BUILD, error="CUDA error: no kernel image is available"), DRIVER, "built for this GPU"),
        (replace(BUILD, devices=(), error="CUDA unknown error"), DRIVER, "dmesg"),
    ],
)
def test_a_pytorch_that_cannot_use_the_device_says_why(build: TorchBuild, driver: NvidiaDriver, words: str):
    check = gpu(build, driver)
    assert not check.ok
    assert words in check.way_out


@pytest.mark.parametrize("driver", [None, replace(DRIVER, devices=())])
def test_without_a_device_the_cpu_is_used(driver: NvidiaDriver | None):
    assert gpu(replace(BUILD, devices=()), driver).ok
    assert gpu(BUILD, DRIVER) == Check(name="GPU", ok=True, found="NVIDIA H100: calculate")
