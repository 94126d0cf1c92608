"""The queue's page, the memory planner, and what needs attention."""

import re
from contextlib import closing
from unittest.mock import Mock

from api.routes import catalog
from dashboards.data.search import Search, find_experiments
from dashboards.pages.service import concerns
from orchestrator.specs.footprints import footprint_question
from orchestrator.store.database import Database
from orchestrator.store.leadership import Leadership
from tests.factories.playing import DEMO
from worker.footprint import count
from worker.records.footprint import Footprint, OptimizerFootprint


def footprint(**state_bytes: int | None) -> Footprint:
    footprints = tuple(
        OptimizerFootprint(
            optimizer=name, title=name, options={}, state_bytes=size, unknown_because="?" if size is None else None
        )
        for name, size in state_bytes.items()
    )
    return Footprint(
        model="gpt2-124m", parameters=10**9, parameter_bytes=4 * 10**9, gradient_bytes=4 * 10**9, optimizers=footprints,
        baseline_bytes=8 * 10**9,
    )  # fmt: skip


def test_the_queue_shows_places_progress_and_failures(client, services, player):
    services.experiments.submit(DEMO)
    player.finish(2)
    player.begin().report(60)
    player.begin().break_down("the device <b>fell</b> off")
    page = client.get("/queue").text
    assert "60/240" in page
    assert "the device &lt;b&gt;fell&lt;/b&gt; off" in page
    assert "no dispatcher" in page
    for path in ("/", "/queue"):
        shown = re.sub(r"<[^>]+>", " ", client.get(path).text)
        assert re.search(r"Failed runs\s+1\s+in", shown)
    waiting = services.monitor.activity().waiting
    assert [run.position for run in waiting] == list(range(1, 9))
    for run in waiting[:3]:
        assert services.runs.queue_position(run.run_id).position == run.position


def test_what_hinders_stands_first_and_nothing_is_said_where_all_is_well(services, player):
    assert concerns(services.monitor.activity(), None) == ()
    services.experiments.submit(DEMO)
    texts = [concern.text for concern in concerns(services.monitor.activity(), "The disk is full.")]
    assert texts[0] == "The disk is full."


def test_the_planner_shows_what_was_counted_and_waits_for_the_rest(client, services, monkeypatch):
    monkeypatch.setattr(services.footprints, "_begin", lambda question: None)
    page = client.get("/memory?model=gpt2-124m&rank=0.05").text
    assert "Counting gpt2-124m" in page and "data-poll" in page
    monkeypatch.setattr(services.footprints, "find", lambda question: footprint(adamw=8 * 10**9, sgd=0, adapm=None))
    page = client.get("/memory?model=gpt2-124m").text
    assert "16.0 GB" in page and "data-poll" not in page
    table = page.partition("planner-table")[2]
    assert table.index("sgd") < table.index("adamw") < table.index("adapm")
    assert 'x="50.0" width="50.0"' in table and 'x="50.0" width="0.0"' in table, "all rows have one scale"
    for wrong in ("?model=none", "?rank=0.123", "?rank=x", "?dtype=int4", "?model=<b>"):
        assert client.get(f"/memory{wrong}").status_code == 404


def test_the_planner_shows_the_largest_micro_batch_on_a_card(client, services, monkeypatch):
    counted = count.footprint("gpt2-nano", ["adamw", "sgd"], precision="fp32", sequence_length_tokens=64)
    fp32_question = footprint_question("gpt2-nano", precision="fp32")
    monkeypatch.setattr(services.footprints, "_begin", lambda question: None)
    monkeypatch.setattr(services.footprints, "find", lambda question: counted if question == fp32_question else None)
    page = client.get("/memory?model=gpt2-nano&card=0.5&precision=fp32").text
    rows = [re.sub(r"<[^>]+>", " ", row).split() for row in re.findall(r"<tr>(.*?)</tr>", page)]
    for fit in counted.fit(0.5).fits:
        (row,) = (row for row in rows if row[:1] == [fit.title] and row[-1] == fit.limit)
        assert str(fit.most_sequences) in row
    assert catalog.memory("gpt2-nano", Mock(services=services), card_gib=0.5, precision="fp32") == counted.fit(0.5)
    for wrong in ("0", "-1", "x", "nan", "1e9"):
        assert client.get(f"/memory?model=gpt2-nano&card={wrong}").status_code == 404


def test_search_finds_by_every_word_and_by_state(services, player):
    first = services.experiments.submit(DEMO.model_copy(update={"name": "Alpha beta", "priority": 1})).experiment.id
    player.finish()
    second = services.experiments.submit(DEMO.model_copy(update={"name": "Beta gamma"})).experiment.id

    def ids(**query: str) -> list[str]:
        return [
            experiment.id
            for experiment in find_experiments(
                services.experiments, services.external_runs, Search.parse(query.items()), 50
            )
        ]

    assert ids() == ids(q="beta GPT2") == ids(q="adapm-mini") == [second, first]
    assert ids(q="alpha beta") == ids(state="done") == [first]
    assert ids(state="active") == [second]
    assert ids(q="nothing") == ids(state="failed") == []
    assert find_experiments(services.experiments, services.external_runs, Search(text="beta"), 1)[0].id == second


def test_silent_runs_are_counted_in_one_sentence(services, player):
    services.experiments.submit(DEMO)
    at_work = [
        player.begin() and services.monitor.activity().at_work[0].model_copy(update={"silent_seconds": 90.0})
        for _ in "123"
    ]

    def texts(number: int) -> list[str]:
        activity = services.monitor.activity().model_copy(
            update={"at_work": tuple(at_work[:number]), "waiting_total": 0}
        )
        return [concern.text for concern in concerns(activity, None)]

    assert texts(0) == []
    assert [text.startswith("No report from 1 run for up to 1 min 30 s") for text in texts(1)] == [True]
    assert [text.startswith("No report from 3 runs") for text in texts(3)] == [True]


def test_a_start_is_estimated_only_where_a_dispatcher_begins_runs(client, services, player, tmp_path):
    services.experiments.submit(DEMO)
    player.finish(2)
    player.begin()
    waiting = services.monitor.activity().waiting[0].run_id
    for path in ("/", "/queue", f"/runs/{waiting}"):
        page = client.get(path).text
        assert "starts in about" not in page
    assert '<td data-label="Starts in (est.)" class="end num">—</td>' in client.get("/queue").text
    with closing(Database(f"sqlite:///{tmp_path / 'bench.sqlite3'}")) as database:
        assert Leadership(database, "this one").hold()
    assert "starts in about" in client.get("/").text and "starts in about" in client.get("/queue").text
    assert '<td data-label="Starts in (est.)" class="end num">—</td>' not in client.get("/queue").text
    assert "starts in about" in client.get(f"/runs/{waiting}").text
