"""`scaling-law`: whether AdaPM's losses lie on a law, and fall with size as AdamW's do."""

from orchestrator.studies.result import Figure, StudyResult
from orchestrator.studies.study import Study, StudyFigures

GROWTH = "growth of the loss minus AdamW's, nats"
DISTANCE = "largest distance of a point from its law, relative"
EXPONENT = "exponent of the law"


def measure(study: Study, result: StudyResult) -> list[Figure]:
    """Return from the laws over the parts: each exponent; of AdaPM the point that is farthest from its law, by its
    whole interval, and the change of its difference to AdamW from the smallest model to the largest."""
    if result.fit is None:
        return []
    figures = [
        Figure(metric=EXPONENT, candidate=fit.candidate, value=alpha.value, low=alpha.low, high=alpha.high,
               n=len(fit.points), note="no law" if fit.no_law else "")
        for fit in result.fit.fits
        if (alpha := fit.coefficients.get("alpha"))
    ]  # fmt: skip
    adapm_fit = next((fit for fit in result.fit.fits if fit.candidate == "adapm"), None)
    if adapm_fit is None:
        return figures
    distances = [
        max(abs(end / point.fitted - 1) for end in (point.loss, point.low, point.high) if end is not None)
        for point in adapm_fit.points
        if point.fitted is not None and not adapm_fit.no_law
    ]
    outcomes = [part.candidate("adapm") for part in result.parts]
    # A law is that of the runs that were trained: it says nothing of those that were lost.
    change = adapm_fit.change if all(outcome is not None and not outcome.lost for outcome in outcomes) else None
    value, low, high = (change.value, change.low, change.high) if change else (None, None, None)
    note = "" if change and distances else "no law, or runs were lost"
    return [
        Figure(metric=GROWTH, candidate="adapm", value=value, low=low, high=high, n=len(outcomes), note=note),
        Figure(metric=DISTANCE, candidate="adapm", value=max(distances, default=None), note=note),
        *figures,
    ]


FIGURES = StudyFigures(measure=measure, law="n0")
