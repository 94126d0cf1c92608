"""The answers of scaling experiments and sweeps as tables of text, for reports and the command line."""

from collections.abc import Mapping
from dataclasses import dataclass

from dashboards.text import answers, formats
from orchestrator.analysis.laws.records import Estimate, FitReport
from orchestrator.sweeps.records import SweepReport, Value
from worker.words import pluralize


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of text; the first column is what a row is about."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


def coefficients(law: FitReport) -> Table:
    """Return each candidate's coefficients with their intervals, errors and points."""
    names = answers.coefficient_names(law)
    rows = []
    for fit in law.fits:
        error = formats.UNKNOWN if fit.relative_error is None else formats.percent(fit.relative_error)
        held_out = formats.UNKNOWN if fit.held_out_error is None else formats.difference(fit.held_out_error)
        numbers = [point.n for point in fit.points if point.is_in_law]
        count = f"{pluralize(len(numbers), 'point')}, {pluralize(sum(numbers), 'run')}"
        rows.append((fit.title, *(_estimate(fit.coefficients.get(name)) for name in names), error, held_out, count))
    return Table(
        head=("Optimizer", *names, "Error", "Held-out error", "Data"),
        rows=tuple(rows),
        caption=f"{law.formula}, in nats, parameters and tokens; 95 % intervals from {law.draws:,} bootstrap draws. "
        "Error: root mean square of the log residuals. Held-out error: predicted minus measured loss of the largest "
        "size, by a law fitted without it.",
    )


def predictions(law: FitReport) -> Table:
    """Return the predicted loss of sizes that were not trained; without rows where there are none."""
    rows = []
    for size in answers.predictions(law):
        for fit, prediction in size.rows:
            tokens = formats.compact(prediction.tokens)
            rows.append((size.title, fit.title, tokens, _estimate(prediction.loss, 4)))
    return Table(
        head=("Size", "Optimizer", "Tokens", "Loss"),
        rows=tuple(rows),
        caption=f"{answers.PREDICTED_TOKENS.capitalize()}. Intervals are those of the curve, not of a further run.",
    )


def _estimate(estimate: Estimate | None, digits: int = 3) -> str:
    """Return `0.340 [0.310, 0.370]`; wide ranges of magnitude in powers of ten."""
    if estimate is None:
        return formats.UNKNOWN
    interval = formats.interval(estimate.low, estimate.high, lambda value: answers.number(value, digits))
    return f"{answers.number(estimate.value, digits)} {interval or '(no interval)'}"


def best_trials(sweep: SweepReport) -> Table:
    """Return each optimizer's best trial, and what became of the others."""
    rows = tuple(
        (
            finding.title,
            formats.loss(finding.best.objective if finding.best else None),
            _values(finding.best.parameters) if finding.best else "no trial completed its budget with a finite loss",
            ", ".join(f"{factor.parameter} {formats.percent(factor.share)}" for factor in finding.importance)
            or formats.UNKNOWN,
            *map(str, (finding.trials, finding.stopped_early, finding.diverged, finding.out_of_memory)),
        )
        for finding in sweep.findings
    )
    head = ("Optimizer", "Best loss", "At", "Importance", "Trials", "Stopped early", "Diverged", "Out of memory")
    return Table(head=head, rows=rows)


def trials(sweep: SweepReport) -> Table:
    """Return every trial with its hyperparameters and its loss."""
    rows = tuple(
        (
            str(trial.number),
            trial.candidate,
            _values(trial.parameters),
            answers.outcome(trial),
            f"{trial.steps}/{trial.steps_total}",
            formats.loss(trial.objective),
            formats.duration(trial.device_seconds) if trial.device_seconds else formats.UNKNOWN,
        )
        for trial in sweep.trials
    )
    return Table(head=("Trial", "Optimizer", "Hyperparameters", "Outcome", "Steps", "Loss", "Device time"), rows=rows)


def _values(parameters: Mapping[str, Value]) -> str:
    return ", ".join(f"{name} {answers.value_text(value)}" for name, value in parameters.items())
