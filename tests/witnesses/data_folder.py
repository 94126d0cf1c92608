"""Made the stored data folder: `python -m tests.witnesses.data_folder FILE.tar.xz`.

Experiments of every kind and runs in every state, played through the worker protocol on a clock of its own, in a
database of the schema 0025. It is kept so that later versions prove that they still open it: make another one beside
it, and never this one anew.
"""

import math
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Any

from starlette.testclient import TestClient

from orchestrator.jobs import Lease, LeasePolicy
from orchestrator.store.queue import trials
from orchestrator.store.queue.queue import Queue
from orchestrator.sweeps.trials import planned_parameters, trial_run
from tests.factories.playing import PlayedRun
from tests.factories.stores import claim
from tests.factories.sweep import sweep_spec
from tests.witnesses.product import NOW, Clock, OpenedFolder, client_of, fixed_clock, opened
from worker.records.protocol import CheckpointNotice, Command, Failure, FailureKind, Stopped
from worker.records.result import Result, Verdict
from worker.reporting.log import log_path

DAY_SECONDS = 86_400.0
PARAMETERS = {"gpt2-nano": 104_704, "gpt2-micro": 291_456, "gpt2-tiny": 858_880, "gpt2-mini": 2_700_000}
WORKLOAD = {
    "model": "gpt2-tiny",
    "data": {"dataset": "python-stdlib", "tokenizer": "byte", "sequence_length_tokens": 128},
    "budget": {"steps": 40, "batch_sequences": 8},
    "schedule": {"warmup_steps": 4, "final_lr_ratio": 0.1},
    "evaluation": {"every_steps": 10, "sequences": 128},
}
PROBES = {"kinds": ["gradient-sparsity", "momentum-spectrum"], "every_steps": 20}


@dataclass
class SizedRun(PlayedRun):
    """A played run whose loss falls with the size of its model and with its tokens."""

    def _loss(self, step: int) -> float:
        size = PARAMETERS[self.lease.spec.workload.model]
        tokens = self.total * self.lease.spec.workload.budget.batch_sequences
        gain = 0.9 * ((size / PARAMETERS["gpt2-tiny"]) ** -0.25 - 1) + 0.3 * ((tokens / 320) ** -0.4 - 1)
        return float(super()._loss(step) + gain * math.sqrt(step / self.total))

    def _result(self) -> Result:
        size = PARAMETERS[self.lease.spec.workload.model]
        state = super()._result().optimizer_state_bytes * size // PARAMETERS["gpt2-tiny"]
        sizes = {"parameters": size, "parameter_bytes": 4 * size, "optimizer_state_bytes": state}
        return super()._result().model_copy(update={**sizes, "flops_per_token": 6.0 * size})


@dataclass
class Story:
    """Who submits, who trains, and what time it is."""

    folder: OpenedFolder
    client: TestClient
    clock: Clock
    queue: Queue

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """One request half a minute later; its answer."""
        self.clock.now += 30.0
        answer = self.client.request(method, f"/v1{path}", json=body)
        assert answer.status_code < 300, (method, path, answer.text)
        return answer.json() if answer.content else None

    def submit(self, **fields: Any) -> str:
        """Queue an experiment; its id."""
        found: str = self.ask("POST", "/experiments", fields)["experiment"]["id"]
        return found

    def leases(self, number: int | None = None) -> list[Lease]:
        """So many of the waiting runs, or all, one after the other."""
        found: list[Lease] = []
        while number is None or len(found) < number:
            self.clock.now += 1.0
            more = claim(self.queue, cpus=1_000, limit=1)
            if not more:
                break
            found += more
        return found

    def begin(self, lease: Lease) -> SizedRun:
        """The worker of a lease says hello two seconds later."""
        self.clock.now += 2.0
        return SizedRun(self.folder.services.attempts, lease)

    def finish_all(self) -> None:
        """Train whatever waits, and what follows from it, to its end."""
        while leases := self.leases(1):
            self.finish(self.begin(leases[0]))

    def finish(self, run: SizedRun) -> None:
        """The rest of a run, at its pace."""
        half = run.total // 2
        run.report(half)
        self.clock.now += 3.0
        run.report(run.total)
        self.clock.now += 2.0
        run.finish()

    def log(self, run: SizedRun) -> None:
        """What the attempt wrote."""
        path = log_path(self.folder.services.storage.runs_folder() / run.lease.run_id, run.lease.attempt)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("step 10 of 40: loss 2.9314\nstep 20 of 40: loss 2.5127\n")


def tell(story: Story) -> None:
    """Everything that happened in the folder."""
    first = _finished_comparison(story)
    _mixed_comparison(story)
    _tuned_comparison(story)
    _scaling(story)
    _sweep(story)
    _deleted(story, first)
    story.clock.now = NOW - 600.0
    _at_work(story)
    assert story.clock.now < NOW
    story.clock.now = NOW


def _finished_comparison(story: Story) -> str:
    """Three optimizers × two rates × three seeds, with probes; every run of the highest rate diverged."""
    optimizers = ("adamw", "adapm", "adapm-mini")
    one = story.submit(
        name="AdaPM and AdaPM-mini against AdamW",
        workload=WORKLOAD | {"probes": PROBES},
        candidates=[{"optimizer": name, "learning_rates": [0.002, 0.004, 1.0]} for name in optimizers],
        seeds=[1, 2, 3],
        baseline="adamw",
    )
    run = story.begin(story.leases(1)[0])
    run.report(20)
    story.log(run)
    notice = CheckpointNotice(path="checkpoints/step-20", step=20, size_bytes=10_051_584, sha256="5f" * 32, attempt=1)
    story.folder.services.attempts.checkpoint(*run.identity, notice)
    story.finish(run)
    story.finish_all()
    story.ask("PATCH", f"/experiments/{one}", {"labels": ["paper", "tiny"], "note": "The *first* look: <0.1 nats>."})
    return one


def _mixed_comparison(story: Story) -> None:
    """Runs that failed, had too little memory, were cancelled, came back, and finished."""
    story.submit(
        name="Galore, and everything that goes wrong",
        workload=WORKLOAD,
        candidates=[
            {"optimizer": "adamw", "learning_rates": [0.002]},
            {"optimizer": "galore", "learning_rates": [0.002], "options": {"rank_ratio": 0.25}, "label": "GaLore 1/4"},
        ],
        seeds=[1, 2, 3, 4, 5],
    )
    services = story.folder.services
    broken, small, cancelled, interrupted, *rest = (story.begin(lease) for lease in story.leases(6))
    broken.report(10)
    story.log(broken)
    broken.break_down("RuntimeError: the loss is not a number\n  in worker/training/loop.py, line 12")
    small.report(0)
    result = small._result().model_copy(
        update={
            "verdict": Verdict.OUT_OF_MEMORY,
            "verdict_reason": "The device has not enough memory for a micro-batch of one sequence.",
            "steps": 0, "tokens": 0, "final_val_loss": None, "final_train_loss": None, "memory_breakdown": None,
            "step_seconds_median": None, "optimizer_seconds_median": None, "tokens_per_second": None,
        }
    )  # fmt: skip
    services.attempts.finish(*small.identity, result)
    cancelled.report(12)
    story.ask("POST", f"/runs/{cancelled.lease.run_id}/cancel")
    services.attempts.record_stop(*cancelled.identity, Stopped(command=Command.CANCEL, step=12, device_seconds=3.5))
    interrupted.report(15)
    told = Failure(kind=FailureKind.INTERRUPTED, message="the service was stopped", device_seconds=4.0)
    services.attempts.fail(*interrupted.identity, told)
    for run in rest:
        story.finish(run)
    story.clock.now += 120.0
    story.finish_all()


def _tuned_comparison(story: Story) -> None:
    """Two phases."""
    story.submit(
        name="Tuned first",
        workload=WORKLOAD,
        candidates=[{"optimizer": name, "learning_rates": [0.002, 0.004, 0.008]} for name in ("adamw", "adapm")],
        seeds=[1, 2, 3],
        tuning={"seeds": [11]},
    )
    story.finish_all()


def _scaling(story: Story) -> None:
    """A law over three sizes and two budgets."""
    story.submit(
        kind="scaling",
        name="How loss falls with size",
        workload={"data": {"sequence_length_tokens": 64}, "budget": {"batch_sequences": 4}},
        sizes=[{"model": model} for model in ("gpt2-nano", "gpt2-micro", "gpt2-tiny")],
        budgets=[{"tokens": 5_120}, {"tokens": 10_240}],
        candidates=[{"optimizer": name, "learning_rates": [0.004]} for name in ("adamw", "adapm")],
        seeds=[1, 2],
    )
    story.finish_all()


def _sweep(story: Story) -> None:
    """Eight trials of two optimizers."""
    sweep = sweep_spec(name="What do they want?", trials=4)
    fields = sweep.model_dump(mode="json")
    one = story.submit(**fields)
    for number in range(8):
        parameters = planned_parameters(sweep, number)
        assert parameters is not None
        trials.add(story.folder.database, one, sweep, number, trial_run(sweep, number, parameters))
    story.finish_all()
    trials.close(story.folder.database, one)


def _deleted(story: Story, first: str) -> None:
    """A clone that was cancelled and deleted, which can still be restored."""
    clone = story.ask("POST", f"/experiments/{first}/clone", {"name": "Once more"})["experiment"]["id"]
    story.ask("POST", f"/experiments/{clone}/cancel")
    story.clock.now = NOW - 2 * DAY_SECONDS
    story.ask("DELETE", f"/experiments/{clone}")


def _at_work(story: Story) -> None:
    """Runs at work, paused, waiting for another attempt and waiting at all."""
    story.submit(
        name="At work",
        workload=WORKLOAD,
        candidates=[{"optimizer": name, "learning_rates": [0.002]} for name in ("adamw", "adapm-mini")],
        seeds=[1, 2, 3, 4],
        priority=5,
    )
    done, working, paused, lost, _leased = leases = story.leases(5)
    assert len(leases) == 5
    story.finish(story.begin(done))
    resting = story.begin(paused)
    resting.report(8)
    story.ask("POST", f"/runs/{paused.run_id}/pause")
    story.folder.services.attempts.record_stop(
        *resting.identity, Stopped(command=Command.PAUSE, step=8, device_seconds=2.0)
    )
    unlucky = story.begin(lost)
    unlucky.report(4)
    told = Failure(kind=FailureKind.INFRASTRUCTURE, message="OSError: the disk is away", device_seconds=1.0)
    story.folder.services.attempts.fail(*unlucky.identity, told)
    story.clock.now = NOW - 8.0
    story.begin(working).report(19)


def main() -> None:
    """Tell the story in a new folder and pack it."""
    target = Path(sys.argv[1])
    if target.exists():
        sys.exit(f"{target} exists; a stored data folder is never made anew")
    with tempfile.TemporaryDirectory() as name, fixed_clock(NOW - 4 * DAY_SECONDS) as clock:
        folder = Path(name)
        with opened(folder) as one, client_of(one.app) as client:
            tell(Story(one, client, clock, Queue(one.database, LeasePolicy())))
            _count_footprints(client)
        with tarfile.open(target, "w:xz", preset=9) as archive:
            for path in sorted(folder.rglob("*")):
                archive.add(path, path.relative_to(folder), recursive=False, filter=_anonymous)
    print(f"{target}  {target.stat().st_size:,} bytes")


def _count_footprints(client: TestClient) -> None:
    """Those that the pages ask for, so that nobody has to wait for them again."""
    for model in ("gpt2-124m", "gpt2-nano"):
        while "data-poll" in client.get("/memory", params={"model": model}).text:
            sleep(0.5)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Nobody's file, of one moment."""
    if entry.name.endswith(("-wal", "-shm")):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = int(NOW)
    return entry


if __name__ == "__main__":
    main()
