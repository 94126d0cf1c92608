"""Several runs or experiments at once: the question says what it means; what cannot be done is named."""

from pathlib import Path

from starlette.testclient import TestClient

from dashboards.data.search import Search, find_experiments
from orchestrator.annotations import AnnotationChange
from orchestrator.jobs import RunAction, RunStatus
from tests.factories.external_runs import batch, header
from tests.factories.serving import application, open_services
from tests.factories.stores import comparison_spec


def test_selected_runs_are_retried_labelled_and_deleted(tmp_path: Path) -> None:
    with open_services(tmp_path) as (services, _), TestClient(application(services)) as browser:
        ended, active = (
            services.experiments.submit(comparison_spec(name=name, seeds=(1, 2))).experiment.id
            for name in ("<b>ended", "active")
        )
        services.experiments.apply(ended, RunAction.CANCEL)
        services.external_runs.append("mine", batch({0: 5.0}, run=header("muon")))
        first, second = (run.id for run in services.runs.page(experiment_id=ended))
        waiting = services.runs.page(experiment_id=active)[0].id
        page = browser.get("/runs").text
        assert 'value="external:mine"' in page and 'formaction="/selection"' in page

        chosen = {"runs": [first, waiting, "external:mine", "nothing"], "back": "/runs?q=lr<1"}
        unknown = browser.post("/selection", data={"runs": [first], "act": "nope"})
        assert unknown.status_code == 422 and "there are" in unknown.text
        asked = browser.get("/selection", params=chosen | {"action": "retry"}).text
        assert "Retry 1 run?" in asked
        assert 'href="/runs?q=lr&lt;1"' in asked
        answer = browser.post("/selection", data={"runs": [first], "action": "retry", "back": "/runs?q=lr"})
        assert answer.history[0].headers["Location"] == "/runs?q=lr"
        states = {run.id: run.status for run in services.runs.page(experiment_id=ended)}
        assert states == {first: RunStatus.QUEUED, second: RunStatus.CANCELLED}
        services.experiments.apply(ended, RunAction.CANCEL)

        labelled = {"runs": [first, second], "experiments": [active], "action": "label", "back": "//evil.example"}
        assert browser.post("/selection", data=labelled | {"label": "a, b"}).status_code == 422
        answer = browser.post("/selection", data=labelled | {"label": " paper "}, follow_redirects=False)
        assert answer.headers["Location"] == "/runs", "never to another site"
        assert services.experiments.get(ended).labels == services.experiments.get(active).labels == ("paper",)
        assert services.experiments.get(ended).revision == 1
        browser.post("/selection", data=labelled | {"label": "paper"})
        assert services.experiments.get(ended).revision == 1, "what has the label is not touched"

        study_id = services.external_runs.experiment("a study").id
        browser.post("/selection", data={"runs": ["external:mine"], "action": "label", "label": "paper"})
        assert services.external_runs.experiment(study_id).labels == ("paper",), (
            "a run's label is that of its experiment"
        )

        crowd = {"runs": [first, *map(str, range(200))], "action": "delete"}
        for answer in (browser.get("/selection", params=crowd), browser.post("/selection", data=crowd)):
            assert answer.status_code == 422 and "201" in answer.text
        asked = browser.get("/selection", params=chosen | {"action": "delete"}).text
        assert "Delete 2 experiments" in asked and "1 logged or imported run?" in asked
        assert "&lt;b&gt;ended" in asked and "<b>ended" not in asked
        partly = browser.post("/selection", data=chosen | {"action": "delete"})
        assert partly.status_code == 409 and "2 done" in partly.text and "no run nothing" in partly.text
        assert f"/experiments/{active}: " in partly.text
        assert [experiment.id for experiment in services.experiments.page()] == [active]
        assert services.external_runs.experiments() == (), "it goes with its last run"

        services.external_runs.append("other", batch({0: 5.0}, run=header("muon")))
        study_id = services.external_runs.experiment("a study").id
        chosen = {"experiments": [study_id], "action": "delete", "back": "/"}
        assert "permanently" in browser.get("/selection", params=chosen).text
        assert browser.post("/selection", data=chosen, follow_redirects=False).headers["Location"] == "/"
        assert services.external_runs.experiments() == ()


def test_the_first_page_lists_the_newest_first_and_selects(tmp_path: Path) -> None:
    with open_services(tmp_path) as (services, _), TestClient(application(services)) as browser:
        ids = {
            name: services.experiments.submit(comparison_spec(name=name, seeds=range(seeds))).experiment.id
            for name, seeds in (("beta", 1), ("Alpha", 3), ("gamma", 2))
        }
        services.experiments.apply(ids["gamma"], RunAction.CANCEL)
        services.experiments.annotate(ids["beta"], AnnotationChange(labels=("paper",)))

        def names(query: Search) -> list[str]:
            return [
                experiment.name
                for experiment in find_experiments(services.experiments, services.external_runs, query, 2)
            ]

        assert names(Search()) == names(Search(text="a")) == ["gamma", "Alpha"]
        assert names(Search(labels=("paper",))) == ["beta"]
        page = browser.get("/?q=a").text
        assert 'name="back" value="/?q=a"' in page and 'formaction="/profiles" form="selection"' in page
        chosen = {"experiments": list(ids.values())[:2], "action": "delete", "back": "/?q=a"}
        assert browser.get("/selection", params=chosen).text.count("still running") == 2
        assert browser.get("/profiles", params=chosen).status_code == 200
