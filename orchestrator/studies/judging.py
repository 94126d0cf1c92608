"""From evidence to what may be said of it, and to where it lies outside of what was published. Pure."""

from dataclasses import dataclass, replace

from orchestrator.studies.deviations import comparable, deviations, finding_deviations
from orchestrator.studies.evidence import Evidence
from orchestrator.studies.findings import Answer, Finding, finding, withdrawn
from orchestrator.studies.study import Study


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A result of ours and the published one, side by side."""

    own: Finding | None
    published: Finding | None
    deviations: tuple[str, ...]
    """Where ours lies outside of the published one; empty where nothing is compared."""

    def are_compared(self) -> bool:
        """Whether both are there; what was withdrawn is nothing to hold a result against."""
        return self.own is not None and self.published is not None and self.published.answer is not Answer.WITHDRAWN


def judged(study: Study, own: Evidence | None, published: Evidence | None) -> Judged:
    """What both say, and where they differ."""
    mine, theirs = _finding(study, own), _finding(study, published)
    both = Judged(own=mine, published=theirs, deviations=())
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
