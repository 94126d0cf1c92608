"""A mapping is proposed from what runs say, corrected by hand, and leaves nothing of a source behind."""

import math
from typing import Any

import pytest

from api.imports.mapping import MappedRun, apply_mapping, fields_of, possible_losses, propose_mapping
from api.imports.source import NULL, SourceError, SourcePoint, SourceRun, open_shelf
from orchestrator.external_runs import IMPORTED


def source_run(**fields: Any) -> SourceRun:
    points = (SourcePoint(at=1.0, step=3, metrics={"eval/loss": 2.0, "train/global_step": 100.0}),)
    return SourceRun(**{"source_id": "x", "name": "n", "config": {}, "sessions": (points,)} | fields)


def mapped(run: SourceRun, corrections: dict[str, str] | None = None, **constants: str) -> MappedRun:
    return apply_mapping(run, propose_mapping([run], corrections or {}, constants), "wandb", "the folder")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("muon-lr0.02-s1", ("muon", "0.02", "1")), ("out/adam_mini_lr=1e-3_seed=12", ("adam_mini", "1e-3", "12")),
        ("muon/seed3", ("muon", None, "3")), ("lr0.1-s2", (None, "0.1", "2")), ("plain", (None, None, None)),
        ("gpt-s", (None, None, None)), ("sgd.s4", ("sgd", None, "4")),
        ("muon 2/seed 3", ("muon 2", None, "3")), ("vit-s16-muon-lr0.02-seed3", ("vit-s16-muon", "0.02", "3")),
        ("vit-s16-muon-lr0.02-s3", ("vit-s16-muon", "0.02", "3")),
    ],
)  # fmt: skip
def test_names_say_candidate_rate_and_seed(name: str, said: tuple[str | None, ...]) -> None:
    fields = fields_of(source_run(name=name))
    assert tuple(fields.get(f"name.{field}") for field in ("candidate", "lr", "seed")) == said


def test_what_is_proposed_is_what_the_configuration_says() -> None:
    config = {"optimizer": {"name": "muon", "lr": "2e-2"}, "seed": 7.0, "n": [1, math.inf], "lr": None}
    run = mapped(source_run(config=config, facts={"project": "p", "summary": {"best": 1.0}}, tags=("t",)))
    header = run.header
    assert (header.experiment, header.candidate, header.lr, header.seed) == ("p", "muon", 0.02, 7)
    assert header.config["optimizer"] == {"name": "muon", "lr": "2e-2"} and header.config["n"] == [1, "inf"]
    source_record = header.config[IMPORTED]
    assert isinstance(source_record, dict) and source_record["summary"] == {"best": 1.0} and header.tags == ("t",)
    (point,) = run.points
    assert point.step == 100 and point.metrics == {"val_loss": 2.0, "train/global_step": 100.0}


def test_corrections_and_constants_come_before_proposals() -> None:
    config = {"optimizer": "adamw", "method": "muon", "rate": 0.5}
    run = mapped(
        source_run(config=config), {"candidate": "config.method", "lr": "config.rate"}, seed="3", experiment="e"
    )
    header = run.header
    assert (header.experiment, header.candidate, header.lr, header.seed) == ("e", "muon", 0.5, 3)
    with pytest.raises(SourceError, match=r"no run has that field; there are config.method"):
        mapped(source_run(config=config), {"candidate": "config.none"})
    with pytest.raises(SourceError, match=r"no run has that metric; there are eval/loss"):
        mapped(source_run(config=config), {"val_loss": "none"})


def test_a_metric_is_mapped_in_place_of_another_of_that_name_and_may_be_negated() -> None:
    for metrics in ({"accuracy": 0.2, "val_loss": 5.0}, {"val_loss": 5.0, "accuracy": 0.2}):
        run = source_run(config={"optimizer": "a"}, sessions=([SourcePoint(at=1.0, step=0, metrics=metrics)],))
        for field, value in (("accuracy", 0.2), ("-accuracy", -0.2)):
            (point,) = mapped(run, {"val_loss": field}).points
            assert point.metrics == {"val_loss": value, "source/val_loss": 5.0}


def test_of_two_metrics_behind_paths_none_is_proposed() -> None:
    points = [SourcePoint(at=1.0, step=3, metrics={"ema/val_loss": 2.0})]
    assert propose_mapping([source_run(sessions=(points,))], {}, {}).fields["val_loss"] == "ema/val_loss"
    points[0].metrics["model/val_loss"] = 3.0
    assert "val_loss" not in propose_mapping([source_run(sessions=(points,))], {}, {}).fields


def test_settings_within_others_are_proposed_if_there_is_one_and_those_of_a_summary_are_not() -> None:
    config = {"train": {"optimizer": {"_target_": "muon.Muon", "lr": 0.02}, "seed": 3}}
    header = mapped(source_run(config=config, facts={"summary": {"lr": 0.0, "seed": 9}})).header
    assert (header.candidate, header.lr, header.seed) == ("muon.Muon", 0.02, 3)
    config["data"] = {"seed": 4}
    assert mapped(source_run(config=config)).header.seed is None, "one of two would be a guess"


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ({}, "nothing says its candidate"), ({"optimizer": "a", "lr": "fast"}, "lr='fast': Input"),
        ({"optimizer": "a", "seed": 1.5}, "seed='1.5': Input"), ({"optimizer": "a", "lr": -1}, "lr"),
        ({"optimizer": "a\x1b[2J"}, "candidate"), ({"optimizer": "a", "seed": math.nan}, "seed='nan'"),
        ({"optimizer": "a" * 100}, "candidate"),
    ],
)  # fmt: skip
def test_what_could_not_be_judged_is_refused_with_the_name_of_its_run(config: dict[str, Any], fault: str) -> None:
    with pytest.raises(SourceError, match=fault):
        mapped(source_run(config=config))


def test_a_run_without_an_id_is_known_by_what_does_not_change_as_it_grows() -> None:
    config = {"optimizer": "a", "seed": 1, "lr": 0.1}
    first = source_run(source_id=None, config=config)
    grown = source_run(
        source_id=None, name="elsewhere/n", config=config,
        sessions=((*first.points, SourcePoint(at=2.0, step=4, metrics={"eval/loss": 1.0})),),
    )  # fmt: skip
    other_seed = source_run(source_id=None, config=config | {"seed": 2})
    assert mapped(first).run_id == mapped(grown).run_id != mapped(other_seed).run_id
    assert mapped(first).run_id != mapped(first, experiment="another").run_id, "a run may be in two experiments"


def test_times_and_steps_that_cannot_be_kept_lose_no_others() -> None:
    points = [(math.nan, 1), (1.0, 2**60), (1.0, -1), (math.inf, 2)]
    run = mapped(
        source_run(
            config={"optimizer": "a"}, started_at=math.nan, ended_at=math.inf,
            sessions=([SourcePoint(at=seconds, step=step, metrics={"val_loss": 1.0}) for seconds, step in points],),
        )
    )  # fmt: skip
    assert [(point.at, point.step) for point in run.points] == [(0.0, 1), (0.0, 2)]
    assert (run.header.started_at, run.ended_at) == (1.0, 1.0), "of its points"


def test_names_of_metrics_that_are_too_long_stay_different() -> None:
    points = (SourcePoint(at=1.0, step=0, metrics={"m" * 200 + "1": 1.0, "m" * 200 + "2": 2.0, "a\x00b": 3.0}),)
    names = [*mapped(source_run(config={"optimizer": "a"}, sessions=(points,))).points[0].metrics]
    assert len({*names}) == 3 and max(map(len, names)) == 128 and names[2] == "a?b"


def points(*pairs: tuple[int, float], metric: str = "val_loss") -> list[SourcePoint]:
    return [SourcePoint(at=1.0, step=step, metrics={metric: value}) for step, value in pairs]


def test_values_that_share_a_step_and_differ_are_said_and_most_of_them_are_refused() -> None:
    clash = source_run(config={"optimizer": "a"}, sessions=(points((0, 3), (1, 3), (1, 2), (2, 2), (3, math.nan)),))
    assert "val_loss at 1" in mapped(clash).notes[0]
    clashes = source_run(config={"optimizer": "a"}, sessions=(points((0, 3), (0, 4), (1, 3), (1, 2), (2, 2)),))
    with pytest.raises(SourceError, match="2 of 3 steps have several values of val_loss"):
        mapped(clashes)


def test_a_loss_that_was_logged_without_a_value_is_not_finite_and_a_name_without_any_is_none() -> None:
    session = [SourcePoint(at=1.0, step=0, metrics={"val_loss": 1.0, "note": NULL}), *points((1, NULL))]
    with open_shelf() as put:
        run = mapped(source_run(config={"optimizer": "a"}, sessions=put((session,))))
    assert run.metrics == {"val_loss"} and math.isnan(run.points[-1].metrics["val_loss"]) and run.points[-1].step == 1
    session = [*points((0, NULL), (1, 2.0), (2, NULL))]
    with open_shelf() as put:
        run = mapped(source_run(config={"optimizer": "a"}, sessions=put((session,))))
    assert [(point.step, point.metrics) for point in run.points if point.metrics] == [(1, {"val_loss": 2.0})], (
        "between values a NULL says that nothing was evaluated"
    )


def test_metrics_of_the_machine_are_left_out() -> None:
    session = [
        SourcePoint(at=1.0, step=100, metrics={"val_loss": 1.0, "system/gpu": 50.0}),
        SourcePoint(at=2.0, step=7, metrics={"system/gpu": 60.0}),
    ]
    run = mapped(source_run(config={"optimizer": "a"}, sessions=(session,)))
    assert [(point.step, dict(point.metrics)) for point in run.points] == [(100, {"val_loss": 1.0})]


def test_the_axis_that_an_owner_defined_is_the_step_of_the_runs_that_have_it() -> None:
    session = [SourcePoint(at=1.0, step=i, metrics={"val/loss": 1.0, "samples": 100.0 * i}) for i in range(3)]
    with_axis = source_run(config={"optimizer": "a"}, sessions=(session,), axes={"val/*": "samples"})
    no_axis = source_run(config={"optimizer": "a"}, sessions=(points((5, 1.0), metric="val/loss"),))
    mapping = propose_mapping([with_axis, no_axis], {}, {})
    steps = [[point.step for point in apply_mapping(run, mapping, "wandb", "e").points] for run in (with_axis, no_axis)]
    assert steps == [[0, 100, 200], [5]]


def test_metrics_that_could_be_the_loss_are_those_of_a_validation_else_any_loss() -> None:
    names = ("eval_wiki_loss", "eval_code_loss", "loss", "lr", "eval_runtime")
    run = source_run(sessions=([SourcePoint(at=1.0, step=0, metrics=dict.fromkeys(names, 1.0))],))
    assert possible_losses([run]) == ["eval_code_loss", "eval_wiki_loss"]
    assert possible_losses([source_run(sessions=(points((0, 1.0), metric="nll"),))]) == ["nll"]
    assert possible_losses([source_run(sessions=(points((0, 1.0), metric="val_bpb"),))]) == ["val_bpb"]


def test_names_are_proposed_in_any_case_and_the_only_validation_loss_is_the_loss() -> None:
    both = [*points((0, 2.0), metric="Loss/train"), *points((0, 3.0), metric="nll/dev")]
    run = mapped(source_run(config={"Optimizer": "muon", "LR": 0.1, "Seed": 2}, sessions=(both,)))
    assert (run.header.candidate, run.header.lr, run.header.seed) == ("muon", 0.1, 2)
    assert run.metrics == {"Loss/train", "val_loss"}
    for names in (("nll/dev", "nll/test"), ("Loss/train",)):
        several = [point for name in names for point in points((0, 1.0), metric=name)]
        assert "val_loss" not in propose_mapping([source_run(sessions=(several,))], {}, {}).fields
