"""Where a re-run deviates from published results: in sentences, none where all lies within the intervals."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from orchestrator.records import Interval
from orchestrator.studies.evidence import CandidateOutcome, Evidence, PartEvidence
from orchestrator.studies.findings import Answer, Finding, Measure, finding, withdrawn
from orchestrator.studies.study import Study

COMPUTED_TOLERANCE = 1e-3
"""Relative: what is computed without training repeats to rounding."""


def deviations(own: Evidence, published: Evidence) -> tuple[str, ...]:
    """Every part and figure that both have is compared; what cannot be is said to be so."""
    return (*_of_parts(own, published), *_of_figures(own, published))


def comparable(own: Evidence, published: Evidence) -> bool:
    """Whether both are of the same specifications and the same computation, so that their figures are."""
    hashes = [{part.name: part.spec_hash for part in each.parts} for each in (own, published)]
    return hashes[0] == hashes[1] and own.computed_by == published.computed_by


def finding_deviations(own: Finding, published: Finding) -> tuple[str, ...]:
    """Another verdict, and every figure of it that lies outside of its published interval."""
    if Answer.MISSING in (own.measured, published.measured):
        return ()
    known = {each.name: each for each in published.measures}
    verdict = f"The verdict on what was run is {own.measured}, published: {published.measured}."
    figures = (_outside(each, known[each.name]) for each in own.measures if each.name in known)
    return (*([verdict] if own.measured is not published.measured else []), *filter(None, figures))


def _outside(own: Measure, published: Measure) -> str | None:
    if own.value is None or published.low is None or published.high is None:
        return None
    if published.low <= own.value <= published.high:
        return None
    return f"{own.name}: {own.value:.4g}, outside of the published {published.low:.4g} to {published.high:.4g}."


def _of_parts(own: Evidence, published: Evidence) -> Iterator[str]:
    for part in own.parts:
        other = published.part(part.name)
        if other is None or not part.complete:
            continue
        if other.spec_hash != part.spec_hash:
            yield f"{part.name}: not comparable, the specification has changed since the results were published."
            continue
        for mine in part.candidates:
            if (theirs := other.candidate(mine.candidate)) is not None:
                yield from _of_candidate(part, mine, theirs)


def _of_candidate(part: PartEvidence, mine: CandidateOutcome, theirs: CandidateOutcome) -> Iterator[str]:
    name = f"{part.name}, {mine.title}"
    if mine.lost != theirs.lost:
        yield f"{name}: {mine.lost} runs without a trained model, published {theirs.lost}."
    if mine.loss is None or theirs.loss is None:
        if mine.loss is not theirs.loss:
            yield f"{name}: {'no' if mine.loss is None else 'a'} finite loss, unlike what was published."
        return
    low, high = _bounds(theirs.loss)
    if not low <= mine.loss.mean <= high:
        yield f"{name}: {mine.loss.mean:.4f}, outside of the published {low:.4f} to {high:.4f}."


def _bounds(published: Interval) -> tuple[float, float]:
    """The interval; of a single run, its value within the tolerance."""
    if published.low is None or published.high is None:
        slack = COMPUTED_TOLERANCE * abs(published.mean)
        return published.mean - slack, published.mean + slack
    return published.low, published.high


def _of_figures(own: Evidence, published: Evidence) -> Iterator[str]:
    if own.computed and published.computed and own.computed_by != published.computed_by:
        yield "The computation has changed since its figures were published."
        return
    for name, value in own.computed.items():
        other = published.computed.get(name)
        if other is not None and abs(value - other) > COMPUTED_TOLERANCE * max(abs(value), abs(other)):
            yield f"{name}: {value:.6g}, published {other:.6g}."


# From evidence to what may be said of it, and to where it lies outside of what was published. Pure.


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A result of ours and the published one, side by side."""

    own: Finding | None
    published: Finding | None
    deviations: tuple[str, ...]
    """Where ours lies outside of the published one; empty where nothing is compared."""

    def are_compared(self) -> bool:
        """Whether both are there; what was withdrawn is nothing to hold a result against."""
        return self.own is not None and self.published is not None and self.published.answer is not Answer.WITHDRAWN


def judge_both(study: Study, own: Evidence | None, published: Evidence | None) -> Judgement:
    """What both say, and where they differ."""
    mine, theirs = _finding(study, own), _finding(study, published)
    both = Judgement(own=mine, published=theirs, deviations=())
    if not (own and published and mine and theirs and both.are_compared()):
        return both
    figures = finding_deviations(mine, theirs) if comparable(own, published) else ()
    return replace(both, deviations=(*deviations(own, published), *figures))


def _finding(study: Study, evidence: Evidence | None) -> Finding | None:
    if evidence is None:
        return None
    if (taken_back := withdrawn(evidence)) is not None:
        return taken_back
    return finding(study.judge(evidence), evidence, about_large_models=study.about_large_models)
