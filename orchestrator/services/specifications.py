"""`Specifications`: what a specification means here: which data it may name, and what submitting it would cost."""

from collections import defaultdict
from collections.abc import Iterator

from orchestrator.analysis.design import design_power
from orchestrator.analysis.laws.verdicts import law_warnings
from orchestrator.jobs import RunStatus
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.experiment import AnswerKind
from orchestrator.kinds.registry import ExperimentSpec
from orchestrator.records import ExperimentWithRuns, RunRecord
from orchestrator.services.analysis import StoredExperiments
from orchestrator.services.monitor import Monitor
from orchestrator.services.runs import Runs
from orchestrator.specs import preview
from orchestrator.specs.footprints import Footprints
from orchestrator.specs.preview import DesignPower, Preview
from orchestrator.storage import Storage
from orchestrator.store.queue.capacity import shortfall
from worker.data.manifest import Manifest
from worker.data.prepared import data_warnings, list_prepared, missing_data

NOISE_RUNS = 500
"""The number of a model's last runs from which the noise of a workload is estimated."""


class Specifications:
    """The knowledge of the data folder, earlier runs and counted footprints about specifications; nothing is stored."""

    def __init__(
        self, storage: Storage, runs: Runs, footprints: Footprints, source: StoredExperiments, monitor: Monitor
    ) -> None:
        self._storage, self._runs, self._footprints, self._source = storage, runs, footprints, source
        self._monitor = monitor

    def missing_data(self, spec: ExperimentSpec) -> list[str]:
        """Return a sentence for each thing that only a person can bring and that is not there."""
        return missing_data(spec.workload, self._storage.datasets_folder(), self._storage.dataset_url)

    def warnings(self, spec: ExperimentSpec) -> list[str]:
        """Return a sentence for what would keep all runs waiting: the cluster, as far as it is known, cannot hold one;
        and for sizes, tuning seeds and held-out text that are too few."""
        sizes, resources = self._monitor.largest_nodes(), spec.resources
        reason = shortfall(resources.total_cpus(), resources.gpus, sizes) if sizes else None
        waits = [f"Each run {reason}. It waits until a larger node joins."] if reason else []
        data_advice = data_warnings(spec.workload, self._storage.datasets_folder())
        return [*waits, *spec.warnings(), *law_warnings(spec.cells()), *data_advice]

    def prepared_texts(self) -> tuple[Manifest, ...]:
        """Return the texts that are prepared in the data folder, own ones too; damaged ones are left out."""
        prepared = list_prepared(self._storage.datasets_folder())
        return tuple(manifest for _, manifest in prepared if isinstance(manifest, Manifest))

    def preview(self, fields: object) -> Preview:
        """Return the preview of submitting these fields, or their faults."""
        return preview.preview(
            fields,
            missing=self.missing_data,
            warnings=self.warnings,
            measured=lambda model: self._newest_runs(model, preview.MEASURED_RUNS),
            footprints=self._footprints,
            power=self._design_power,
        )

    def _design_power(self, spec: ExperimentSpec) -> DesignPower | str | None:
        comparison = spec.comparison() if spec.answer is AnswerKind.COMPARISON else None
        if comparison is None or len(comparison.candidates) < 2:
            return None
        return design_power(comparison.design(), self._earlier_experiments(comparison))

    def _earlier_experiments(self, spec: ComparisonSpec) -> Iterator[ExperimentWithRuns]:
        """Yield the experiments of the newest runs of its workload, with these runs."""
        runs: dict[str, list[RunRecord]] = defaultdict(list)
        for run in self._newest_runs(spec.workload.model, NOISE_RUNS):
            if run.spec is not None and run.spec.workload == spec.workload:
                runs[run.experiment_id].append(run)
        for experiment in self._source.records([*runs]):
            yield experiment, runs[experiment.id]

    def _newest_runs(self, model: str, count: int) -> tuple[RunRecord, ...]:
        return self._runs.page(model=model, status=RunStatus.SUCCEEDED, sort="-ended_at", limit=count)
