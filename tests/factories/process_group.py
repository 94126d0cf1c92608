"""Process groups over gloo or NCCL, without Ray: each runs a function of the test's with its place in the group."""

import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch
import torch.distributed as dist

from tests.factories.fork_server import fork_server
from worker.distributed.mailbox import RankMailbox
from worker.distributed.process_group import ProcessGroup

Part = Callable[..., object]
"""Called in each process with its `ProcessGroup` and the other arguments."""


def started(part: Part, folder: Path, *arguments: object, size: int = 2, backend: str = "gloo") -> list[BaseProcess]:
    """Start the processes, over NCCL with a GPU each; `folder` is the group's own and new."""
    folder.mkdir(parents=True)
    context = fork_server()
    processes: list[BaseProcess] = [
        context.Process(target=_join, args=(part, rank, size, backend, str(folder), arguments)) for rank in range(size)
    ]
    for process in processes:
        process.start()
    return processes


def exit_codes(processes: list[BaseProcess], patience_seconds: float = 240.0) -> list[int | None]:
    """Wait for all of them, and end what does not come to an end."""
    deadline = time.monotonic() + patience_seconds
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
    return [process.exitcode for process in processes]


def _join(part: Part, rank: int, size: int, backend: str, folder: str, arguments: tuple[object, ...]) -> None:
    local_gpu = rank if backend == "nccl" else 0
    if backend == "nccl":
        torch.cuda.set_device(local_gpu)
    dist.init_process_group(backend, init_method=f"file://{folder}/meeting", rank=rank, world_size=size)
    part(ProcessGroup(rank=rank, size=size, local_gpu=local_gpu, mailbox=RankMailbox(Path(folder))), *arguments)
    dist.destroy_process_group()
