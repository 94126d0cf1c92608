"""The answers of scaling experiments, sweeps and profiles in words: numbers, sentences, predictions by size. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dashboards.text import formats
from orchestrator.analysis.laws.records import CandidateFit, Estimate, FitReport, Prediction
from orchestrator.jobs import state_word
from orchestrator.records import CellRecord
from orchestrator.sweeps.records import SweepReport, TrialRow, Value
from worker.words import pluralize

if TYPE_CHECKING:  # it loads numpy, which the command line starts without
    from orchestrator.analysis.profiles import ProfileReport, WorkloadTime

COEFFICIENTS = ("E", "A", "alpha", "B", "beta")
PREDICTED_TOKENS = "at the token budget shared by all sizes, otherwise at the largest model's tokens per parameter"
"""The sizes of predictions."""


@dataclass(frozen=True, kw_only=True)
class PredictedSize:
    """A size that was not trained, with every candidate's prediction."""

    title: str
    rows: tuple[tuple[CandidateFit, Prediction], ...]


def number(value: float, digits: int) -> str:
    """Return `0.340`; wide ranges of magnitude in powers of ten."""
    text = f"{value:.{digits}f}" if 0.001 <= abs(value) < 1000 or value == 0 else f"{value:.2e}"
    return text.replace("-", formats.MINUS)


def coefficient_names(report: FitReport) -> tuple[str, ...]:
    """Return the coefficients that any candidate has."""
    return tuple(name for name in COEFFICIENTS if any(name in fit.coefficients for fit in report.fits))


def predictions(report: FitReport) -> tuple[PredictedSize, ...]:
    """Return the predictions by size, in the order of the request."""
    size_count = max((len(fit.predictions) for fit in report.fits), default=0)
    sizes = []
    for index in range(size_count):
        rows = tuple((fit, fit.predictions[index]) for fit in report.fits if fit.predictions)
        first = rows[0][1]
        size = f"{formats.compact(first.parameters)} parameters"
        sizes.append(PredictedSize(title=size if first.model is None else f"{first.model}, {size}", rows=rows))
    return tuple(sizes)


def law_headline(report: FitReport) -> str:
    """Return the exponents in a sentence, or why there is none."""
    fitted = [fit for fit in report.fits if fit.coefficients]
    if not fitted:
        return report.fits[0].verdict if report.fits else "No candidate appears in every experiment."
    if all(fit.no_law for fit in fitted):
        return "No law found; the verdicts below say why."
    parts = [f"{fit.title}: {'no law found' if fit.no_law else _exponents(fit)}" for fit in fitted]
    return formats.sentence(f"{'; '.join(parts)}.")


def change_words(change: Estimate) -> str:
    """Return the change of the difference to the baseline with size: `changes by +0.0123 [+0.0020, +0.0226]`."""
    interval = formats.interval(change.low, change.high, formats.difference)
    return " ".join(filter(None, ("changes by", formats.difference(change.value), interval)))


def _exponents(fit: CandidateFit) -> str:
    exponents = []
    for name in ("alpha", "beta"):
        if (coefficient := fit.coefficients.get(name)) is not None:
            bounds = ""
            if coefficient.low is not None and coefficient.high is not None:
                bounds = f" ({number(coefficient.low, 3)} to {number(coefficient.high, 3)})"
            exponents.append(f"{name} = {number(coefficient.value, 3)}{bounds}")
    return ", ".join(exponents)


def device_hours(cells: Sequence[CellRecord]) -> float:
    """Return the device-hours of every run of every cell."""
    return sum(row.device_hours for cell in cells for row in cell.comparison.rows)


def profile_headline(report: "ProfileReport") -> str:
    """Return the candidate with the highest score over the workloads; a name only if the comparisons show every other
    candidate to be worse on more of them. Empty where nothing is scored."""
    if not report.rows or not report.workloads:
        return ""
    first, extent = report.rows[0], f"over {pluralize(report.workloads, 'workload')}"
    if first.score_tokens == 0:
        return f"No candidate reached the target {extent}."
    rivals = [row for row in report.rows if row.behind <= first.behind or row.score_tokens == first.score_tokens]
    if len(rivals) > 1:
        scores = ", ".join(f"{row.title} {row.score_tokens:.3f}" for row in rivals)
        return f"No winner {extent}: the comparisons do not decide between {scores} (by tokens to the target)."
    lost = f"; it lost {first.lost_runs} of its {pluralize(first.runs, 'run')}" if first.lost_runs else ""
    return f"{first.title} has the highest score {extent}: {first.score_tokens:.3f} by tokens to the target{lost}."


def target_words(time: "WorkloadTime") -> str:
    """Return the target loss of a workload: `target 2.3119`, or the range of targets of several experiments."""
    ends = dict.fromkeys(map(formats.loss, sorted(time.targets)[:1] + sorted(time.targets)[-1:]))
    return f"target {' to '.join(ends)}" if ends else "no target"


def value_text(value: Value) -> str:
    """Return a hyperparameter's value: three digits, `1.2e-3` below a hundredth."""
    return formats.option_value(value, digits=3)


def outcome(trial: TrialRow) -> str:
    """Return the trial's end or its state."""
    return state_word(trial.status, trial.verdict)


def parameter_names(report: SweepReport) -> tuple[str, ...]:
    """Return every hyperparameter of any candidate, in the order of their appearance."""
    return tuple(dict.fromkeys(name for trial in report.trials for name in trial.parameters))


def sweep_headline(report: SweepReport) -> str:
    """Return the answer so far, as a sentence to stand after the best candidate's name; empty before the first."""
    best = report.best()
    if best is None or best.objective is None:
        return ""
    point = ", ".join(f"{name} {value_text(value)}" for name, value in best.parameters.items())
    reached = (
        f"reached the lowest {report.loss_name}" if report.complete else f"has the lowest {report.loss_name} so far"
    )
    return f"{reached}: {formats.loss(best.objective)}{report.loss_unit} on one seed, at {point} (trial {best.number})."
