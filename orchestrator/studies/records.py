"""Studies: frozen records that the api, the client and the pages share."""

from orchestrator.errors import NotFoundError
from orchestrator.kinds.registry import ExperimentSpec
from orchestrator.studies.claims import ClaimVerdict, Finding
from orchestrator.studies.study import StudyScale
from worker.records.result import Record


class StudyExperiment(Record):
    """An experiment of a study."""

    part: str
    key: str
    """Submit `spec` under this idempotency key, and the study finds it."""
    spec: ExperimentSpec
    experiment_id: str | None
    """The newest one under the key; null if there is none."""
    done: bool


class ScaleReport(Record):
    """A study at one scale."""

    scale: StudyScale
    runs: int
    estimated_device_hours: float
    """Roughly, by the FLOPs of all runs."""
    computed: bool
    """Whether something is computed without training."""
    experiments: tuple[StudyExperiment, ...]
    own: Finding | None
    """The finding of this service's results; null if there are none."""
    published: Finding | None
    """The finding of the results that come with this version."""
    deviations: tuple[str, ...]
    """The deviations of our results from the published ones' intervals."""

    def best(self) -> Finding | None:
        """Return ours where it says something, else the published one."""
        own_finding = self.own if self.own and self.own.answer is not ClaimVerdict.MISSING else None
        return own_finding or self.published or self.own

    def under_way(self) -> tuple[StudyExperiment, ...]:
        """Return our experiments of it that have not ended."""
        return tuple(part for part in self.experiments if part.experiment_id is not None and not part.done)


class StudySummary(Record):
    """A study with what is known of it."""

    name: str
    title: str
    question: str
    claim: str
    source: str
    caveats: tuple[str, ...]
    scales: tuple[ScaleReport, ...]

    def scale(self, scale: StudyScale) -> ScaleReport:
        """Return the report at that scale; raises `NotFoundError`."""
        for report in self.scales:
            if report.scale is scale:
                return report
        scales = ", ".join(report.scale.value for report in self.scales)
        raise NotFoundError(f"{self.name} has no {scale.value} scale; it has {scales}")

    def best(self) -> tuple[StudyScale, Finding] | None:
        """Return the finding at the largest scale that has a verdict; where none has, whatever is known."""
        findings = [(report.scale, best) for report in reversed(self.scales) if (best := report.best()) is not None]
        judged = [pair for pair in findings if pair[1].answer is not ClaimVerdict.MISSING]
        return next(iter(judged or findings), None)

    def is_computed(self) -> bool:
        """Return whether nothing is trained for it, so that it has no scale."""
        return not any(report.experiments for report in self.scales)

    def under_way(self) -> tuple[StudyExperiment, ...]:
        """Return our experiments of it that have not ended, at any scale."""
        return tuple(part for report in self.scales for part in report.under_way())
