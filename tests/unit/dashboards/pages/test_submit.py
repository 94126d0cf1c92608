"""`/new` over HTTP, as a browser without scripts uses it; its form sends the specification that a file would hold."""

import html
import re

import pytest

from dashboards.pages.submit_form import EMPTY, FIELDS, fields_of, read_form, suggested_rate
from optim import catalog
from orchestrator.jobs import LeasePolicy
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.registry import validate_spec
from orchestrator.kinds.tuning import Tuning
from orchestrator.specs.text import parse, to_yaml
from orchestrator.store.leadership import Leadership
from orchestrator.store.queue.capacity import Node, NodeId
from orchestrator.store.queue.queue import Queue
from tests.architecture.tree import REPOSITORY
from tests.factories.playing import DEMO
from tests.factories.scaling import scaling_fields
from tests.unit.dashboards.conftest import HOSTILE
from worker.spec.run import Schedule

DOCS = REPOSITORY / "docs"
FORM = {"name": "from the form", "use": ["adamw", "adapm"], "seeds": "1, 2", "steps": "20", "warmup": "2"}


def nonce_of(page: str) -> str:
    match = re.search(r'name="nonce" value="([0-9a-f]+)"', page)
    assert match
    return match[1]


def test_every_optimizer_has_its_row_candidates_first(client):
    page = client.post("/new", data=FORM | {"use": ["lion", "adapm"]}).text
    candidates, _, other_optimizers = page.partition("Other optimizers")
    assert re.findall(r'name="use" value="([^"]+)"[^>]* checked', candidates) == ["adapm", "lion"]
    assert set(re.findall(r'name="use" value="([^"]+)"', other_optimizers)) == set(catalog.names()) - {"adapm", "lion"}


@pytest.mark.parametrize("kind", ["comparison", "scaling", "sweep"])
def test_every_kind_has_a_template_that_can_be_submitted(client, services, kind):
    page = client.get(f"/new?template={kind}").text
    text = html.unescape(re.findall(r"<textarea[^>]*>(.*?)</textarea>", page, re.DOTALL)[0])
    assert text.startswith("#") and ">valid<" in page
    client.post("/new", data={"yaml": text, "action": "submit"})
    (experiment,) = services.experiments.page()
    assert experiment.spec.kind == kind
    assert "As YAML" in client.get("/new?template=none").text, "the form, where there is no such kind"


def test_submitting_the_form_leads_to_the_experiments_page(client, services):
    answer = client.post("/new", data=FORM | {"action": "submit", "shape": "wsd"}, follow_redirects=False)
    (experiment,) = services.experiments.page()
    assert experiment.spec.workload.schedule == Schedule(shape="wsd", warmup_steps=2)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/experiments/{experiment.id}")
    assert experiment.name == "from the form"
    assert experiment.counts.total == 4


def test_the_same_page_sent_twice_makes_one_experiment_and_an_edited_one_another(client, services):
    nonce = nonce_of(client.get("/new").text)
    sent = FORM | {"action": "submit", "nonce": nonce}
    places = {client.post("/new", data=sent, follow_redirects=False).headers["location"] for _ in range(2)}
    assert len(places) == 1
    client.post("/new", data=sent | {"steps": "21"}, follow_redirects=False)
    assert len(services.experiments.page()) == 2


def test_faults_stand_beside_their_fields_and_refuse_the_submission(client, services):
    answer = client.post("/new", data=FORM | {"action": "submit", "steps": "-3", "rates:adapm": "-1, 1, 2"})
    assert answer.status_code == 422
    assert services.experiments.page() == ()
    assert re.search(r'id="fault-field-steps" data-live>[^<]*equal to 1<', answer.text)
    assert re.search(r'id="fault-rates:adapm" data-live>-1: ', answer.text)
    assert 'value="-3"' in answer.text


def test_the_cost_is_estimated_from_runs_of_the_same_model(client, services, player):
    services.experiments.submit(DEMO)
    player.finish()
    page = client.post(
        "/new", data=FORM | {"model": DEMO.workload.model, "use": ["adamw", "lion"], "action": "check"}
    ).text
    assert "12 measured runs" in page and "AMD EPYC 7B13; lion: assumed" in page


def test_yaml_is_checked_and_submitted(client, services):
    text = "name: pasted\nworkload: {model: gpt2-tiny, budget: {steps: 10}}\nseeds: [1]\n"
    candidates = "candidates: [{optimizer: adamw, learning_rates: [2e-3]}]\n"
    faulty = client.post("/new", data={"yaml": text, "action": "submit"})
    assert faulty.status_code == 422
    assert listed_faults(faulty.text) == ["line 1: /candidates required"]
    assert '<textarea id="yaml" name="yaml" aria-invalid="true"' in faulty.text
    checked = client.post("/new", data={"yaml": text + candidates, "action": "check"})
    assert checked.status_code == 200 and services.experiments.page() == ()
    response = client.post("/new", data={"yaml": text + candidates, "action": "submit"}, follow_redirects=False)
    assert response.status_code == 303
    assert services.experiments.page()[0].name == "pasted"


@pytest.mark.parametrize("text", ["- a list", "{", "x: 1\nx: 2", "\x00", "{" * 500])
def test_text_that_is_no_specification_is_told_so(client, text):
    answer = client.post("/new", data={"yaml": text, "action": "submit"})
    assert answer.status_code == 422
    assert "The text" in answer.text


def test_hostile_text_comes_back_as_text(client):
    for sent in ({"name": HOSTILE, "dataset": HOSTILE}, {"yaml": HOSTILE}, {"yaml": f"name: {HOSTILE!r}"}):
        page = client.post("/new", data=sent | {"action": "check"}).text
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert(1)" in page


def example(name: str) -> str:
    return (DOCS / name).read_text()


@pytest.mark.parametrize("name", ["example.yaml", "example-search.yaml", "example-scaling.yaml", "example-sweep.yaml"])
def test_a_copy_of_any_kind_says_the_same_and_can_be_submitted(client, services, name):
    experiment = services.experiments.submit(validate_spec(parse(example(name), name))).experiment
    page = client.get(f"/new?from={experiment.id}").text
    assert '<span class="chip good">valid</span>' in page
    match = re.search(r"<textarea[^>]*>(.*?)</textarea>", page, re.DOTALL)
    assert match
    text = html.unescape(match[1])
    assert validate_spec(parse(text, "the copy")) == experiment.spec
    answer = client.post("/new", data={"yaml": text, "action": "submit", "nonce": "abc"}, follow_redirects=False)
    assert answer.status_code == 303
    assert services.experiments.page()[0].spec == experiment.spec


def test_the_form_as_it_is_first_shown_is_a_line_search_judged_on_fresh_seeds():
    spec = ComparisonSpec.model_validate(fields_of(EMPTY))
    assert [candidate.optimizer for candidate in spec.candidates] == ["adamw", "adapm", "adapm-mini"]
    assert {candidate.learning_rates for candidate in spec.candidates} == {(0.004,)}
    assert spec.workload.model == "gpt2-nano" and spec.workload.budget.steps == 150
    assert spec.tuning == Tuning() and spec.tuning.method == "line"
    assert (spec.tuning.trials, len(spec.tuning.seeds), len(spec.seeds)) == (8, 3, 10)
    assert spec.run_count() == 3 * (8 * 3 + 10)


def test_rates_that_are_not_written_follow_the_model_and_the_method():
    adamw, lion = catalog.entry("adamw"), catalog.entry("lion")
    for model, rates in (("gpt2-124m", (0.0003, 0.0006, 0.0012)), ("gpt2-nano", (0.002, 0.004, 0.008))):
        sent = [("use", "adamw"), ("model", model), ("rates:adamw", "")]
        line, grid = read_form(sent), read_form([*sent, ("tuning", "on"), ("method", "grid")])
        assert line.suggested_rates(adamw) == f"{rates[1]:g}"
        assert grid.suggested_rates(adamw) == ", ".join(f"{rate:g}" for rate in rates)
        assert ComparisonSpec.model_validate(fields_of(line)).candidates[0].learning_rates == rates[1:2]
        spec = ComparisonSpec.model_validate(fields_of(grid))
        assert spec.candidates[0].learning_rates == rates and "trials" not in fields_of(grid)["tuning"]
    assert suggested_rate(lion, "gpt2-nano") == suggested_rate(lion, "gpt2-124m"), (
        "its steps have another size than Adam's"
    )
    assert suggested_rate(adamw, "no such model") == suggested_rate(adamw, "gpt2-124m")


@pytest.mark.parametrize("entry", catalog.CATALOG, ids=lambda entry: entry.name)
def test_every_optimizer_of_the_catalog_can_be_chosen_at_the_rate_that_is_suggested(entry):
    form = read_form([("use", entry.name), ("baseline", entry.name), ("model", "gpt2-124m"), ("tokenizer", "gpt2")])
    candidate = ComparisonSpec.model_validate(fields_of(form)).candidates[0]
    assert candidate.learning_rates == pytest.approx([entry.learning_rate])


def test_options_seeds_and_tuning_take_the_types_of_the_specification():
    sent = [
        ("use", "adamw"), ("use", "adapm"), ("seeds", "4 5;6"), ("tuning", "on"), ("tuning_seeds", "0, 1"),
        ("trials", "5"),
        ("option:adapm:rank_ratio", "0.1"), ("option:adapm:bias_correction", "false"), ("option:adapm:clip", "null"),
        ("option:adapm:solver", "svd"), ("name", "1e5"), ("rates:adapm", "1e-3, 2e-3, 4e-3"),
    ]  # fmt: skip
    spec = ComparisonSpec.model_validate(fields_of(read_form(sent)))
    assert spec.name == "1e5"
    assert spec.seeds == (4, 5, 6)
    assert spec.tuning == Tuning(seeds=(0, 1), trials=5)
    assert spec.candidates[1].options == {"rank_ratio": 0.1, "bias_correction": False, "clip": None, "solver": "svd"}
    assert spec.candidates[1].learning_rates == (0.001, 0.002, 0.004)


def test_a_search_is_fields_of_the_form():
    sent = [
        ("use", "adamw"), ("use", "adapm"), ("seeds", "1, 2, 3, 4, 5"), ("tuning", "on"), ("method", "random"),
        ("search", "lr, beta2, clip"), ("trials", "9"), ("tuning_seeds", "6 7 8 9 10"), ("replicates", "5"),
    ]  # fmt: skip
    spec = ComparisonSpec.model_validate(fields_of(read_form(sent)))
    assert spec.tuning is not None
    assert (spec.tuning.method, spec.tuning.search, spec.tuning.trials) == ("random", ("lr", "beta2", "clip"), 9)
    assert (spec.tuning.seeds, spec.tuning.replicates) == ((6, 7, 8, 9, 10), 5)
    assert {candidate.learning_rates for candidate in spec.candidates} == {(0.004,)}, (
        "one rate is the middle of what is searched"
    )


def test_what_tuning_cannot_be_is_said_at_its_fields(client):
    data = {"use": "adamw", "tuning": "on", "method": "line", "trials": "2", "search": "lr, clip"}
    page = html.unescape(client.post("/new", data=data).text)
    assert re.search(r'id="fault-field-trials"[^>]*>[^<]*at least 3', page)
    page = html.unescape(client.post("/new", data=data | {"method": "coordinate"}).text)
    assert re.search(r'id="fault-field-replicates"[^>]*>[^<]*3 or more', page)
    searched = {"method": "coordinate", "replicates": "3", "seeds": "1 2 3"}
    page = html.unescape(client.post("/new", data=data | searched).text)
    assert '<span class="chip good">valid</span>' in page


def listed_faults(page: str) -> list[str]:
    """The faults that a page lists, as text."""
    lists = re.findall(r'<ul class="faults".*?</ul>', page, re.DOTALL)
    items = re.findall(r"<li>(.*?)</li>", "".join(lists), re.DOTALL)
    return [" ".join(html.unescape(re.sub(r"<[^>]+>", " ", item)).replace(" : ", ": ").split()) for item in items]


def test_faults_of_the_form_speak_of_its_labels_and_lead_to_its_fields(client):
    sent = {
        "use": ["adamw", "adapm"], "seeds": "1, x", "batch": "0", "steps": "", "tuning": "on", "trials": "0",
        "rates:adamw": "0.01 0.02 fast", "baseline": "adamw",
    }  # fmt: skip
    page = client.post("/new", data=sent).text
    assert [fault.partition(":")[0] for fault in listed_faults(page)] == [
        "Steps",
        "Sequences per step",
        "Learning rates of AdamW",
        "Seeds",
        "Trials of each candidate",
    ]
    for target in ("field-steps", "field-batch", "rates:adamw", "field-seeds", "field-trials"):
        assert f'<a href="#{target}">' in page
        (tag,) = re.findall(rf'<(?:input|select) id="{target}"[^>]*>', page)
        assert 'aria-invalid="true"' in tag
    assert "aria-invalid" not in re.findall(r'<input id="field-name"[^>]*>', page)[0]
    (warmup,) = listed_faults(client.post("/new", data=FORM | {"warmup": "900"}).text)
    assert warmup.startswith("Warm-up steps:") and warmup.endswith("= 20")


def test_a_refusal_is_said_at_the_top_until_its_faults_are_gone(client):
    answer = client.post("/new", data=FORM | {"action": "submit", "steps": "-3", "seeds": "x", "batch": "no"})
    head = re.search(
        r'<section class="card obstacles" tabindex="-1"[^>]*autofocus>.*?</section>', answer.text, re.DOTALL
    )
    assert head and ">3 faults<" in head[0]
    assert listed_faults(answer.text) == listed_faults(head[0]), "once, not beside the estimate again"
    checked = client.post("/new", data=FORM | {"action": "check", "refused": "1", "steps": "-3"}).text
    assert ">1 fault<" in checked and "autofocus" not in checked
    assert "obstacles-title" not in client.post("/new", data=FORM | {"action": "check", "refused": "1"}).text
    assert "obstacles-title" not in client.post("/new", data=FORM | {"action": "check", "steps": "-3"}).text


def test_submitting_nothing_says_what_to_do(client):
    answer = client.post("/new", data={"yaml": " \n", "action": "submit"})
    assert answer.status_code == 422
    assert "Nothing to submit" in answer.text
    for kind in ("comparison", "scaling", "sweep"):
        assert f'href="/new?template={kind}"' in answer.text
    assert "Nothing to submit" not in client.get("/new?as=yaml").text


@pytest.mark.parametrize(
    ("sizes", "budgets", "named"),
    [(2, 1, "2 model sizes"), (1, 4, "4 token budgets"), (1, 5, None), (3, 3, None)],
)
def test_too_few_sizes_for_a_law_are_warned_of_and_can_be_submitted(client, services, sizes, budgets, named):
    fields = scaling_fields(budgets=[{"tokens": 10_240 * (index + 1)} for index in range(budgets)])
    fields["sizes"] = fields["sizes"][:sizes]
    report = services.specifications.preview(fields)
    assert report.is_acceptable()
    assert [named for warning in report.warnings if named and named in warning] == ([named] if named else [])
    page = client.post("/new", data={"yaml": to_yaml(fields), "action": "check"}).text
    assert (named or "") in page


def test_a_request_that_the_cluster_cannot_hold_is_warned_of_and_can_be_submitted(client, services):
    sent = FORM | {"gpus": "4", "batch": "8"}
    assert ">valid<" in client.post("/new", data=sent).text, "nothing is known of the cluster"
    Leadership(services.database, "here").hold()
    Queue(services.database, LeasePolicy()).mark_unschedulable([Node(id=NodeId("n"), cpus=1, gpus=0)])
    page = client.post("/new", data=sent).text
    assert "4 CPUs and 4 GPUs" in page and "1 CPU and 0 GPUs" in page
    answer = client.post("/new", data=sent | {"action": "submit"}, follow_redirects=False)
    assert answer.status_code == 303


def test_unknown_names_and_boxes_do_nothing():
    form = read_form([("use", "no-such-optimizer"), ("use", "adamw"), ("surprise", "1")])
    assert [candidate["optimizer"] for candidate in fields_of(form)["candidates"]] == ["adamw"]
    assert form.value("steps") == FIELDS["steps"].default
