"""Reports of studies: their experiments, and the verdicts of our own and the published results on their claims.

`summary` reads files alone; `Studies` asks a service's experiments first.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from orchestrator.records import ExperimentRecord
from orchestrator.services.analysis import Analysis
from orchestrator.services.experiments import Experiments
from orchestrator.services.runs import Runs
from orchestrator.studies.claims import ClaimVerdict, Finding, judge, no_finding
from orchestrator.studies.gathering import ResultSource, gather
from orchestrator.studies.records import ScaleReport, StudyExperiment, StudySummary
from orchestrator.studies.registry import all_studies, figures_of, published_path, study
from orchestrator.studies.result import ResultError, StudyResult, read_result, result_path
from orchestrator.studies.study import Study, StudyScale, experiment_key

COMPUTED_TOLERANCE = 1e-3
"""Relative: what is computed without training repeats to rounding."""

Experiment = Callable[[str], ExperimentRecord | None]
"""Idempotency key → the newest experiment under it."""
OwnResult = Callable[[Study, StudyScale, Mapping[str, str]], StudyResult | None]
"""Takes the ids of the experiments, by part."""


def summary(study: Study, folder: Path) -> StudySummary:
    """Return a study by its files: the published results, and those in the data folder's `studies`."""
    return _summary(study, lambda _: None, lambda study, scale, _: read_result(result_path(folder, study.name, scale)))


class Studies:
    """The studies over one service. Thread-safe; results are gathered once for each version of their experiments."""

    def __init__(self, experiments: Experiments, runs: Runs, analysis: Analysis, folder: Path) -> None:
        """`folder`: of the results of studies that train nothing, and of one's own studies."""
        self._experiments, self._runs, self._analysis, self._folder = experiments, runs, analysis, folder
        self._gathered: dict[tuple[str, StudyScale], tuple[tuple[tuple[str, int], ...], StudyResult]] = {}

    def summaries(self) -> tuple[StudySummary, ...]:
        """Return every study."""
        return tuple(self._summary(study) for study in all_studies(self._folder))

    def get(self, name: str) -> StudySummary:
        """Return a study; raises `NotFoundError`."""
        return self._summary(study(name, self._folder))

    def _summary(self, study: Study) -> StudySummary:
        return _summary(study, self._experiments.find_by_key, self._own_result)

    def _own_result(self, study: Study, scale: StudyScale, ids: Mapping[str, str]) -> StudyResult | None:
        if not ids:
            return read_result(result_path(self._folder, study.name, scale))
        versions = tuple((experiment_id, self._experiments.version(experiment_id)) for experiment_id in ids.values())
        gathered = self._gathered.get((study.name, scale))
        if gathered is not None and gathered[0] == versions:
            return gathered[1]
        source = ResultSource(
            compare=self._analysis.compare,
            sweep=self._analysis.sweep,
            runs=self._runs.read_all,
            observations=self._runs.observations,
            fit=self._analysis.law,
        )
        result = gather(study, figures_of(study.name), scale, ids, source)
        self._gathered[study.name, scale] = (versions, result)
        return result


def _summary(study: Study, experiment: Experiment, own_result: OwnResult) -> StudySummary:
    return StudySummary(
        name=study.name,
        title=study.title,
        question=study.question,
        claim=study.claim,
        source=study.source,
        caveats=study.caveats,
        scales=tuple(_report(study, scale, experiment, own_result) for scale in study.scales),
    )


def _report(study: Study, scale: StudyScale, experiment: Experiment, own_result: OwnResult) -> ScaleReport:
    figures = figures_of(study.name)
    experiments_by_part = {name: experiment(experiment_key(spec)) for name, spec in study.scales[scale].items()}
    ids = {name: found.id for name, found in experiments_by_part.items() if found is not None}
    published_result = read_result(published_path(study.name, scale))
    published = judge(study, published_result, figures) if published_result else None
    own_finding: Finding | None = None
    deviations: tuple[str, ...] = ()
    try:
        if (result := own_result(study, scale, ids)) is not None:
            own_finding = judge(study, result, figures)
            deviations = tuple(_deviations(own_finding, published)) if published else ()
    except ResultError as error:
        own_finding = no_finding(str(error))
    return ScaleReport(
        scale=scale,
        runs=study.run_count(scale),
        estimated_device_hours=study.device_hours(scale),
        computed=figures is not None and figures.compute is not None,
        experiments=tuple(
            StudyExperiment(
                part=name,
                key=experiment_key(spec),
                spec=spec,
                experiment_id=stored.id if (stored := experiments_by_part[name]) else None,
                done=stored is not None and stored.counts.done(),
            )
            for name, spec in study.scales[scale].items()
        ),
        own=own_finding,
        published=published,
        deviations=deviations,
    )


def _deviations(own_finding: Finding, published: Finding) -> Iterator[str]:
    """Yield every figure that lies outside of its published interval."""
    if ClaimVerdict.MISSING in (own_finding.answer, published.answer):
        return
    measures_by_name = {measure.name: measure for measure in published.measures}
    for measure in own_finding.measures:
        published_measure = measures_by_name.get(measure.name)
        if published_measure is None or measure.value is None or published_measure.value is None:
            continue
        low = -math.inf if published_measure.low is None else published_measure.low
        high = math.inf if published_measure.high is None else published_measure.high
        if published_measure.n is None:  # a counted figure has no interval
            slack = COMPUTED_TOLERANCE * abs(published_measure.value)
            low, high = published_measure.value - slack, published_measure.value + slack
        if not low <= measure.value <= high:
            yield f"{measure.name}: {measure.value:.4g}, outside of the published {low:.4g} to {high:.4g}."
