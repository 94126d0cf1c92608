"""What the service tells about studies: frozen records that the api, the client and the pages share."""

from orchestrator.errors import NotFoundError
from orchestrator.kinds.registry import ExperimentSpec
from orchestrator.studies.evidence import StudyScale
from orchestrator.studies.findings import ClaimVerdict, Finding
from worker.records.result import Record


class StudyExperiment(Record):
    """One experiment of a plan."""

    part: str
    key: str
    """Submit `spec` under this idempotency key, and the study finds it."""
    spec: ExperimentSpec
    experiment_id: str | None
    """The newest one under the key; null where there is none."""
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
    """From this service's results; null where there are none."""
    published: Finding | None
    """From the results that come with this version."""
    deviations: tuple[str, ...]
    """Where our results lie outside of the published ones' intervals."""

    def best(self) -> Finding | None:
        """Ours where it says something, else the published one."""
        ours = self.own if self.own and self.own.answer is not ClaimVerdict.MISSING else None
        return ours or self.published or self.own

    def under_way(self) -> tuple[StudyExperiment, ...]:
        """Our experiments of it that have not ended."""
        return tuple(each for each in self.experiments if each.experiment_id is not None and not each.done)


class StudySummary(Record):
    """A study in a list."""

    name: str
    title: str
    question: str
    claim: str
    source: str
    axis: str
    caveats: tuple[str, ...]
    scales: tuple[ScaleReport, ...]

    def scale(self, scale: StudyScale) -> ScaleReport:
        """The report at that scale; raises `NotFoundError`."""
        for each in self.scales:
            if each.scale is scale:
                return each
        scales = ", ".join(each.scale.value for each in self.scales)
        raise NotFoundError(f"{self.name} has no {scale.value} scale; it has {scales}")

    def best(self) -> tuple[StudyScale, Finding] | None:
        """The finding at the largest scale that has one."""
        found = [(each.scale, best) for each in reversed(self.scales) if (best := each.best()) is not None]
        judged = [each for each in found if each[1].answer.is_verdict()]
        withdrawn = [each for each in found if each[1].answer is ClaimVerdict.WITHDRAWN]
        return next(iter(judged or withdrawn or found), None)

    def under_way(self) -> tuple[StudyExperiment, ...]:
        """Our experiments of it that have not ended, at any scale."""
        return tuple(each for scale in self.scales for each in scale.under_way())
