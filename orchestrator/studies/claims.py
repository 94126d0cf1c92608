"""From a study's result to its verdict on each claim: a figure with its interval, and one word. Pure.

A claim is *supported* where the whole 95 % interval lies within its bounds, *contradicted* where the whole interval
lies outside, *undecided* else. How far the paper's own figure lies from ours changes no word.
"""

import math
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from pydantic import Field

from orchestrator.analysis.estimator import paired_difference
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.records import Difference, OpenInterval
from orchestrator.studies.result import CandidateOutcome, Figure, PartResult, StudyResult
from orchestrator.studies.study import SHARED_METRICS, Study, StudyClaim, StudyFigures, identity
from worker.records.result import Finite, Record
from worker.words import pluralize


class ClaimVerdict(StrEnum):
    """The verdict on a claim."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    UNDECIDED = "undecided"
    """The interval leaves both open."""
    MISSING = "no result yet"


class Measure(Record):
    """A figure of a finding, with the claim on it."""

    name: str
    value: Finite | None
    low: Finite | None = None
    high: Finite | None = None
    n: int | None = None
    claimed: Finite | None = None
    """The paper's figure for it; null if it gives none."""
    note: str = ""
    metric: str = ""
    candidate: str = ""
    """The candidate, as in tables."""
    against: str = ""
    """The other candidate of a comparison's metric."""
    part: str = ""
    """The experiment, where the study has several."""
    unit: str = ""
    at_least: Finite | None = None
    at_most: Finite | None = None
    verdict: ClaimVerdict | None = None
    """Null where nothing is claimed of the figure."""


class Finding(Record):
    """The verdict of a result on a study's claims."""

    answer: ClaimVerdict
    """About all of them: supported where each is, contradicted where one is."""
    sentence: str
    measures: tuple[Measure, ...] = ()
    notes: tuple[str, ...] = ()
    machines: tuple[str, ...] = Field(default=())


def judge(study: Study, result: StudyResult, figures: StudyFigures | None) -> Finding:
    """Return the finding: every claim, judged on each of its parts. `figures`: those of the study's own module."""
    planned = study.scales[result.scale]
    if absent := [name for name in planned if result.part(name) is None]:
        return no_finding(f"not run yet: {', '.join(absent)}")
    if going := [part.name for part in result.parts if not part.complete]:
        return no_finding(f"runs of {', '.join(going)} have not ended")
    own_figures = [] if figures is None else list(figures.measure(study, result))
    measures: list[Measure] = []
    for claim in study.claims:
        if claim.metric in SHARED_METRICS:
            for part in result.parts:
                spec = planned.get(part.name)  # what is too large for small models is left out there
                names = [candidate.name() for candidate in spec.candidates] if isinstance(spec, ComparisonSpec) else []
                if claim.part in (None, part.name) and claim.candidate in names:
                    measures.append(_comparison_measure(study, claim, part, is_alone=len(result.parts) == 1))
        else:
            claimed_figures = [f for f in own_figures if (f.metric, f.candidate) == (claim.metric, claim.candidate)]
            measures += [
                _figure_measure(study, claim, figure) for figure in claimed_figures if claim.part in (None, figure.part)
            ]
    notes = []
    if any(identity(planned[part.name]) != part.identity for part in result.parts if part.name in planned):
        notes.append("Run by an earlier version, whose specification was another. Run the study again.")
    verdicts = [measure.verdict for measure in measures if measure.verdict is not None]
    return Finding(
        answer=all_claims(verdicts),
        sentence=count_sentence(verdicts),
        measures=tuple(measures),
        notes=tuple(notes),
        machines=tuple(dict.fromkeys(machine.sentence() for machine in result.machines)),
    )


def no_finding(reason: str) -> Finding:
    """Return a finding without a verdict, with the reason."""
    return Finding(answer=ClaimVerdict.MISSING, sentence=f"No result yet: {reason}.")


def all_claims(verdicts: Sequence[ClaimVerdict]) -> ClaimVerdict:
    """Return the verdict on claims that must all hold; each has its own beside it."""
    order = (ClaimVerdict.CONTRADICTED, ClaimVerdict.UNDECIDED, ClaimVerdict.SUPPORTED)
    return next((verdict for verdict in order if verdict in verdicts), ClaimVerdict.MISSING)


def count_sentence(verdicts: Sequence[ClaimVerdict]) -> str:
    """Return `Of 5 claims 3 are supported, 1 is contradicted and 1 is undecided.`"""
    counts = Counter(verdicts)
    phrases = [f"{counts[verdict]} {_is_said(verdict, counts[verdict])}" for verdict in ClaimVerdict if counts[verdict]]
    if not phrases:
        return "Nothing that is claimed was measured."
    if len(phrases) == 1:
        subject = "The claim" if len(verdicts) == 1 else f"Each of {len(verdicts)} claims"
        return f"{subject} {_is_said(verdicts[0], 1)}."
    return f"Of {len(verdicts)} claims {', '.join(phrases[:-1])} and {phrases[-1]}."


def _is_said(verdict: ClaimVerdict, count: int) -> str:
    return f"{'is' if count == 1 else 'are'} {verdict.value}"


def verdict_on(claim: StudyClaim, low: float, high: float) -> ClaimVerdict | None:
    """Return the verdict of an interval on a claim; None if nothing is claimed."""
    if not claim.has_bound():
        return None
    lowest = -math.inf if claim.at_least is None else claim.at_least
    highest = math.inf if claim.at_most is None else claim.at_most
    if lowest <= low and high <= highest:
        return ClaimVerdict.SUPPORTED
    return ClaimVerdict.CONTRADICTED if high < lowest or low > highest else ClaimVerdict.UNDECIDED


def _figure_measure(study: Study, claim: StudyClaim, figure: Figure) -> Measure:
    """Return the measure by the interval; a counted figure, which has none, by its value."""
    low, high = (figure.value if end is None and figure.n is None else end for end in (figure.low, figure.high))
    verdict = verdict_on(claim, -math.inf if low is None else low, math.inf if high is None else high)
    part = f", {figure.part}" if figure.part else ""
    return Measure(
        name=f"{figure.candidate}, {figure.metric}{part}", value=figure.value, low=figure.low, high=figure.high,
        n=figure.n, claimed=claim.paper, note=figure.note, metric=figure.metric, candidate=figure.candidate,
        part=figure.part, at_least=claim.at_least, at_most=claim.at_most, verdict=verdict,
    )  # fmt: skip


NAMES = {
    "loss_difference": "loss minus {other}'s",
    "speed_up": "times fewer tokens than {other}",
    "state_share": "optimizer state by {other}'s",
}


def _comparison_measure(study: Study, claim: StudyClaim, part: PartResult, *, is_alone: bool) -> Measure:
    """Return the measure of a metric that every comparison has."""
    baseline = next(outcome for outcome in part.candidates if outcome.is_baseline)
    subject = part.candidate(claim.candidate)
    reference = baseline if claim.against is None else part.candidate(claim.against)
    value, note, bounds, unit = None, "", (-math.inf, math.inf), ""
    interval: Difference | OpenInterval | None = None
    if subject is None or reference is None:
        note = "not measured"
    elif claim.metric == "loss_difference":
        interval = difference = _difference(part, subject, reference, baseline)
        bounds, unit = _loss_bounds(difference, subject, reference), part.loss_unit
        note = _loss_note(subject, reference)
    elif claim.metric == "speed_up":
        interval, unit = subject.speed_up, " times"
        bounds = _speed_up_bounds(subject.speed_up, subject, baseline)
        note = _open_note(subject.speed_up)
    else:
        value = subject.state_bytes / reference.state_bytes if subject.state_bytes and reference.state_bytes else None
        bounds = bounds if value is None else (value, value)
    if interval is not None:
        value = interval.mean
    titles = [claim.candidate if outcome is None else outcome.title for outcome in (subject, reference)]
    name = f"{titles[0]}, {NAMES[claim.metric].format(other=titles[1])}"
    return Measure(
        name=name if is_alone else f"{name}, {part.name}", value=value,
        low=interval.low if interval else None, high=interval.high if interval else None,
        n=interval.n if interval else None, claimed=claim.paper, note=note, metric=claim.metric, candidate=titles[0],
        against=titles[1], part="" if is_alone else part.name, unit=unit, at_least=claim.at_least,
        at_most=claim.at_most, verdict=verdict_on(claim, *bounds),
    )  # fmt: skip


def _difference(
    part: PartResult, subject: CandidateOutcome, reference: CandidateOutcome, baseline: CandidateOutcome
) -> Difference | None:
    """Return the comparison's difference to its baseline; to any other candidate, one by the same estimator and number
    of comparisons."""
    if reference is baseline or subject.difference is None:
        return subject.difference
    return paired_difference(
        part.losses(subject.candidate),
        part.losses(reference.candidate),
        comparisons=subject.difference.comparisons,
        evaluation_error=subject.difference.evaluation_error,
    )


def _loss_bounds(
    difference: Difference | None, subject: CandidateOutcome, reference: CandidateOutcome
) -> tuple[float, float]:
    """Return the bounds between which the difference lies. Who lost runs where the other lost none is worse by any
    amount; who lost more is not shown to be better; and beyond the edge of what tuning tried a loss may be lower by any
    amount."""
    if subject.lost and not reference.lost:
        return math.inf, math.inf
    low, high = (-math.inf, math.inf) if difference is None else difference.bounds()
    return (
        -math.inf if subject.edge_of_grid or reference.lost > subject.lost else low,
        math.inf if reference.edge_of_grid or subject.lost > reference.lost else high,
    )


def _loss_note(subject: CandidateOutcome, reference: CandidateOutcome) -> str:
    notes = [
        f"{outcome.title}: {reason}"
        for outcome in (subject, reference)
        for reason, is_so in (
            (f"{pluralize(outcome.lost, 'run')} lost", outcome.lost > 0),
            ("best rate at the end of those tried", outcome.edge_of_grid),
        )
        if is_so
    ]
    return "; ".join(notes)


def _speed_up_bounds(
    speed_up: OpenInterval | None, subject: CandidateOutcome, baseline: CandidateOutcome
) -> tuple[float, float]:
    """Return the bounds between which the speed-up lies. Who is shown to end above the baseline takes more tokens than
    it."""
    if subject.lost > baseline.lost:
        return 0.0, math.inf if baseline.lost else 0.0
    low = (speed_up.low if speed_up else None) or 0.0
    high = math.inf if speed_up is None or speed_up.high is None or subject.edge_of_grid else speed_up.high
    is_above = _loss_bounds(subject.difference, subject, baseline)[0] > 0
    low = 0.0 if baseline.edge_of_grid else low
    return low, min(high, math.nextafter(1.0, 0.0)) if is_above else high


def _open_note(speed_up: OpenInterval | None) -> str:
    """Return a note if only one end of the interval is known."""
    if speed_up is None:
        return "no speed-up is shown"
    if speed_up.mean is not None:
        return ""
    return f"above {speed_up.low:.2f} times" if speed_up.high is None else f"below {speed_up.high:.2f} times"
