"""`Studies`: reads what there is of every study: its plans, their experiments, and findings, ours and published.

A published evidence is a file of `published/`; what was computed on this machine lies in the data folder's `studies/`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock

from orchestrator.analysis.laws.fit import FitError
from orchestrator.analysis.laws.records import FitReport, FormName
from orchestrator.records import ExperimentRecord
from orchestrator.services.analysis import Analysis
from orchestrator.services.experiments import Experiments
from orchestrator.services.runs import Runs
from orchestrator.studies.evidence import Evidence, StudyScale
from orchestrator.studies.findings import unreadable
from orchestrator.studies.gathering import EvidenceSource, gather
from orchestrator.studies.records import ScaleReport, StudyExperiment, StudySummary
from orchestrator.studies.registry import all_studies, study
from orchestrator.studies.results import PUBLISHED, EvidenceError, compare_findings, read_evidence
from orchestrator.studies.study import Study


class Studies:
    """The studies over one service. Thread-safe; evidence is gathered once for each version of its experiments."""

    def __init__(self, experiments: Experiments, runs: Runs, analysis: Analysis, folder: Path) -> None:
        """`folder`: where the results of studies that train nothing lie, and one's own claims."""
        self._experiments, self._runs, self._analysis, self._folder = experiments, runs, analysis, folder
        self._gathered: dict[tuple[str, StudyScale], tuple[tuple[tuple[str, int], ...], Evidence]] = {}
        self._lock = Lock()

    def summaries(self) -> tuple[StudySummary, ...]:
        """Every study."""
        return tuple(self._summary(each) for each in all_studies(self._folder))

    def one(self, name: str) -> StudySummary:
        """One study; raises `NotFoundError`."""
        return self._summary(study(name, self._folder))

    def _summary(self, each: Study) -> StudySummary:
        return StudySummary(
            name=each.name,
            title=each.title,
            question=each.question,
            claim=each.claim,
            source=each.source,
            axis=each.axis,
            caveats=each.caveats,
            scales=tuple(self._report(each, scale) for scale in each.plans),
        )

    def _report(self, each: Study, scale: StudyScale) -> ScaleReport:
        plan = each.plans[scale]
        found = {part.name: self._experiments.find_by_key(part.key()) for part in plan.parts}
        there = {name: experiment for name, experiment in found.items() if experiment is not None}
        own, fault = None, None
        try:
            own = self._own_evidence(each, scale, there)
        except EvidenceError as error:
            fault = unreadable(str(error))
        found_out = compare_findings(each, own, read_evidence(PUBLISHED, each.name, scale))
        return ScaleReport(
            scale=scale,
            runs=plan.run_count(),
            estimated_device_hours=plan.device_hours(),
            computed=plan.compute is not None,
            experiments=tuple(
                StudyExperiment(
                    part=part.name,
                    key=part.key(),
                    spec=part.spec,
                    experiment_id=there[part.name].id if part.name in there else None,
                    done=part.name in there and there[part.name].counts.done(),
                )
                for part in plan.parts
            ),
            own=fault or found_out.own,
            published=found_out.published,
            deviations=found_out.deviations,
        )

    def _own_evidence(self, each: Study, scale: StudyScale, there: Mapping[str, ExperimentRecord]) -> Evidence | None:
        if not there:
            return read_evidence(self._folder, each.name, scale)
        versions = tuple((one.id, self._experiments.version(one.id)) for one in there.values())
        with self._lock:
            known = self._gathered.get((each.name, scale))
        if known is not None and known[0] == versions:
            return known[1]
        found = {name: one.id for name, one in there.items()}
        evidence = gather(each, scale, found, self._source())
        with self._lock:
            self._gathered[each.name, scale] = (versions, evidence)
        return evidence

    def _source(self) -> EvidenceSource:
        return EvidenceSource(
            compare=self._analysis.compare,
            sweep=self._analysis.sweep,
            runs=self._runs.read_all,
            observations=self._runs.observations,
            fit=self._fit,
        )

    def _fit(self, experiment_ids: Sequence[str], form: FormName) -> FitReport | None:
        try:
            return self._analysis.fit(experiment_ids, form=form)
        except FitError:
            return None
