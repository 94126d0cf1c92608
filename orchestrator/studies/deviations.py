"""Where a re-run deviates from published results: in sentences, none where all lies within the intervals."""

from collections.abc import Iterator

from orchestrator.records import Interval
from orchestrator.studies.evidence import CandidateOutcome, Evidence, PartEvidence

COMPUTED_TOLERANCE = 1e-3
"""Relative: what is computed without training repeats to rounding."""


def deviations(own: Evidence, published: Evidence) -> tuple[str, ...]:
    """Every part and figure that both have is compared; what cannot be is said to be so."""
    return (*_of_parts(own, published), *_of_figures(own, published))


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
