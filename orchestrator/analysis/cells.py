"""A scaling experiment as the comparisons that it holds: one for each size and budget. Pure functions on records."""

from collections import Counter
from collections.abc import Sequence

from orchestrator.analysis.comparison import compare
from orchestrator.design import Cell
from orchestrator.errors import ConflictError, NotFoundError
from orchestrator.jobs import Outcome
from orchestrator.records import CellRecord, ExperimentRecord, ExperimentWithRuns, Progress, RunRecord, StateCounts


def comparisons(experiment: ExperimentRecord, runs: Sequence[RunRecord]) -> tuple[ExperimentWithRuns, ...]:
    """Return the comparison of each of its cells; the experiment itself where it has none."""
    cells = experiment.spec.cells()
    return tuple(_cell_experiment(experiment, runs, cell) for cell in cells) if cells else ((experiment, runs),)


def select_cell(experiment: ExperimentRecord, runs: Sequence[RunRecord], key: str | None) -> ExperimentWithRuns:
    """Return the comparison of the cell that `key` names; without a key that of the largest model at its largest
    budget. Raises `NotFoundError` for a key that names none."""
    cells = experiment.spec.cells()
    if not cells:
        if key:
            raise NotFoundError(f"experiment {experiment.id} is not a scaling experiment and has no cell {key!r}")
        return experiment, runs
    if not key:
        return _cell_experiment(experiment, runs, cells[-1])
    selected = next((cell for cell in cells if cell.key == key), None)
    if selected is None:
        keys = ", ".join(cell.key for cell in cells)
        raise NotFoundError(f"experiment {experiment.id} has no cell {key!r}; it has {keys}")
    return _cell_experiment(experiment, runs, selected)


def cell_records(experiment: ExperimentRecord, runs: Sequence[RunRecord]) -> tuple[CellRecord, ...]:
    """Return every cell with its leaderboard, the smallest first; raises `ConflictError` for another kind of
    experiment."""
    cells = experiment.spec.cells()
    if not cells:
        raise ConflictError(f"experiment {experiment.id} is a {experiment.kind} and has no cells")
    return tuple(
        CellRecord(
            key=cell.key,
            model=cell.model,
            parameters=cell.parameters,
            steps=cell.steps,
            tokens=cell.tokens,
            ended=record.counts.ended(),
            runs=record.counts.total,
            comparison=compare(record, cell_runs),
        )
        for cell in cells
        for record, cell_runs in [_cell_experiment(experiment, runs, cell)]
    )


def _cell_experiment(experiment: ExperimentRecord, runs: Sequence[RunRecord], cell: Cell) -> ExperimentWithRuns:
    spec = experiment.spec
    cell_runs = tuple(run for run in runs if cell.holds(run.model, run.steps_total))
    comparison = spec.comparison(cell)
    assert comparison is not None, f"{experiment.id} has cells that are not comparisons"
    judged = {run.candidate for run in cell_runs if run.seed in spec.seeds}
    growing = experiment.counts.growing and len(judged) < len(spec.candidates)
    ends = [run.ended_at for run in cell_runs]
    unfinished = [run for run in cell_runs if run.outcome() is not Outcome.FINISHED]
    record = experiment.model_copy(
        update={
            "name": comparison.name,
            "kind": comparison.kind,
            "spec": comparison,
            "spec_hash": comparison.content_hash(),
            "ended_at": None if None in ends else max((end for end in ends if end is not None), default=None),
            "counts": StateCounts(
                total=len(cell_runs),
                by_status=dict(Counter(run.status for run in cell_runs)),
                by_verdict=dict(Counter(run.result.verdict for run in unfinished if run.result)),
                growing=growing,
            ),
            "progress": _progress(cell_runs, comparison.step_count() if growing else 0),
        }
    )
    return record, cell_runs


def _progress(runs: Sequence[RunRecord], steps_planned: int) -> Progress:
    steps_done = sum(run.result.steps if run.result else run.step for run in runs)
    speeds = [run.tokens_per_second for run in runs if run.ended_at is None and run.tokens_per_second]
    total = sum(run.step if run.ended_at is not None and not run.result else run.steps_total for run in runs)
    total = max(total, steps_planned)
    return Progress(
        steps_done=min(steps_done, total), steps_total=total, tokens_per_second=sum(speeds) or None, seconds_left=None
    )
