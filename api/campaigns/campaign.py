"""A campaign as its file says, and the comparisons that its steps are.

    a try           few seeds on the workload, to choose by: it claims nothing and spends nothing
    a confirmation  fresh seeds on the workload and on each held-out one: it may claim an improvement, and spends error

The j-th confirmation is judged as one of j (j + 1) / 2 two-sided comparisons at 5 %. A candidate that is no better than
the baseline is then called improved with a chance of at most

    α_j = 0.05 / (j (j + 1)),        α_1 + α_2 + … = 0.05,

so by Bonferroni's inequality all confirmations of a campaign together make a false claim with a chance of at most 5 %,
however many there are and however their candidates were chosen. On several workloads all of them must agree, each at
α_j, which needs no further share (R. L. Berger, Technometrics 24, 1982).

A step's seeds follow from the file and the step's number. So each confirmation has fresh ones, and the number of a
stored experiment is read off its specification, whatever its label, note or name are.
"""

import hashlib
from enum import StrEnum
from typing import Annotated, Final, NamedTuple, Self

from pydantic import Field, model_validator

from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.kinds.fields import MOST_SEEDS
from orchestrator.names import Name
from orchestrator.records import SIGNIFICANCE
from worker.schema import Spec, raise_faults
from worker.spec.run import Resources, Workload

BASELINE: Final = "baseline"
MOST_STEPS: Final = 1_000
"""Tries of a campaign, and confirmations."""

SeedCount = Annotated[int, Field(strict=True, ge=2, le=MOST_SEEDS)]


class Stage(StrEnum):
    """The purpose of a comparison within a campaign."""

    TRY = "try"
    CONFIRMATION = "confirmation"


class Step(NamedTuple):
    """A comparison of a campaign."""

    stage: Stage
    number: int
    """The number of the try or of the confirmation, from 1."""
    workload: int = 0
    """0 is the campaign's own; 1, 2, … are held out."""

    def __str__(self) -> str:
        held_out = f", held-out workload {self.workload}" if self.workload else ""
        return f"{self.stage} {self.number}{held_out}"


def comparisons_of(confirmation: int) -> int:
    """Return the number of comparisons that a confirmation is judged as one of."""
    return confirmation * (confirmation + 1) // 2


def level_of(confirmation: int) -> float:
    """Return the largest chance that a confirmation calls a candidate improved that is not."""
    return SIGNIFICANCE / 2 / comparisons_of(confirmation)


class Campaign(Spec):
    """A campaign: its question, fixed before the first try. A file that differs is another campaign."""

    name: Name
    workload: Workload
    baseline: Candidate
    """The baseline, at one learning rate."""
    held_out: Annotated[tuple[Workload, ...], Field(max_length=8)] = ()
    """Workloads that no try runs on. A candidate has to be better on each of them, too."""
    try_seeds: SeedCount = 5
    confirmation_seeds: SeedCount = 20
    """The seeds of a confirmation on each workload."""
    resources: Resources = Resources()

    @model_validator(mode="after")
    def _require_one_rate(self) -> Self:
        if len(rates := self.baseline.learning_rates) > 1:
            location = ("baseline", "learning_rates")
            raise_faults(type(self).__name__, [(location, list(rates), "must be one rate: campaigns tune nothing")])
        return self

    def label(self) -> str:
        """Return the label of its experiments."""
        return f"campaign-{self.content_hash()[:12]}"

    def workloads(self) -> tuple[Workload, ...]:
        """Return the campaign's own workload, then the held-out ones."""
        return self.workload, *self.held_out

    def comparison(self, step: Step, candidate: Candidate) -> ComparisonSpec:
        """Return the experiment of a step. Raises `ValidationError` if the candidate cannot be trained on its
        workload."""
        first = _first_seed(self.content_hash(), step)
        count = self.try_seeds if step.stage is Stage.TRY else self.confirmation_seeds
        return ComparisonSpec(
            name=f"{self.name[:80]}, {step}",
            workload=self.workloads()[step.workload],
            candidates=(
                self.baseline.model_copy(update={"label": BASELINE}),
                candidate.model_copy(update={"label": None}),
            ),
            baseline=BASELINE,
            seeds=tuple(range(first, first + count)),
            resources=self.resources,
        )

    def steps_by_seeds(self) -> dict[int, Step]:
        """Return every step that there may be, by the first of its seeds."""
        content_hash, confirmed = self.content_hash(), range(len(self.workloads()))
        steps = [
            Step(stage, number, workload)
            for stage, workloads in ((Stage.TRY, range(1)), (Stage.CONFIRMATION, confirmed))
            for number in range(1, MOST_STEPS + 1)
            for workload in workloads
        ]
        return {_first_seed(content_hash, step): step for step in steps}


def _first_seed(content_hash: str, step: Step) -> int:
    """Return the first of a step's seeds, which follow one another."""
    text = f"{content_hash} {step.stage} {step.number} {step.workload}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) % (2**31 - MOST_SEEDS)
