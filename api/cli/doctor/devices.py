"""What the doctor sees of GPUs: NVIDIA's driver through its management library, and whether PyTorch can use them."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from api.cli.doctor.check import Check, fails, notice, passes
from orchestrator.settings import Settings
from worker.cpus import usable_cpus
from worker.words import pluralize

GIB = 2**30
NVIDIA = "0x10de"
"""NVIDIA's number among the makers of PCI devices."""
GET_STARTED = "pytorch.org/get-started"


@dataclass(frozen=True, kw_only=True)
class NvidiaDriver:
    """What NVML tells: the driver, and its devices."""

    version: str
    cuda: tuple[int, int]
    """The newest CUDA that this driver can run."""
    devices: tuple[str, ...]
    notes: tuple[str, ...]
    """What cannot be measured here."""


@dataclass(frozen=True, kw_only=True)
class TorchBuild:
    """What PyTorch tells of itself."""

    version: str
    cuda: tuple[int, int] | None
    """The CUDA that it was built with; None for a CPU build."""
    visible: str | None
    """CUDA_VISIBLE_DEVICES."""
    error: str | None
    """What a calculation on each device said; None where all did well, or where there is none."""
    devices: tuple[str, ...]


def nvml(_settings: Settings) -> Iterator[Check]:
    """Whether NVIDIA's driver answers, and what it will not tell of runs."""
    import pynvml  # loads NVML

    yield nvml_check(pynvml)


def nvml_check(library: Any, *, pci: Sequence[str] | None = None, device_files: Sequence[str] | None = None) -> Check:
    """The check on `library`: `pynvml`, or what stands in for it, with what this machine has beside it."""
    name = "NVML"
    pci = pci_devices() if pci is None else pci
    files = [str(path) for path in Path("/dev").glob("nvidia*")] if device_files is None else device_files
    try:
        found = driver(library)
    except library.NVMLError as error:
        return _nvml_failure(name, error, pci, files)
    devices = ", ".join(found.devices) or "no device"
    text = f"driver {found.version}, CUDA up to {_version_text(found.cuda)}: {devices}"
    if not found.devices:
        return fails(name, text, "let this user or container have the devices: /dev/nvidia*, `--gpus all`")
    if found.notes:
        return notice(name, f"{text}; {'; '.join(found.notes)}", "nothing to do: runs report what they measured")
    return passes(name, text)


def driver(library: Any) -> NvidiaDriver:
    """The driver and its devices; raises NVML's error."""
    library.nvmlInit()
    handles = [library.nvmlDeviceGetHandleByIndex(index) for index in range(library.nvmlDeviceGetCount())]
    cuda = int(library.nvmlSystemGetCudaDriverVersion_v2())
    notes = [note for handle in handles for note in _notes(library, handle)]
    return NvidiaDriver(
        version=_text(library.nvmlSystemGetDriverVersion()),
        cuda=(cuda // 1000, cuda % 1000 // 10),
        devices=tuple(_device_text(library, handle) for handle in handles),
        notes=tuple(dict.fromkeys(notes)),
    )


def _device_text(library: Any, handle: Any) -> str:
    name = _text(library.nvmlDeviceGetName(handle))
    try:
        return f"{name} ({library.nvmlDeviceGetMemoryInfo(handle).total / GIB:.0f} GiB)"
    except library.NVMLError:  # hidden behind the parts of a GPU
        return name


def _notes(library: Any, handle: Any) -> Iterator[str]:
    """What runs on that device will miss."""
    if _is_partitioned(library, handle):
        yield "in parts (MIG): memory is the part's, energy is not counted"
        return
    try:
        library.nvmlDeviceGetTotalEnergyConsumption(handle)
    except library.NVMLError:
        yield "no counter of energy"
    try:
        processes = library.nvmlDeviceGetComputeRunningProcesses(handle)
    except library.NVMLError:
        yield "processes are not listed: their memory is PyTorch's figure alone"
        return
    if any(not Path(f"/proc/{process.pid}").exists() for process in processes) and Path("/proc").exists():
        yield "in a container with the host's process ids: a run's memory is known only if it has its device alone"


def _is_partitioned(library: Any, handle: Any) -> bool:
    try:
        current, _pending = library.nvmlDeviceGetMigMode(handle)
    except library.NVMLError:
        return False
    return bool(current)


def _nvml_failure(name: str, error: Exception, pci: Sequence[str], files: Sequence[str]) -> Check:
    """Why NVML does not work, by its own code and by what else is there."""
    kind = type(error).__name__.removeprefix("NVMLError_")
    found = f"{error}" if not pci else f"{', '.join(pci)}; {error}"
    ways = {
        "DriverNotLoaded": "load the driver (`modprobe nvidia`), or restart the machine",
        "LibRmVersionMismatch": "the driver was upgraded while it was loaded: restart the machine",
        "NoPermission": "let this user open /dev/nvidia*: groups video or render, or the container's devices",
        "GpuIsLost": "the GPU has fallen off its bus: restart the machine, and look at `dmesg` for Xid",
    }
    if kind in ways and (pci or files or kind != "DriverNotLoaded"):
        return fails(name, found, ways[kind])
    if files:
        way = (
            "give the container the library: NVIDIA_DRIVER_CAPABILITIES=compute,utility and NVIDIA's container toolkit"
        )
        return notice(name, f"{found}: energy and memory of processes will not be measured", way)
    if pci:
        return fails(name, found, "install NVIDIA's driver; in a container: its container toolkit, and `--gpus all`")
    return passes(name, "no NVIDIA GPU on this machine; runs use the CPU")


def pci_devices(folder: Path = Path("/sys/bus/pci/devices")) -> tuple[str, ...]:
    """NVIDIA's display devices and accelerators, by their place on the bus; none where nothing says."""
    found = []
    for device in sorted(folder.glob("*")):
        try:
            maker, kind = (device / "vendor").read_text().strip(), (device / "class").read_text().strip()
        except OSError:
            continue
        if maker == NVIDIA and kind.startswith("0x03"):
            found.append(f"NVIDIA device at {device.name}")
    return tuple(found)


def torch(_settings: Settings) -> Iterator[Check]:
    """PyTorch, and whether it can use what the driver has."""
    try:
        build = torch_build()
    except (ImportError, OSError) as error:  # OSError: a shared library of a broken installation
        yield fails("PyTorch", f"cannot be imported: {error}", "make install")
        return
    kind = "a CPU build" if build.cuda is None else f"built with CUDA {_version_text(build.cuda)}"
    yield passes("PyTorch", f"{build.version}, {kind}, {pluralize(usable_cpus(), 'usable CPU')}")
    import pynvml  # loads NVML

    try:
        found = driver(pynvml)
    except pynvml.NVMLError:
        found = None
    yield gpu(build, found)


def torch_build() -> TorchBuild:
    """PyTorch's build; raises what its import raises."""
    import torch as pytorch  # loads torch

    cuda = pytorch.version.cuda
    devices: tuple[str, ...] = ()
    error = None
    try:
        if pytorch.cuda.is_available():
            devices = tuple(pytorch.cuda.get_device_name(index) for index in range(pytorch.cuda.device_count()))
            for index in range(len(devices)):
                eight = pytorch.ones(8, 8, device=f"cuda:{index}")
                if (eight @ eight).sum().item() != 512.0:
                    error = f"device {index} cannot multiply"
        elif cuda is not None:
            pytorch.cuda.init()  # type: ignore[no-untyped-call]  # torch's own
    except Exception as raised:  # noqa: BLE001 - PyTorch has many classes for devices that fail
        error = str(raised).splitlines()[0]
    return TorchBuild(
        version=pytorch.__version__,
        cuda=_version(cuda) if cuda else None,
        visible=os.environ.get("CUDA_VISIBLE_DEVICES"),
        error=error,
        devices=devices,
    )


def gpu(build: TorchBuild, found: NvidiaDriver | None) -> Check:
    """Whether this build of PyTorch can use the driver's devices, and if not, why."""
    name = "GPU"
    if build.devices and build.error is None:
        return passes(name, f"{', '.join(build.devices)}: calculate")
    if found is None or not found.devices:
        return passes(name, "none that PyTorch could use; runs use the CPU")
    there = ", ".join(found.devices)
    if build.cuda is None:
        return fails(name, f"{there}, but this PyTorch is a CPU build", f"install a CUDA build: {GET_STARTED}")
    if build.visible is not None and not build.devices:
        return fails(name, f"{there}, but CUDA_VISIBLE_DEVICES={build.visible!r}", "unset CUDA_VISIBLE_DEVICES")
    if found.cuda[0] < build.cuda[0]:
        newest = _version_text(found.cuda)
        old = f"{there}: driver {found.version} runs CUDA up to {newest}, PyTorch needs {build.cuda[0]}"
        return fails(name, old, f"install a newer driver, or a PyTorch for CUDA {found.cuda[0]}: {GET_STARTED}")
    if build.error is not None and "kernel image" in build.error:
        return fails(name, f"{there}: {build.error}", f"install a PyTorch that is built for this GPU: {GET_STARTED}")
    way = "see that nothing else occupies the device (`nvidia-smi`), and what `dmesg` says of it"
    return fails(name, f"{there}: {build.error or 'PyTorch sees none of them'}", way)


def _version(text: str) -> tuple[int, int]:
    major, minor = [*text.split("."), "0"][:2]
    return int(major), int(minor)


def _version_text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _text(found: Any) -> str:
    return found.decode() if isinstance(found, bytes) else str(found)
