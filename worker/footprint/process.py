"""Footprints for processes that load no torch: counted by `count.py` in a short process of its own.

count_footprints([FootprintQuestion(…), …]) ─► python -m worker.footprint.process ─► a Footprint or a fault each
"""

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from optim.catalog import Scalar
from worker.records.footprint import Footprint

TIMEOUT_SECONDS = 600.0
"""A model of 8 G parameters takes some seconds; a machine under load takes a while to import torch."""


class FootprintQuestion(BaseModel):
    """A question about memory."""

    model_config = ConfigDict(frozen=True)

    model: str
    optimizers: tuple[str, ...] | None = None
    """None: all of the catalog."""
    options: dict[str, Scalar] = {}
    """Given to every optimizer that has such an option."""
    rules: tuple[str, ...] = ()
    """Given to every optimizer that has a block plan."""
    ranks: int = 1
    """Processes that share the model."""
    precision: Literal["fp32", "bf16"] | None = None
    """The precision of passes and steps, which are counted if it is given."""
    sequence_length_tokens: int | None = None
    """The sequence length of the passes; None: as long as the model's positions."""
    with_blocks: bool = False
    """Whether the answer lists the blocks of each block plan."""


class FootprintAnswer(BaseModel):
    """A footprint, or why there is none."""

    footprint: Footprint | None = None
    fault: str | None = None


def count_footprints(questions: Sequence[FootprintQuestion]) -> list[FootprintAnswer]:
    """Return an answer for each; raises `OSError` or `subprocess.SubprocessError` if the process itself fails."""
    command = [sys.executable, "-m", "worker.footprint.process"]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    request = json.dumps([question.model_dump() for question in questions])
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        atexit.register(process.kill)  # it must not outlive who asked
        try:
            output, _ = process.communicate(request, timeout=TIMEOUT_SECONDS)
        finally:
            process.kill()
            atexit.unregister(process.kill)
    if process.returncode != 0:
        raise subprocess.SubprocessError(f"its process ended with {process.returncode}")
    try:
        return [FootprintAnswer.model_validate(fields) for fields in json.loads(output.strip().splitlines()[-1])]
    except (ValueError, IndexError, ValidationError) as error:
        raise subprocess.SubprocessError("its process gave no answer") from error


def main() -> None:
    """Count the questions on standard input; the last line of standard output has the answers."""
    wanted = [FootprintQuestion.model_validate(fields) for fields in json.load(sys.stdin)]
    try:
        answers = [answer(question) for question in wanted]
    except ModuleNotFoundError as error:
        way_out = "in the project's folder run: pip install '.[worker]'"
        fault = f"counting needs {error.name}, which this host has not; {way_out}"
        answers = [FootprintAnswer(fault=fault)] * len(wanted)
    print(json.dumps([counted.model_dump(mode="json") for counted in answers]))


def answer(wanted: FootprintQuestion) -> FootprintAnswer:
    """Count it in this process. Raises `ModuleNotFoundError` if torch is not installed."""
    from worker.footprint.count import footprint  # brings torch, which the caller never loads

    try:
        return FootprintAnswer(footprint=footprint(**dict(wanted)))
    except Exception as error:  # noqa: BLE001 - one that cannot be counted must not lose the others
        return FootprintAnswer(fault=str(error))


if __name__ == "__main__":
    main()
