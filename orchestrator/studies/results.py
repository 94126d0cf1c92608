"""Results of studies in a folder, beside the published ones: what `study ls`, `show` and `report` read."""

import json
from pathlib import Path

from pydantic import ValidationError

from orchestrator.errors import OrchestratorError
from orchestrator.studies.evidence import Evidence, Scale
from orchestrator.studies.findings import Answer, Finding, unreadable
from orchestrator.studies.judgement import judge_both
from orchestrator.studies.study import Study
from worker.files import write_atomically
from worker.records.result import Record

# Evidence on disk: `<study>.<scale>.json`, small enough to be kept beside the code.

PUBLISHED = Path(__file__).parent / "published"
"""The results that come with this version."""


class EvidenceError(OrchestratorError):
    """A file of evidence cannot be read."""


def evidence_path(folder: Path, name: str, scale: Scale) -> Path:
    """Where a study's evidence at that scale lies."""
    return folder / f"{name}.{scale.value}.json"


def read_evidence(folder: Path, name: str, scale: Scale) -> Evidence | None:
    """The evidence, or None where there is none. Raises `EvidenceError`."""
    path = evidence_path(folder, name, scale)
    try:
        return Evidence.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise EvidenceError(
            f"the file {path.name} is no result of a study; remove it, and run the study again"
        ) from error


def write_evidence(folder: Path, evidence: Evidence) -> Path:
    """Write it whole or not at all; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = evidence_path(folder, evidence.study, evidence.scale)
    content = json.dumps(evidence.model_dump(mode="json", exclude_defaults=True), indent=1, ensure_ascii=False)
    write_atomically(path, f"{content}\n")
    return path


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
        both = judge_both(study, own, published)
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
