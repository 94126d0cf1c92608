"""Follow-ups of tuned scaling experiments: each cell's own winner."""

import json
from typing import Any

from orchestrator.analysis.cells import cell_records, comparisons
from orchestrator.analysis.laws.fit import fit_experiments
from orchestrator.kinds.experiment import PlannedRun
from orchestrator.kinds.registry import read_spec, read_stored_spec
from orchestrator.kinds.scaling import ScalingSpec
from tests.factories.comparison import experiment_record, run_record, tuned_records
from tests.factories.scaling import scaling_spec
from tests.factories.stores import result
from worker.records.result import Verdict

EACH: dict[str, Any] = {"seeds": [0], "method": "grid"}


def loss(run: PlannedRun) -> float:
    """Lowest at 0.008 for AdaPM, at 0.004 for AdamW; falls with size."""
    best = {"adapm": 0.008, "adamw": 0.004}[run.candidate]
    size = {"gpt2-nano": 3.0, "gpt2-micro": 2.8, "gpt2-tiny": 2.65}[run.spec.workload.model]
    return size + 20 * abs(run.spec.optimizer.lr - best) + 0.003 * run.spec.seed


def grown(spec: ScalingSpec) -> list[tuple[str, str, int, float, int]]:
    """Candidate, model, steps, rate and seed of all runs."""
    _, runs = tuned_records(spec, loss)
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


def test_a_candidate_that_never_learned_is_judged_nowhere() -> None:
    diverged = result(final_val_loss=None, verdict=Verdict.DIVERGED)
    _, runs = tuned_records(scaling_spec(tuning=EACH), lambda run: diverged if run.candidate == "adapm" else loss(run))
    assert {run.seed for run in runs if run.candidate == "adapm"} == {0}


def test_laws_and_cells_are_those_of_the_seeds_that_count() -> None:
    experiment, runs = tuned_records(scaling_spec(tuning=EACH, seeds=[1, 2, 3]), loss)
    cells = cell_records(experiment, runs)
    assert [cell.comparison.complete for cell in cells] == [True] * 3
    assert all(row.val_loss is not None and row.val_loss.n == 3 for cell in cells for row in cell.comparison.rows)
    assert [row.edge_of_grid for row in cells[-1].comparison.rows] == [True] * 2
    report = fit_experiments(comparisons(experiment, runs), draws=50)
    assert any(note.startswith("Best learning rate at the edge") for note in report.notes), "one of two rates is"
    assert all(sum(point.n for point in fit.points) == 9 for fit in report.fits)


def test_a_cell_that_is_being_tuned_is_not_complete() -> None:
    spec = scaling_spec(tuning=EACH)
    runs = tuple(run_record(run, index, loss(run)) for index, run in enumerate(spec.first_runs()))
    experiment = experiment_record(spec, len(runs), growing=True)
    assert not any(cell.comparison.complete for cell in cell_records(experiment, runs))


def test_an_experiment_that_an_earlier_version_tuned_at_its_smallest_size_is_read_at_its_judged_rates() -> None:
    stored = scaling_spec(tuning=EACH).model_dump(mode="json")
    stored["tuning"] |= {"at": "smallest-size", "transfer": "inverse-width"}
    spec = read_stored_spec(json.dumps(stored))
    assert isinstance(spec, ScalingSpec)
    _, runs = tuned_records(scaling_spec(tuning=EACH), loss)
    kept = tuple(run for run in runs if run.model == "gpt2-nano" or run.seed in spec.seeds)
    largest = cell_records(experiment_record(spec, len(kept)), kept)[-1].comparison
    assert {row.candidate: row.best_lr for row in largest.rows} == {"adamw": 0.004, "adapm": 0.008}
