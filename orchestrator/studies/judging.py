"""From evidence to what may be said of it, and to where it lies outside of what was published. Pure."""

from dataclasses import dataclass

from orchestrator.studies.deviations import comparable, deviations, finding_deviations
from orchestrator.studies.evidence import Evidence
from orchestrator.studies.findings import Finding, finding
from orchestrator.studies.study import Study


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A result of ours and the published one, side by side."""

    own: Finding | None
    published: Finding | None
    deviations: tuple[str, ...]
    """Where ours lies outside of the published one; empty where one of them is lacking."""


def judged(study: Study, own: Evidence | None, published: Evidence | None) -> Judged:
    """What both say, and where they differ."""
    mine, theirs = _finding(study, own), _finding(study, published)
    apart: tuple[str, ...] = ()
    if own and published and mine and theirs:
        figures = finding_deviations(mine, theirs) if comparable(own, published) else ()
        apart = (*deviations(own, published), *figures)
    return Judged(own=mine, published=theirs, deviations=apart)


def _finding(study: Study, evidence: Evidence | None) -> Finding | None:
    if evidence is None:
        return None
    return finding(study.judge(evidence), evidence, about_large_models=study.about_large_models)
