"""Running studies against a service: find or submit their experiments, follow them, gather, judge, keep."""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from api.cli.console import console, plain
from api.cli.experiments.follow import follow
from api.cli.tables.study import finding_view
from api.client.client import Client, ClientError
from orchestrator.analysis.laws.records import FitReport
from orchestrator.jobs import RunStatus
from orchestrator.studies.evidence import Evidence, Machine, Scale
from orchestrator.studies.findings import Answer
from orchestrator.studies.gathering import Source, gather, machine, round_figures
from orchestrator.studies.results import StoredFinding, stored_findings, write_evidence
from orchestrator.studies.study import Study


class Runner:
    """Runs studies at one scale; what it finds goes into a folder, one small file a study."""

    def __init__(self, *, scale: Scale, folder: Path, again: bool) -> None:
        self.folder = folder
        self.scale, self._again = scale, again

    def compute(self, studies: Iterable[Study]) -> None:
        """The studies, or what of them, that train nothing; in this process."""
        for study in studies:
            plan = study.plans[self.scale]
            if plan.compute is None:
                continue
            print(f"{study.name}: computing", flush=True)
            figures = {name: round_figures(value) for name, value in plan.compute().items()}
            evidence = Evidence(
                study=study.name, scale=self.scale, computed=figures, computed_by=plan.version, machines=(_here(),)
            )
            self._keep(study, evidence)

    def train(self, client: Client, studies: Sequence[Study], check: Callable[[], None] = lambda: None) -> None:
        """The studies with experiments; all are submitted first, so that no core waits between two of them."""
        found = {study.name: self._submitted(client, study) for study in studies}
        for study in studies:
            experiments = found[study.name]
            for experiment_id in experiments.values():
                follow(client, experiment_id, check)
            source = Source(
                compare=client.compare,
                sweep=client.sweep,
                runs=lambda experiment_id: client.runs(experiment_id=experiment_id),
                observations=client.observations,
                fit=lambda ids: _fit(client, ids),
            )
            self._keep(study, gather(study, self.scale, experiments, source))

    def tell_deviations(self, studies: Iterable[Study]) -> bool:
        """Say where results deviate from the published ones; whether any does."""
        any_deviates = False
        for study in studies:
            stored = self.stored(study)
            for sentence in stored.deviations if stored else ():
                any_deviates = True
                print(f"{study.name} deviates from the published result: {plain(sentence)}")
        return any_deviates

    def unanswered(self, studies: Iterable[Study]) -> bool:
        """Whether a study has no verdict after all."""
        found = [self.stored(study) for study in studies]
        return any(each is None or each.finding.answer is Answer.MISSING for each in found)

    def _submitted(self, client: Client, study: Study) -> dict[str, str]:
        """Part → experiment: the newest one that there is, its failed and cancelled runs queued once more; or a new
        one."""
        known = {each.part: each for each in client.study(study.name).scale(self.scale).experiments}
        ids: dict[str, str] = {}
        for part in study.plans[self.scale].parts:
            found = known[part.name].experiment_id
            if found is None or self._again:
                key = f"{part.key()}-{time.time_ns()}" if self._again else part.key()
                found = client.submit(part.spec, key=key).experiment.id
                print(f"{study.name}: submitted {found} ({part.name}), {part.spec.run_count()} runs", flush=True)
            else:
                print(f"{study.name}: using {found} ({part.name})", flush=True)
                _go_on(client, found)
            ids[part.name] = found
        return ids

    def _keep(self, study: Study, evidence: Evidence) -> None:
        write_evidence(self.folder, evidence)
        stored = self.stored(study)
        assert stored is not None
        console().print(finding_view(study, stored))

    def stored(self, study: Study) -> StoredFinding | None:
        """What was found of a study, here and at this scale."""
        found = stored_findings(study, self.folder)
        return next((each for each in found if each.scale is self.scale and not each.published), None)


def _fit(client: Client, ids: Sequence[str]) -> FitReport | None:
    try:
        return client.fit(ids)
    except ClientError as error:
        if error.status == 409:
            return None  # these results have no law
        raise


def _go_on(client: Client, experiment_id: str) -> None:
    """What was paused, cancelled or has failed is queued once more: whoever runs a study wants its answer."""
    states = client.experiment(experiment_id).counts.by_status
    if states.get(RunStatus.PAUSED):
        client.resume_experiment(experiment_id)
    if states.get(RunStatus.FAILED) or states.get(RunStatus.CANCELLED):
        client.retry_experiment(experiment_id)


def _here() -> Machine:
    """This machine, for what is computed in this process."""
    import torch

    from worker.meters.environment import describe_environment

    return machine(describe_environment(torch.device("cpu")))
