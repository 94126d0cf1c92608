"""Curves by anything in which runs differ: what is offered, whose value is whose, and that tables stay as they are."""

import re

import pytest

from dashboards.figures.grouping import find_grouping, grouping_choices
from dashboards.palette import style
from orchestrator.kinds.comparison import Candidate
from tests.factories.playing import DEMO

CANDIDATES = (
    Candidate(optimizer="adamw", learning_rates=(2e-3, 4e-3)),
    Candidate(optimizer="adapm", learning_rates=(2e-3, 4e-3)),
    Candidate(optimizer="adapm", learning_rates=(2e-3, 4e-3), label="wide", options={"rank_ratio": 0.2}),
)
SPEC = DEMO.model_copy(update={"candidates": CANDIDATES, "seeds": (1, 2), "tuning": None})


@pytest.fixture
def experiment(services, player) -> str:
    """A finished comparison of three candidates, two of them of one optimizer."""
    made = services.experiments.submit(SPEC).experiment
    player.finish()
    return str(made.id)


def drawn(client, experiment: str, query: str) -> dict[str, str]:
    """Name of a group → the colour of its line."""
    figure = client.get(f"/experiments/{experiment}/figures/curves.json{query}").json()
    return {trace["name"]: trace["line"]["color"] for trace in figure["data"] if "name" in trace}


def test_only_what_tells_runs_apart_is_offered():
    assert grouping_choices(SPEC) == (
        ("", "candidate"),
        ("optimizer", "optimizer"),
        ("lr", "lr"),
        ("seed", "seed"),
        ("option:rank_ratio", "rank ratio"),
    )
    one = DEMO.model_copy(update={"candidates": (Candidate(optimizer="adamw", learning_rates=(2e-3,)),), "seeds": (1,)})
    assert grouping_choices(one) == (("", "candidate"),)
    assert find_grouping(SPEC, "nothing") is None


def test_an_option_that_is_not_set_is_at_its_default_or_there_is_none(client, services, experiment):
    assert list(drawn(client, experiment, "?group=option:rank_ratio")) == [
        "AdaPM · rank ratio 0.05",
        "AdaPM · rank ratio 0.2",
        "AdamW · rank ratio none",
    ]


@pytest.mark.parametrize(("key", "values"), [("lr", ("0.002", "0.004")), ("seed", ("1", "2"))])
def test_rates_and_seeds_are_grouped_within_each_candidate_in_its_own_colour(client, services, experiment, key, values):
    figure = client.get(f"/experiments/{experiment}/figures/curves.json?group={key}").json()
    lines = {trace["name"]: trace for trace in figure["data"] if "name" in trace}
    titles = {"AdamW": "adamw", "AdaPM": "adapm", "wide": "wide"}
    assert set(lines) == {f"{title} · {key} {value}" for title in titles for value in values}
    best = {row.candidate: row.best_lr for row in services.analysis.compare(experiment).rows}
    for title, candidate in titles.items():
        mine = [lines[f"{title} · {key} {value}"] for value in values]
        assert len({line["line"]["color"] for line in mine}) == 1
        assert len({(line["line"]["dash"], line["marker"]["symbol"]) for line in mine}) == len(values)
        for value, line in zip(values, mine, strict=True):
            losses = [
                run.result.final_val_loss
                for run in services.runs.page(experiment_id=experiment)
                if run.candidate == candidate
                and (run.lr == float(value) if key == "lr" else (run.seed, run.lr) == (int(value), best[candidate]))
            ]
            assert line["y"][-1] == pytest.approx(sum(losses) / len(losses), abs=1e-3), "a mean over another optimizer"
    assert (
        lines["AdamW · " + f"{key} {values[0]}"]["line"]["color"]
        != lines["AdaPM · " + f"{key} {values[0]}"]["line"]["color"]
    )


def test_what_one_optimizer_is_grouped_by_has_a_colour_for_each_value(client, services, player):
    alone = SPEC.model_copy(update={"candidates": CANDIDATES[:1]})
    experiment = services.experiments.submit(alone).experiment.id
    player.finish()
    by_seed = drawn(client, experiment, "?group=seed")
    assert list(by_seed) == [f"seed {seed}" for seed in alone.seeds]
    assert len(set(by_seed.values())) == len(alone.seeds)


def test_a_group_is_of_all_runs_of_its_optimizer(client, services, experiment):
    figure = client.get(f"/experiments/{experiment}/figures/curves.json?group=optimizer").json()
    assert figure["layout"]["showlegend"] is True
    adapm = next(trace for trace in figure["data"] if trace.get("name") == "optimizer adapm")
    assert adapm["line"]["color"] == style("adapm").colour("light")
    runs = [run for run in services.runs.page(experiment_id=experiment) if run.optimizer == "adapm"]
    best = {row.candidate: row.best_lr for row in services.analysis.compare(experiment).rows}
    losses = [run.result.final_val_loss for run in runs if run.result and run.lr == best[run.candidate]]
    assert adapm["y"][-1] == pytest.approx(sum(losses) / len(losses), abs=1e-3)


def test_a_table_stays_as_it_is_however_curves_are_grouped(client, experiment):
    pages = [client.get(f"/experiments/{experiment}{query}").text for query in ("", "?group=lr")]
    bodies = [re.findall(r"<tbody>.*?</tbody>", re.sub(r'href="[^"]*"', "", page), re.DOTALL)[0] for page in pages]
    assert bodies[0] == bodies[1]
    assert "Grouped by lr" in pages[1] and "Grouped by" not in pages[0]
