"""Results of studies in a folder, beside the published ones: what `study ls`, `show` and `report` read."""

from pathlib import Path

from orchestrator.studies.evidence import Scale
from orchestrator.studies.evidence_files import PUBLISHED, EvidenceError, read_evidence
from orchestrator.studies.findings import Answer, Finding, unreadable
from orchestrator.studies.judging import judged
from orchestrator.studies.study import Study
from worker.record import Record


class StoredFinding(Record):
    """A finding with where it is from."""

    scale: Scale
    published: bool
    """Whether it comes with this version, or from the folder."""
    finding: Finding
    deviations: tuple[str, ...] = ()
    """Where it lies outside of the published intervals; empty for the published one itself."""
    compared: bool = False
    """Whether it is held against a published one."""


def stored_findings(study: Study, folder: Path) -> tuple[StoredFinding, ...]:
    """At every scale: the folder's, else the published one; scales without either are left out."""
    found = []
    for scale in Scale:
        published = read_evidence(PUBLISHED, study.name, scale)
        try:
            own = read_evidence(folder, study.name, scale)
        except EvidenceError as error:
            found.append(StoredFinding(scale=scale, published=False, finding=unreadable(str(error))))
            continue
        both = judged(study, own, published)
        if (said := both.own or both.published) is None:
            continue
        found.append(
            StoredFinding(
                scale=scale,
                published=own is None,
                finding=said,
                deviations=both.deviations,
                compared=both.are_compared(),
            )
        )
    return tuple(found)


def best(findings: tuple[StoredFinding, ...]) -> StoredFinding | None:
    """The largest scale's that has a verdict; where none has, a withdrawn one."""
    told = [each for each in reversed(findings) if each.finding.answer is not Answer.MISSING]
    return next((each for each in told if each.finding.answer.is_verdict()), next(iter(told), None))
