"""Results of studies: as files in a folder, and beside the published ones, with the sentences of where they deviate.

What `study ls`, `show` and `report`, the pages and REST read. A file is `<study>.<scale>.json`, small enough to be kept
beside the code.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from orchestrator.analysis.verdicts import interval_words
from orchestrator.errors import OrchestratorError
from orchestrator.records import Interval
from orchestrator.studies.evidence import CandidateOutcome, Evidence, PartEvidence, RunOutcome, StudyScale
from orchestrator.studies.findings import ClaimVerdict, Finding, Measure, finding, unreadable, withdrawn
from orchestrator.studies.study import Study
from worker.files import write_atomically
from worker.records.result import Record
from worker.words import pluralize

PUBLISHED = Path(__file__).parent / "published"
"""The results that come with this version."""
WITHDRAWN = PUBLISHED / "withdrawn.md"
"""The section of the report of what earlier results said and does not hold."""
COMPUTED_TOLERANCE = 1e-3
"""Relative: what is computed without training repeats to rounding."""


class EvidenceError(OrchestratorError):
    """A file of evidence cannot be read."""


def evidence_path(folder: Path, name: str, scale: StudyScale) -> Path:
    """Where a study's evidence at that scale lies."""
    return folder / f"{name}.{scale.value}.json"


def read_evidence(folder: Path, name: str, scale: StudyScale) -> Evidence | None:
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
    """Write it whole or not at all, runs as a table with a line for each; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = evidence_path(folder, evidence.study, evidence.scale)
    content = evidence.model_dump(mode="json", exclude_defaults=True)
    defaults = {name: field.get_default(call_default_factory=True) for name, field in RunOutcome.model_fields.items()}
    for part in content.get("parts", []):
        columns = list(dict.fromkeys(name for run in part["runs"] for name in run))
        rows = [[run.get(name, defaults[name]) for name in columns] for run in part["runs"]]
        part["runs"] = {"columns": columns, "rows": rows}
    write_atomically(path, f"{_to_json(content, levels_of_lines=5)}\n")
    return path


def _to_json(value: object, *, levels_of_lines: int) -> str:
    """JSON whose outer levels have a line for each element: short, and readable where two versions differ."""
    match value:
        case dict() if value and levels_of_lines:
            inner = [f"{json.dumps(k)}: {_to_json(v, levels_of_lines=levels_of_lines - 1)}" for k, v in value.items()]
            return "{\n" + ",\n".join(inner) + "\n}"
        case list() if value and levels_of_lines:
            return "[\n" + ",\n".join(_to_json(each, levels_of_lines=levels_of_lines - 1) for each in value) + "\n]"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class StoredFinding(Record):
    """A finding with where it is from."""

    scale: StudyScale
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
    for scale in study.plans:
        published = read_evidence(PUBLISHED, study.name, scale)
        try:
            own = read_evidence(folder, study.name, scale)
        except EvidenceError as error:
            found.append(StoredFinding(scale=scale, published=False, finding=unreadable(str(error))))
            continue
        both = compare_findings(study, own, published)
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
    told = [each for each in reversed(findings) if each.finding.answer is not ClaimVerdict.MISSING]
    return next((each for each in told if each.finding.answer.is_verdict()), next(iter(told), None))


@dataclass(frozen=True, kw_only=True)
class ComparedFindings:
    """A result of ours and the published one, side by side."""

    own: Finding | None
    published: Finding | None
    deviations: tuple[str, ...]
    """Where ours lies outside of the published one; empty where nothing is compared."""

    def are_compared(self) -> bool:
        """Whether both are there; what was withdrawn is nothing to hold a result against."""
        return (
            self.own is not None and self.published is not None and self.published.answer is not ClaimVerdict.WITHDRAWN
        )


OF_AN_EARLIER_VERSION = (
    "Run by an earlier version, which tuned otherwise: figures and intervals are of that time. Running the study again "
    "judges it by today's tuning."
)


def compare_findings(study: Study, own: Evidence | None, published: Evidence | None) -> ComparedFindings:
    """What both say, and where they differ."""
    mine, theirs = _finding(study, own), _finding(study, published)
    both = ComparedFindings(own=mine, published=theirs, deviations=())
    if not (own and published and mine and theirs and both.are_compared()):
        return both
    figures = finding_deviations(mine, theirs) if comparable(own, published) else ()
    return replace(both, deviations=(*deviations(own, published), *figures))


def _finding(study: Study, evidence: Evidence | None) -> Finding | None:
    if evidence is None:
        return None
    if (taken_back := withdrawn(evidence)) is not None:
        return taken_back
    found = finding(study.judge(evidence), evidence, about_large_models=study.about_large_models)
    planned = {part.name: part.spec.content_hash() for part in study.plans[evidence.scale].parts}
    if all(planned.get(part.name) == part.spec_hash for part in evidence.parts):
        return found
    return found.model_copy(update={"notes": (OF_AN_EARLIER_VERSION, *found.notes)})


def deviations(own: Evidence, published: Evidence) -> tuple[str, ...]:
    """Every part and figure that both have is compared; what cannot be is said to be so."""
    return (*_part_differences(own, published), *_figure_differences(own, published))


def comparable(own: Evidence, published: Evidence) -> bool:
    """Whether both are of the same specifications and the same computation, so that their figures are."""
    hashes = [{part.name: part.spec_hash for part in each.parts} for each in (own, published)]
    return hashes[0] == hashes[1] and own.computed_by == published.computed_by


def finding_deviations(own: Finding, published: Finding) -> tuple[str, ...]:
    """Another verdict, and every figure of it that lies outside of its published interval."""
    if ClaimVerdict.MISSING in (own.measured, published.measured):
        return ()
    known = {each.name: each for each in published.measures}
    verdict = f"The verdict on what was run is {own.measured}, published: {published.measured}."
    figures = (_disagreement(each, known[each.name]) for each in own.measures if each.name in known)
    return (*([verdict] if own.measured is not published.measured else []), *filter(None, figures))


def _disagreement(own: Measure, published: Measure) -> str | None:
    if own.value is None or (published.low is None and published.high is None):
        return None
    low = -math.inf if published.low is None else published.low
    high = math.inf if published.high is None else published.high
    if low <= own.value <= high:
        return None
    interval = interval_words(published.low, published.high, lambda value: f"{value:.4g}")
    return f"{own.name}: {own.value:.4g}, outside of the published interval {interval}."


def _part_differences(own: Evidence, published: Evidence) -> Iterator[str]:
    for part in own.parts:
        other = published.part(part.name)
        if other is None or not part.complete:
            continue
        if other.spec_hash != part.spec_hash:
            yield f"{part.name}: not comparable, the specification has changed since the results were published."
            continue
        for mine in part.candidates:
            if (theirs := other.candidate(mine.candidate)) is not None:
                yield from _candidate_differences(part, mine, theirs)


def _candidate_differences(part: PartEvidence, mine: CandidateOutcome, theirs: CandidateOutcome) -> Iterator[str]:
    name = f"{part.name}, {mine.title}"
    if mine.lost != theirs.lost:
        yield f"{name}: {pluralize(mine.lost, 'run')} without a trained model, published {theirs.lost}."
    if mine.loss is None or theirs.loss is None:
        if mine.loss is not theirs.loss:
            yield f"{name}: {'no' if mine.loss is None else 'a'} finite loss, unlike what was published."
        return
    low, high = _bounds(theirs.loss)
    if not low <= mine.loss.mean <= high:
        yield f"{name}: {mine.loss.mean:.4f}, outside of the published interval {low:.4f} to {high:.4f}."


def _bounds(published: Interval) -> tuple[float, float]:
    """The interval; of a single run, its value within the tolerance."""
    if published.low is None or published.high is None:
        slack = COMPUTED_TOLERANCE * abs(published.mean)
        return published.mean - slack, published.mean + slack
    return published.low, published.high


def _figure_differences(own: Evidence, published: Evidence) -> Iterator[str]:
    if own.computed and published.computed and own.computed_by != published.computed_by:
        yield "The computation has changed since its figures were published."
        return
    for name, value in own.computed.items():
        other = published.computed.get(name)
        if other is not None and abs(value - other) > COMPUTED_TOLERANCE * max(abs(value), abs(other)):
            yield f"{name}: {value:.6g}, published {other:.6g}."
