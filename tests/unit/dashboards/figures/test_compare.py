"""Any runs beside each other."""

from dashboards.data.any_run import AnyRun
from dashboards.figures.compare import CompareView, result_rows, run_styles
from orchestrator.specs.differences import SpecDifferences, differences_of, spec_fields
from worker.spec.task import RegressionTask


def differences(runs) -> SpecDifferences:
    return differences_of({run.id: spec_fields(run.spec) for run in runs})


def compared(*runs):
    return [AnyRun(record=run, experiment="") for run in runs]


def test_the_view_survives_its_url_and_takes_ids_in_both_ways():
    view = CompareView.parse([("runs", "a,b"), ("runs", "c a"), ("panel", "lr*hours*s0*ly")])
    assert view == CompareView(runs=("a", "b", "c"), panels=("lr*hours*s0*ly",))
    assert view.query() == "?runs=a,b,c&panel=lr*hours*s0*ly"
    assert view.remove_run("b").runs == ("a", "c")
    assert CompareView.parse([("x", "furlongs")]) == CompareView() and CompareView().query() == "?"


def test_the_lowest_loss_is_marked_and_a_diverged_run_never(runs):
    chosen = [run for run in runs if run.seed == 1]
    row = next(row for row in result_rows(compared(*chosen)) if row.name == "validation loss")
    assert row.best is not None
    assert row.values[row.best] == min(value for value in row.values if value != "—")


def test_runs_of_different_optimizers_keep_their_colours_and_others_get_one_each(runs):
    assert run_styles(compared(*runs[:2]))[runs[0].id].hue == "slate"
    assert len({style.hue for style in run_styles(compared(*runs[:9])).values()}) == 9


def test_equal_fields_are_counted_and_too_many_runs_are_left_out(client, finished, services):
    records = services.runs.page(experiment_id=finished)
    first, second = (run.id for run in records[:2])
    assert f"{len(differences(records[:2]).equal)} are" in client.get(f"/compare?runs={first}&runs={second}").text
    run_ids = ",".join(f"none-{number}" for number in range(14))
    assert "the last 2" in client.get(f"/compare?runs={run_ids}").text


def of_task(run, task):
    workload = run.spec.workload.model_copy(update={"task": task})
    return run.model_copy(update={"spec": run.spec.model_copy(update={"workload": workload})})


def test_losses_of_different_measures_have_no_best(runs):
    """An excess risk of 0.003 is no better than a loss of 2.6 nats; nor are nats of other tokens."""

    def best(chosen):
        return next(row for row in result_rows(compared(*chosen)) if row.name == "validation loss").best

    first, other, *_ = (run for run in runs if run.seed == 1 and run.result and run.result.final_val_loss)
    assert best([first, other]) is not None
    assert best([first, of_task(other, RegressionTask())]) is None
