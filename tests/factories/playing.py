"""Plays experiments through the worker protocol: real queue, real leases, real store, made-up but realistic losses.

player = Player(services, queue)
player.finish(5)                      # five runs from hello to result
run = player.begin(); run.report(90)  # one more, half way
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from orchestrator.jobs import Lease
from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.services.composition import Services
from orchestrator.services.follow_ups import FollowUps
from orchestrator.store.queue.attempts import Attempts
from orchestrator.store.queue.queue import Queue
from tests.factories.stores import claim, result
from worker.records.protocol import Failure, FailureKind, Heartbeat, PointsBatch
from worker.records.result import Observation, Point, Result, SampledText, TextSamples, Verdict
from worker.spec.run import Budget, DataSpec, Evaluation, Schedule, Workload

PARAMETERS = 837_632
"""Parameters of a GPT-2 with 4 layers of width 128, 256 positions and a byte vocabulary."""
STATE_BYTES = {"adamw": 6_701_056, "adapm": 3_720_192, "adapm-mini": 447_488}
FLOORS = {"adamw": 2.3210, "adapm": 2.2920, "adapm-mini": 2.3160}
STEP_SECONDS = {"adamw": 0.071, "adapm": 0.078, "adapm-mini": 0.076}
OBSERVED = {
    "gradient-sparsity": ("rows_near_zero", "columns_near_zero", "norm"),
    "momentum-spectrum": ("energy_top_1_percent", "energy_top_5_percent", "energy_top_20_percent"),
    "residual": ("relative_norm", "quantile_50", "quantile_95"),
}
"""Some quantities of each probe."""
UNTRAINED = 5.57
DIVERGES_AT = 1.0
"""Learning rate from which a played run diverges."""
DEMO = ComparisonSpec(
    name="AdaPM and AdaPM-mini against AdamW",
    workload=Workload(
        model="gpt2-tiny",
        data=DataSpec(dataset="python-stdlib", tokenizer="byte", sequence_length_tokens=128),
        budget=Budget(steps=240, batch_sequences=8),
        schedule=Schedule(warmup_steps=24, final_lr_ratio=0.1),
        evaluation=Evaluation(every_steps=60, sequences=128),
    ),
    candidates=tuple(Candidate(optimizer=name, learning_rates=(2e-3, 4e-3)) for name in FLOORS),
    seeds=(1, 2),
    baseline="adamw",
)
"""The played experiment: twelve runs of one phase."""


@dataclass
class PlayedRun:
    """An attempt, as a worker would live it."""

    attempts: Attempts
    lease: Lease
    step: int = -1
    _batches: int = 0
    _noise: random.Random = field(default_factory=random.Random)
    _luck: float = 0.0
    """The deviation of this seed's end from the mean, in nats."""

    def __post_init__(self) -> None:
        self._noise.seed(f"{self.lease.spec.optimizer.name}{self.lease.spec.seed}{self.lease.spec.optimizer.lr}")
        self._luck = self._noise.gauss(0.0, 0.004)
        self.attempts.hello(*self.identity)

    @property
    def identity(self) -> tuple[str, int, str]:
        """Run, attempt, token: what every call of a worker begins with."""
        return self.lease.run_id, self.lease.attempt, self.lease.token

    @property
    def total(self) -> int:
        """Steps of the whole budget."""
        return self.lease.spec.workload.budget.steps

    def report(self, until: int) -> None:
        """Points up to and including step `until`, then a sign of life."""
        until = min(until, self._last_step())
        points = tuple(self._point(step) for step in range(self.step + 1, until + 1))
        if points:
            observed = [observation for point in points for observation in self._observations(point.step)]
            written = [sample for point in points for sample in self._samples(point.step)]
            batch = PointsBatch.from_points(sequence=self._batches, points=points, seen=[*observed, *written])
            self.attempts.append_points(*self.identity, batch)
            self._batches += 1
            self.step = until
        self.attempts.heartbeat(*self.identity, Heartbeat(step=self.step, device_seconds=self._seconds()))

    def finish(self) -> None:
        """The rest of the points, then the result."""
        self.report(self.total)
        self.attempts.finish(*self.identity, self._result())

    def break_down(self, message: str) -> None:
        """End without a result, in a way that no other attempt would mend."""
        failure = Failure(kind=FailureKind.PROGRAM, message=message, device_seconds=self._seconds())
        self.attempts.finish(*self.identity, failure)

    def diverges(self) -> bool:
        """Whether this run is one whose loss explodes."""
        return self.lease.spec.optimizer.lr >= DIVERGES_AT

    def _last_step(self) -> int:
        return min(self.total, 24) if self.diverges() else self.total

    def _point(self, step: int) -> Point:
        workload = self.lease.spec.workload
        validates = step % workload.evaluation.every_steps == 0 or step == self.total
        noise = self._noise.gauss(0.0, 0.035)
        return Point(
            step=step,
            tokens=step * workload.budget.batch_sequences * workload.data.sequence_length_tokens,
            train_loss=self._finite(self._loss(step) + noise) if step else None,
            val_loss=self._finite(self._loss(step) + 0.012) if validates else None,
            lr=self._rate(step),
            grad_norm=abs(0.9 * math.exp(-step / 90) + 0.35 + 4 * noise),
            step_seconds=STEP_SECONDS.get(self.lease.spec.optimizer.name, 0.08) * (1 + abs(noise)),
            data_seconds=0.0004 * (1 + abs(noise)),
            forward_seconds=0.021 * (1 + abs(noise)),
            backward_seconds=0.036 * (1 + abs(noise)),
            optimizer_seconds=0.011,
            host_rss_bytes=612_000_000 + 1000 * step,
            cpu_cores=0.97 - abs(noise) if step % 12 == 0 and step else None,
            host_cpu_utilization=0.61 + noise if step % 12 == 0 and step else None,
        )

    def _samples(self, step: int) -> Iterator[TextSamples]:
        """Yield the texts of a model if the workload asks for them."""
        evaluation = self.lease.spec.workload.evaluation
        if evaluation.samples is not None and (step % evaluation.every_steps == 0 or step == self.total):
            prompts = evaluation.samples.prompts
            texts = (SampledText(prompt=question, text=f"{question} after {step}", ended=False) for question in prompts)
            yield TextSamples(step=step, texts=tuple(texts))

    def _loss(self, step: int) -> float:
        if self.diverges():
            return UNTRAINED * math.exp(0.12 * step) if step < 20 else math.inf
        spec = self.lease.spec
        floor = FLOORS.get(spec.optimizer.name, 2.35) + 0.006 * (spec.seed % 3) + self._mistuned() + self._luck
        progress = step / self.total
        fast, slow = math.exp(-28 * progress), math.exp(-4.2 * progress) - math.exp(-4.2)
        return floor + 1.9 * fast + (UNTRAINED - floor - 1.9) * slow * (1 if step else 1.0153)

    def _mistuned(self) -> float:
        """Return the loss that a learning rate away from 4e-3 costs."""
        return 0.035 * abs(math.log2(self.lease.spec.optimizer.lr / 4e-3))

    def _rate(self, step: int) -> float:
        schedule = self.lease.spec.workload.schedule
        if step < schedule.warmup_steps:
            return self.lease.spec.optimizer.lr * step / schedule.warmup_steps
        progress = (step - schedule.warmup_steps) / (self.total - schedule.warmup_steps)
        cosine = 0.5 * (1 + math.cos(math.pi * progress))
        return self.lease.spec.optimizer.lr * (schedule.final_lr_ratio + (1 - schedule.final_lr_ratio) * cosine)

    def _seconds(self) -> float:
        return 4.0 + 0.08 * max(self.step, 0)

    def _finite(self, value: float) -> float | None:
        return value if math.isfinite(value) else None

    def _result(self) -> Result:
        spec, name = self.lease.spec, self.lease.spec.optimizer.name
        diverged = self.diverges()
        final = None if diverged else self._loss(self.total) + 0.012
        state_bytes = STATE_BYTES.get(name, 6_701_056)
        plain = result(
            final_val_loss=final,
            verdict=Verdict.DIVERGED if diverged else Verdict.CONVERGED,
            steps=self.step,
            device_seconds=self._seconds(),
            host_rss_bytes=640_000_000 + 7 * STATE_BYTES.get(name, 0),
            peak_bytes=8 * PARAMETERS + state_bytes + 22_400_000,
        )
        return plain.model_copy(
            update={
                "tokens": self.step * spec.workload.budget.batch_sequences * spec.workload.data.sequence_length_tokens,
                "initial_val_loss": UNTRAINED,
                "parameters": PARAMETERS,
                "parameter_bytes": 4 * PARAMETERS,
                "optimizer_state_bytes": state_bytes,
                "flops_per_token": 6.0 * PARAMETERS,
                "step_seconds_median": STEP_SECONDS.get(name, 0.08),
                "optimizer_seconds_median": 0.0112,
                "tokens_per_second": 1024 / STEP_SECONDS.get(name, 0.08),
                "spec_hash": spec.content_hash(),
                "environment": plain.environment.model_copy(update={"device_name": "AMD EPYC 7B13"}),
            }
        )

    def _observations(self, step: int) -> Iterator[Observation]:
        """Yield the observations of four layers if the workload asks for probes."""
        probes = self.lease.spec.workload.probes
        for kind in probes.kinds if probes and probes.is_due(step) else ():
            values = {
                f"transformer.h.{layer}.{part}": {
                    name: abs(self._noise.gauss(0.1 + 0.1 * layer + 0.001 * step, 0.02)) for name in OBSERVED[kind]
                }
                for layer in range(4)
                for part in ("attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
            }
            yield Observation(step=step, probe=kind, blocks=values)


@dataclass
class Player:
    """Takes runs from the queue, as the dispatcher does, and plays them."""

    services: Services
    queue: Queue

    def begin(self) -> PlayedRun:
        """Claim the next run and say hello; fails where nothing is queued."""
        (lease,) = claim(self.queue, cpus=64, gpus=0, limit=1)
        return PlayedRun(self.services.attempts, lease)

    def finish(self, number: int | None = None) -> None:
        """Play that many runs to their results; all that are queued by default."""
        remaining = math.inf if number is None else number
        while remaining > 0 and (leases := claim(self.queue, cpus=64, gpus=0, limit=1)):
            PlayedRun(self.services.attempts, leases[0]).finish()
            FollowUps(self.services.database).follow()
            remaining -= 1
