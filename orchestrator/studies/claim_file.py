"""A claim as a file, which needs no code: what is held against what, on which workload, and within which bounds.

    claim.yaml ─► `ClaimSpec` ─► a `Study`: a comparison for each scale and model, and a judge that reads its bounds

A bound holds where the whole interval lies within it, does not hold where the whole interval lies outside, and is
undecided else; that all hold is said by the 95 % interval of each, all else by intervals that hold together. Those of
published papers lie in `claims/`, one's own in the data folder (`registered_claims`).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, ValidationError, model_validator

from optim.catalog import Scalar
from orchestrator.errors import OrchestratorError
from orchestrator.kinds.comparison import Candidate, ComparisonSpec, Sequential
from orchestrator.kinds.fields import LearningRates
from orchestrator.kinds.tuning import Tuning
from orchestrator.names import CandidateName
from orchestrator.specs.faults import validation_faults
from orchestrator.specs.text import SpecTextError, parse, to_yaml
from orchestrator.studies import scales
from orchestrator.studies.evidence import CandidateOutcome, Evidence, PartEvidence, StudyScale
from orchestrator.studies.findings import (
    ClaimVerdict,
    Judgement,
    Measure,
    all_hold,
    difference,
    figure_sentence,
    incomplete,
    lies_within,
    loss_bounds,
    missing,
    speed_up_bounds,
    speed_up_measure,
    together_notes,
)
from orchestrator.studies.scales import GPT2
from orchestrator.studies.study import Plan, Study, StudyPart
from worker.files import write_atomically
from worker.schema import Flag, Spec, SpecFault, raise_faults
from worker.spec.run import OptimizerName, Rules, Workload

SUFFIX: Final = ".claim.yaml"
"""Of a claim in the data folder, whose name is that of the study."""
MOST_SEEDS: Final = 64
Quantity = Literal["loss_difference", "speed_up", "state_share", "state_bytes_per_parameter"]
Text = Annotated[str, Field(min_length=1, max_length=2_000)]
Bound = Annotated[float, Field(strict=True, ge=-1e6, le=1e6)]


class ClaimError(OrchestratorError):
    """A file holds no claim, and why."""


class ClaimedBound(Spec):
    """What is claimed of a candidate: a figure, and where it lies."""

    candidate: CandidateName
    quantity: Quantity
    """`loss_difference`: final loss minus the baseline's, paired by seed; `speed_up`: how many times fewer tokens it
    takes to the baseline's final loss; `state_share`: bytes of optimizer state by the baseline's;
    `state_bytes_per_parameter`."""
    at_most: Bound | None = None
    at_least: Bound | None = None
    expected: Bound | None = None
    """What the claim's source measured; seeds are chosen to show it. Default: 0 of a difference of losses."""

    @model_validator(mode="after")
    def _require_bounds(self) -> Self:
        faults: list[SpecFault] = []
        if self.at_most is None and self.at_least is None:
            faults.append((("quantity",), self.quantity, "needs a bound: at_most, at_least or both"))
        elif not self.lowest() < self.highest():
            faults.append((("at_most",), self.at_most, "must be more than at_least"))
        elif self.is_of_losses() and self.gap() <= 0:
            allowed = "must lie within the bounds; give what the claim's source measured, since 0 does not"
            faults.append((("expected",), self.expected, allowed))
        raise_faults(type(self).__name__, faults)
        return self

    def lowest(self) -> float:
        """The lower bound."""
        return -math.inf if self.at_least is None else self.at_least

    def highest(self) -> float:
        """The upper bound."""
        return math.inf if self.at_most is None else self.at_most

    def is_of_losses(self) -> bool:
        """Whether it is about a difference of losses, for which seeds are chosen."""
        return self.quantity == "loss_difference"

    def is_counted(self) -> bool:
        """Whether it is a matter of bytes, which no training changes."""
        return self.quantity.startswith("state_")

    def gap(self) -> float:
        """How far what is expected lies from the nearest bound: an interval of half that width shows it."""
        expected = self.expected or 0.0
        return min(self.highest() - expected, expected - self.lowest())

    def verdict(self, low: float, high: float) -> ClaimVerdict:
        """Of an interval of the figure."""
        return lies_within((low, high), self.lowest(), self.highest())

    def words(self) -> str:
        """`at most 0.01`."""
        bounds = (("at least", self.at_least), ("at most", self.at_most))
        return " and ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)


class ClaimCandidate(Spec):
    """A candidate of a comparison, whose grid is the scale's where none is given."""

    optimizer: OptimizerName
    options: dict[str, Scalar] = Field(default_factory=dict)
    rules: Rules = ()
    label: CandidateName | None = None
    learning_rates: LearningRates | None = None

    def name(self) -> str:
        """As in tables."""
        return self.label or self.optimizer


class ClaimDesign(Spec):
    """How many seeds judge."""

    seeds: Annotated[int, Field(strict=True, ge=1, le=MOST_SEEDS)] = len(scales.SEEDS)
    sequential: Sequential | None = None
    """Begin with a few of them, and add the others while a verdict is open."""


class ClaimScale(Spec):
    """What is trained: models on the workload that all studies of the scale share, or a workload of one's own."""

    models: tuple[str, ...] = ()
    workload: Workload | None = None
    design: ClaimDesign | None = None
    """Five seeds, where there is none. `study run FILE` chooses the smallest that can decide the claim."""

    @model_validator(mode="after")
    def _require_one(self) -> Self:
        faults: list[SpecFault] = []
        if bool(self.models) == (self.workload is not None):
            faults.append((("models",), list(self.models), "give models, or a workload, and not both"))
        raise_faults(type(self).__name__, faults)
        return self


class ClaimSpec(Spec):
    """The fields of a claim's file."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,63}$")]
    title: Text
    question: Text
    claim: Text
    """In one's own words."""
    source: Text
    """Paper and section, or whose claim it is."""
    candidates: Annotated[tuple[ClaimCandidate, ...], Field(min_length=2, max_length=16)]
    baseline: CandidateName
    expect: Annotated[tuple[ClaimedBound, ...], Field(min_length=1, max_length=32)]
    """All of them have to hold, on every model."""
    scales: Annotated[dict[StudyScale, ClaimScale], Field(min_length=1)]
    first_seed: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] = 1
    """Of those that judge. A claim that stayed undecided is asked again under another name, with fresh ones."""
    about_large_models: Flag = False
    """Whether the claim is about larger models than the tiny scale trains, which then says nothing about it."""
    caveats: tuple[Text, ...] = ()
    order: int = 1000
    """Its place in lists."""

    @model_validator(mode="after")
    def _require_candidates(self) -> Self:
        names = [each.name() for each in self.candidates]
        faults: list[SpecFault] = []
        if self.baseline not in names:
            faults.append((("baseline",), self.baseline, f"must be one of {', '.join(names)}"))
        rivals = [name for name in names if name != self.baseline]
        for place, each in enumerate(self.expect):
            if each.candidate not in rivals:
                faults.append((("expect", place, "candidate"), each.candidate, f"must be one of {', '.join(rivals)}"))
        raise_faults(type(self).__name__, faults)
        self.study()  # whatever is wrong with its comparisons is wrong with it
        return self

    def study(self) -> Study:
        """The same as a study."""
        names = {scale: [name for name, _ in self._works(scale)] for scale in self.scales}
        return Study(
            name=self.name,
            title=self.title,
            question=self.question,
            claim=self.claim,
            source=self.source,
            plans={scale: Plan(parts=self._parts(scale)) for scale in self.scales},
            judge=_judge(self, names),
            about_large_models=self.about_large_models,
            caveats=self.caveats,
            axis="claimed figures",
            order=self.order,
        )

    def replace_design(self, scale: StudyScale, design: ClaimDesign) -> "ClaimSpec":
        """The same with as many seeds at that scale."""
        told = self.scales[scale].model_copy(update={"design": design})
        return self.model_copy(update={"scales": self.scales | {scale: told}})

    def drop_designs(self) -> "ClaimSpec":
        """What is claimed, apart from how it is shown."""
        bare = {scale: told.model_copy(update={"design": None}) for scale, told in self.scales.items()}
        return self.model_copy(update={"scales": bare})

    def is_counted(self) -> bool:
        """Whether all of it is a matter of bytes: then one run of each candidate decides it."""
        return all(each.is_counted() for each in self.expect)

    def _parts(self, scale: StudyScale) -> tuple[StudyPart, ...]:
        works = self._works(scale)
        return tuple(
            StudyPart(name=name, spec=self._comparison(scale, name if len(works) > 1 else "", work))
            for name, work in works
        )

    def _works(self, scale: StudyScale) -> list[tuple[str, Workload]]:
        told = self.scales[scale]
        if told.workload is not None:
            return [(told.workload.model, told.workload)]
        return [(GPT2 if len(told.models) == 1 else each, scales.workload(scale, each)) for each in told.models]

    def _comparison(self, scale: StudyScale, part: str, work: Workload) -> ComparisonSpec:
        design = self.scales[scale].design or ClaimDesign()
        spec = scales.comparison(
            scale,
            f"{self.name} {part}".strip(),
            work,
            [self._candidate(each, scale, work.model, one_rate=self.is_counted()) for each in self.candidates],
            baseline=self.baseline,
            seeds=tuple(self.first_seed + place for place in range(1 if self.is_counted() else design.seeds)),
            tuning=None if self.is_counted() else Tuning(),
        )
        if self.is_counted() or design.sequential is None:
            return spec
        return ComparisonSpec.model_validate(spec.model_dump() | {"sequential": design.sequential.model_dump()})

    def _candidate(self, told: ClaimCandidate, scale: StudyScale, model: str, *, one_rate: bool) -> Candidate:
        rates = told.learning_rates or scales.tuned_candidate(scale, model, told.optimizer).learning_rates
        return Candidate(
            optimizer=told.optimizer,
            learning_rates=rates[len(rates) // 2 :][:1] if one_rate else rates,
            options=dict(told.options),
            rules=told.rules,
            label=told.label,
        )


def read_claim(path: Path) -> ClaimSpec:
    """The claim in a file. Raises `ClaimError` with every fault."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ClaimError(f"{path} cannot be read: {error}") from error
    try:
        return ClaimSpec.model_validate(parse(text, str(path)))
    except SpecTextError as error:
        raise ClaimError(str(error)) from error
    except ValidationError as error:
        faults = validation_faults(error, ClaimSpec)
        raise ClaimError("\n".join([f"{path} is no claim:", *(f"  {each.text()}" for each in faults)])) from error


def claim_path(folder: Path, name: str) -> Path:
    """Where a claim of one's own lies once it is registered."""
    return folder / f"{name}{SUFFIX}"


def registered_claim(folder: Path, claim: ClaimSpec) -> ClaimSpec:
    """What is registered under its name: the same claim with its designs, else the claim itself. Raises `ClaimError`
    where that is another claim: what is claimed does not change once it is there."""
    path = claim_path(folder, claim.name)
    found = read_claim(path) if path.exists() else claim
    if found.drop_designs() != claim.drop_designs():
        raise ClaimError(f"{path} is another claim of that name; give this one a name of its own")
    return found


def register_claim(folder: Path, claim: ClaimSpec) -> None:
    """Write it beside its evidence, before anything is trained. Raises as `registered_claim` does."""
    registered_claim(folder, claim)
    folder.mkdir(parents=True, exist_ok=True)
    fields = claim.model_dump(mode="json", exclude_unset=True)
    write_atomically(claim_path(folder, claim.name), to_yaml(fields))


def registered_claims(folder: Path) -> tuple[Study, ...]:
    """Those that lie in a data folder's `studies`; what cannot be read there is left out."""
    found = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            found.append(read_claim(path).study())
        except ClaimError:
            continue
    return tuple(found)


# The judge


@dataclass(frozen=True)
class _Judged:
    bound: ClaimedBound
    verdict: ClaimVerdict
    found: Measure


def _judge(claim: ClaimSpec, parts: Mapping[StudyScale, Sequence[str]]) -> Callable[[Evidence], Judgement]:
    def judge(evidence: Evidence) -> Judgement:
        """Every bound on every part."""
        if lacking := incomplete(evidence, parts[evidence.scale]):
            return lacking
        bounds: list[tuple[ClaimedBound, CandidateOutcome, CandidateOutcome, PartEvidence, str]] = []
        for part in evidence.parts:
            suffix = f", {part.name}" if len(evidence.parts) > 1 else ""
            for bound in claim.expect:
                candidate, baseline = part.candidate(bound.candidate), part.candidate(claim.baseline)
                if candidate is None or baseline is None or not _has_ended(candidate):
                    return missing(f"{bound.candidate} has no finite loss{suffix}")
                bounds.append((bound, candidate, baseline, part, suffix))
        # Of one part the intervals of one quantity hold together already.
        quantities = {each.quantity for each in claim.expect if not each.is_counted()}
        tests = max(1, len(evidence.parts) * len(quantities))
        judged = [_judge_bound(*each, tests=1) for each in bounds]
        if not all(each.verdict is ClaimVerdict.HOLDS for each in judged if not each.bound.is_counted()):
            judged = [_judge_bound(*each, tests=tests) for each in bounds]
        trained = [each.verdict for each in judged if not each.bound.is_counted()]
        # Whoever trains worse proves nothing by saving memory.
        is_worse = bool(trained) and all_hold(trained) is ClaimVerdict.FAILS
        return Judgement(
            measured=ClaimVerdict.FAILS if is_worse else all_hold(each.verdict for each in judged),
            sentence=f"{'; '.join(_figure_sentences(judged))}.",
            measures=tuple(each.found for each in judged),
            notes=together_notes(tests, all_hold(trained) if trained else ClaimVerdict.HOLDS),
        )

    return judge


def _has_ended(candidate: CandidateOutcome) -> bool:
    return candidate.loss is not None or candidate.lost > 0


def _figure_sentences(judged: Iterable[_Judged]) -> list[str]:
    return [
        f"{figure_sentence(each.found, unit=_UNITS[each.bound.quantity])}, claimed {each.bound.words()}: "
        f"{each.verdict.value}"
        for each in judged
    ]


_UNITS: Final[Mapping[Quantity, str]] = {
    "loss_difference": " nats",
    "speed_up": " times",
    "state_share": "",
    "state_bytes_per_parameter": " bytes",
}
_NAMES: Final[Mapping[Quantity, str]] = {
    "loss_difference": "loss minus {baseline}'s",
    "speed_up": "times fewer tokens than {baseline}",
    "state_share": "optimizer state by {baseline}'s",
    "state_bytes_per_parameter": "optimizer state per parameter",
}


def _judge_bound(
    bound: ClaimedBound,
    candidate: CandidateOutcome,
    baseline: CandidateOutcome,
    part: PartEvidence,
    suffix: str,
    *,
    tests: int,
) -> _Judged:
    """By an interval that is one of so many times as many (`findings.all_hold_together`)."""
    found = _figure(bound, candidate, baseline, part)
    name = f"{candidate.title}, {_NAMES[bound.quantity].format(baseline=baseline.title)}{suffix}"
    found = found.model_copy(update={"name": name, "claimed": bound.expected})
    if not bound.is_counted():
        between = loss_bounds if bound.is_of_losses() else speed_up_bounds
        return _Judged(bound, bound.verdict(*between(candidate, tests)), found)
    verdict = ClaimVerdict.UNDECIDED if found.value is None else bound.verdict(found.value, found.value)
    return _Judged(bound, verdict, found)


def _figure(
    bound: ClaimedBound, candidate: CandidateOutcome, baseline: CandidateOutcome, part: PartEvidence
) -> Measure:
    if bound.quantity == "loss_difference":
        return difference(candidate)
    if bound.quantity == "speed_up":
        return speed_up_measure("", candidate)
    if candidate.state_bytes is None:
        return Measure(name="", value=None, note="its state was not counted")
    if bound.quantity == "state_share":
        share = candidate.state_bytes / baseline.state_bytes if baseline.state_bytes else None
        return Measure(name="", value=share, note="" if share is not None else "the baseline's state was not counted")
    sizes = {run.parameters for run in part.runs if run.parameters}
    return Measure(name="", value=candidate.state_bytes / min(sizes) if sizes else None)
