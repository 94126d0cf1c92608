"""Curves by anything in which runs differ: what is offered, whose value is whose, and that tables stay as they are."""

import re

import pytest

from dashboards import grouping
from orchestrator.experiments import Candidate
from tests.browser.playing import DEMO

CANDIDATES = (
    Candidate(optimizer="adamw", learning_rates=(2e-3, 4e-3)),
    Candidate(optimizer="adapm", learning_rates=(2e-3, 4e-3)),
    Candidate(optimizer="adapm", learning_rates=(2e-3, 4e-3), label="wide", options={"rank_ratio": 0.2}),
)
SPEC = DEMO.model_copy(update={"candidates": CANDIDATES})


@pytest.fixture
def experiment(bench, player) -> str:
    """A finished comparison of three candidates, two of them of one optimizer."""
    made = bench.submit(SPEC).experiment
    player.finish()
    return str(made.id)


def drawn(client, experiment: str, query: str) -> dict[str, str]:
    """Name of a group → the colour of its line."""
    figure = client.get(f"/experiments/{experiment}/figures/curves.json{query}").json()
    return {trace["name"]: trace["line"]["color"] for trace in figure["data"] if "name" in trace}


def test_only_what_tells_runs_apart_is_offered():
    assert grouping.choices(SPEC) == (
        ("", "candidate"),
        ("optimizer", "optimizer"),
        ("lr", "lr"),
        ("seed", "seed"),
        ("option:rank_ratio", "rank ratio"),
    )
    one = DEMO.model_copy(update={"candidates": (Candidate(optimizer="adamw", learning_rates=(2e-3,)),), "seeds": (1,)})
    assert grouping.choices(one) == (("", "candidate"),)
    assert grouping.chosen(SPEC, "nothing") is None


def test_an_option_that_is_not_set_is_at_its_default_or_there_is_none(client, bench, experiment):
    assert list(drawn(client, experiment, "?group=option:rank_ratio")) == [
        "rank ratio 0.05",
        "rank ratio 0.2",
        "rank ratio none",
    ]


def test_a_group_is_of_all_of_its_runs_and_looks_like_no_optimizer(client, bench, experiment):
    by_seed = drawn(client, experiment, "?group=seed")
    assert list(by_seed) == [f"seed {seed}" for seed in SPEC.seeds]
    assert len(set(by_seed.values())) == len(SPEC.seeds)
    figure = client.get(f"/experiments/{experiment}/figures/curves.json?group=optimizer").json()
    assert figure["layout"]["showlegend"] is True
    adapm = next(trace for trace in figure["data"] if trace.get("name") == "optimizer adapm")
    runs = [run for run in bench.runs(experiment_id=experiment) if run.optimizer == "adapm"]
    best = {row.candidate: row.best_lr for row in bench.compare(experiment).rows}
    losses = [run.result.final_val_loss for run in runs if run.result and run.lr == best[run.candidate]]
    assert adapm["y"][-1] == pytest.approx(sum(losses) / len(losses), abs=1e-3)


def test_rates_are_grouped_over_all_of_them_and_the_table_stays(client, experiment):
    assert list(drawn(client, experiment, "?group=lr")) == ["lr 0.002", "lr 0.004"]
    pages = [client.get(f"/experiments/{experiment}{query}").text for query in ("", "?group=lr")]
    bodies = [re.findall(r"<tbody>.*?</tbody>", re.sub(r'href="[^"]*"', "", page), re.DOTALL)[0] for page in pages]
    assert bodies[0] == bodies[1]
    assert "Grouped by lr" in pages[1] and "Grouped by" not in pages[0]
