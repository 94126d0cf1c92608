"""Follow-ups of tuned scaling experiments: each cell's own winner, or that of the smallest size for all."""

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.analysis.candidates import run_fact
from orchestrator.analysis.cells import cell_records, comparisons
from orchestrator.analysis.laws.fit import fit_experiments
from orchestrator.kinds.experiment import PlannedRun
from orchestrator.kinds.registry import read_spec
from orchestrator.kinds.scaling import ScalingSpec
from orchestrator.records import ExperimentRecord, RunRecord
from tests.factories.comparison import Outcome, experiment_record, run_record
from tests.factories.scaling import scaling_spec
from tests.factories.stores import result
from worker.records.result import Verdict

EACH: dict[str, Any] = {"seeds": [0], "method": "grid"}
SMALLEST: dict[str, Any] = {**EACH, "at": "smallest-size", "transfer": "inverse-width"}
BUDGETS = [{"tokens": 10_240}, {"tokens_per_parameter": 1.0}]


def loss(run: PlannedRun) -> float:
    """Lowest at 0.008 for AdaPM, at 0.004 for AdamW; falls with size."""
    best = {"adapm": 0.008, "adamw": 0.004}[run.candidate]
    size = {"gpt2-nano": 3.0, "gpt2-micro": 2.8, "gpt2-tiny": 2.65}[run.spec.workload.model]
    return size + 20 * abs(run.spec.optimizer.lr - best) + 0.003 * run.spec.seed


def measured(
    spec: ScalingSpec, ends: Callable[[PlannedRun], Outcome] = loss
) -> tuple[ExperimentRecord, tuple[RunRecord, ...]]:
    """The experiment when every run has ended so, those that followed too."""
    runs: list[RunRecord] = []
    planned = spec.first_runs()
    while planned:
        runs += [run_record(run, len(runs) + index, ends(run)) for index, run in enumerate(planned)]
        planned = spec.follow_up_runs([run_fact(run) for run in runs])
    return experiment_record(spec, len(runs)), tuple(runs)


def told(run: PlannedRun) -> tuple[str, str, int, float, int]:
    work, optimizer = run.spec.workload, run.spec.optimizer
    return run.candidate, work.model, work.budget.steps, optimizer.lr, run.spec.seed


def grown(spec: ScalingSpec) -> list[tuple[str, str, int, float, int]]:
    """All runs, as `told`."""
    _, runs = measured(spec)
    return [(run.candidate, run.model, run.steps_total, run.lr, run.seed) for run in runs]


def test_each_size_tunes_by_itself() -> None:
    """The grid on the tuning seed in every cell, then the winner of that cell on the seeds."""
    spec = scaling_spec(tuning=EACH)
    assert spec.grows() and read_spec(spec.model_dump_json()) == spec
    first = spec.first_runs()
    assert len(first) == 3 * 2 * 2 and {run.spec.seed for run in first} == {0}
    runs = grown(spec)
    assert len(runs) == spec.run_count() == 12 + 3 * 2 * 2
    assert set(runs[12:]) == {
        (name, size.model, 40, lr, seed)
        for size in spec.sizes
        for name, lr in (("adamw", 0.004), ("adapm", 0.008))
        for seed in (1, 2)
    }


def test_the_smallest_size_tunes_for_all_by_the_rule_that_is_stated() -> None:
    """At each budget; widths are 48, 80 and 128."""
    spec = scaling_spec(tuning=SMALLEST, budgets=BUDGETS)
    first = spec.first_runs()
    assert [told(run)[1:3] for run in first] == [("gpt2-nano", 40)] * 4 + [("gpt2-nano", 317)] * 4
    runs = grown(spec)
    assert len(runs) == spec.run_count() == 8 + 3 * 2 * 2 * 2
    assert {run[:4] for run in runs if run[1] != "gpt2-nano"} == {
        (name, model, steps, rate)
        for model, steps_of, rates in (
            ("gpt2-micro", (40, 1073), (0.0024, 0.0048)), ("gpt2-tiny", (40, 3355), (0.0015, 0.003))
        )
        for steps in steps_of
        for name, rate in zip(("adamw", "adapm"), rates, strict=True)
    }  # fmt: skip
    grown_runs = grown(scaling_spec(tuning={**SMALLEST, "transfer": "kept"}))
    assert {rate for name, _, _, rate, seed in grown_runs if name == "adapm" and seed} == {0.008}


def test_a_line_search_ends_before_anything_is_taken_over() -> None:
    """Three rates about the own one, further ones one after another, then the setting for all sizes."""
    spec = scaling_spec(tuning={"seeds": [0], "trials": 5, "at": "smallest-size", "transfer": "kept"})
    runs = grown(spec)
    assert len(runs) == spec.run_count() == 2 * 5 + 3 * 2 * 2
    assert {run[1] for run in runs[:10]} == {"gpt2-nano"} and {run[4] for run in runs[:10]} == {0}
    judged = {(name, rate) for name, _, _, rate, seed in runs if seed}
    assert len(judged) == 2, "one rate for each candidate, at every size"


def test_a_candidate_that_never_learned_is_taken_over_nowhere() -> None:
    diverged = result(final_val_loss=None, verdict=Verdict.DIVERGED)
    _, runs = measured(scaling_spec(tuning=SMALLEST), lambda run: diverged if run.candidate == "adapm" else loss(run))
    assert {run.model for run in runs if run.candidate == "adapm"} == {"gpt2-nano"}


@pytest.mark.parametrize("tuning", [EACH, SMALLEST])
def test_laws_and_cells_say_how_rates_were_chosen(tuning: dict[str, Any]) -> None:
    """Losses are of the seeds that count, and rates that were taken over are at no edge."""
    experiment, runs = measured(scaling_spec(tuning=tuning, seeds=[1, 2, 3]))
    cells = cell_records(experiment, runs)
    assert [cell.comparison.complete for cell in cells] == [True] * 3
    assert all(row.val_loss is not None and row.val_loss.n == 3 for cell in cells for row in cell.comparison.rows)
    largest = cells[-1].comparison
    assert [row.edge_of_grid for row in largest.rows] == [tuning is EACH] * 2
    origin = "Learning rates were tuned at gpt2-nano alone; larger sizes have them times their width's share, untried."
    assert any(note.startswith(origin) for note in largest.notes) is (tuning is SMALLEST)
    assert not any(note.startswith(origin) for note in cells[0].comparison.notes)
    report = fit_experiments(comparisons(experiment, runs), draws=50)
    assert any(note.startswith("Best learning rate at the edge") for note in report.notes), "one of two rates is"
    assert any(note.startswith(origin) for note in report.notes) is (tuning is SMALLEST)
    assert all(sum(point.n for point in fit.points) == 9 for fit in report.fits)


def test_a_cell_that_waits_for_the_smallest_size_is_not_complete() -> None:
    spec = scaling_spec(tuning=SMALLEST)
    runs = tuple(run_record(run, index, loss(run)) for index, run in enumerate(spec.first_runs()))
    experiment = experiment_record(spec, len(runs), growing=True)
    waiting = cell_records(experiment, runs)[-1].comparison
    assert not waiting.complete
    assert {row.verdict for row in waiting.rows} == {"No run has ended yet."}
