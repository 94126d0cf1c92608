"""Words and numbers of studies, as people read them: shared by pages, reports and the command line. Pure."""

from orchestrator.studies.evidence import Scale
from orchestrator.studies.findings import Answer, Finding, Measure
from orchestrator.studies.records import ScaleReport
from orchestrator.studies.results import StoredFinding
from orchestrator.studies.study import Plan, Study


def figure_text(value: float | None) -> str:
    """Four significant digits; a dash for none."""
    return "—" if value is None else f"{value:.4g}"


def interval_text(measure: Measure) -> str:
    """`0.31 to 0.35`; empty without one."""
    if measure.low is None or measure.high is None:
        return ""
    return f"{measure.low:.4g} to {measure.high:.4g}"


def estimate_words(plan: Plan, *, paper: bool) -> str:
    """What it costs, roughly."""
    hours = plan.device_hours()
    if not plan.parts:
        return "seconds"
    if paper and any(part.spec.resources.gpus for part in plan.parts):
        return f"about {hours:,.0f} GPU-hours"
    return f"about {max(60 * hours, 1):.0f} core-minutes"


def scale_words(plan: Plan, scale: Scale) -> str:
    """`Tiny scale`; what trains nothing has no scale."""
    return f"{scale.value.capitalize()} scale" if plan.parts else "Computed"


def origin(study: Study, stored: StoredFinding) -> str:
    """`tiny scale, published`; of an own result also that it deviates from the published one."""
    words = scale_words(study.plans[stored.scale], stored.scale)
    own = "own result, deviates" if stored.deviations else "own result"
    return f"{words.lower()}, {'published' if stored.published else own}"


def cost_words(report: ScaleReport) -> str:
    """What a scale costs, roughly: `about 450 GPU-hours`."""
    if not report.experiments:
        return "seconds"
    if any(each.spec.resources.gpus for each in report.experiments):
        return f"about {report.estimated_device_hours:,.0f} GPU-hours"
    return f"about {max(60 * report.estimated_device_hours, 1):.0f} core-minutes"


def measured_words(finding: Finding) -> str:
    """What was run, in a word; of a withdrawn result the reason."""
    return finding.sentence if finding.answer is Answer.WITHDRAWN else finding.measured.value


def answer_tone(answer: Answer) -> str:
    """The tone of a chip."""
    return _TONES[answer]


_TONES = {
    Answer.HOLDS: "good",
    Answer.IN_PART: "warn",
    Answer.FAILS: "bad",
    Answer.UNDECIDED: "warn",
    Answer.BEYOND: "wait",
    Answer.MISSING: "wait",
    Answer.WITHDRAWN: "bad",
}
