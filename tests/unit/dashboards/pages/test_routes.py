"""Every page, figure and static file over HTTP, without a browser."""

import gzip
import hashlib
import html
import re

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from dashboards import assets
from dashboards.assets import PLOTLY
from dashboards.data.reader import Reader
from dashboards.files import publication
from dashboards.files.figures import FigureFiles
from dashboards.pages.routes import RUNS_SHOWN, first_runs
from dashboards.text import formats
from dashboards.view_state import ViewState
from orchestrator.analysis import verdicts
from orchestrator.jobs import RunStatus
from orchestrator.keys import KeyRequest, Scope
from orchestrator.kinds.tuning import Tuning
from orchestrator.services.composition import Services
from orchestrator.store.admin.audit import AuditLine
from tests.factories.external_runs import batch, header
from tests.factories.playing import DEMO, STATE_BYTES, Player
from tests.factories.stores import claim, comparison_spec

AT_THREE_RATES = DEMO.model_copy(
    update={
        "candidates": tuple(
            candidate.model_copy(update={"learning_rates": (3e-3, 4e-3, 5e-3)}) for candidate in DEMO.candidates
        )
    }
)


def test_a_filter_that_cannot_be_read_is_refused(services):
    client = TestClient(create_app(services), base_url="http://127.0.0.1")
    refused = client.get("/?state=nope", headers={"Accept": "text/html"})
    assert refused.status_code == 422
    assert "&#39;nope&#39;" in refused.text and "active, done" in refused.text
    assert client.get("/?utm_source=mail&x=nope").status_code == 200, "what is not a filter hides nothing"
    assert client.get("/?label=a,b").status_code == 422


def test_home_says_who_leads_by_how_much_with_which_verdict_and_at_what_cost(client, services, player):
    experiment = services.experiments.submit(AT_THREE_RATES).experiment
    player.finish()
    text = " ".join(re.sub(r"<[^>]+>", " ", client.get("/").text).replace("&nbsp;", " ").split())
    for row in services.analysis.compare(experiment.id).rows:
        assert row.val_loss is not None
        assert f"{row.title} {formats.loss(row.val_loss.mean)} ±" in text
        if row.difference is not None:
            phrase = f"{formats.difference(row.difference.mean)} {verdicts.WORDS[row.conclusion]}"
            assert f"{phrase} {formats.size(row.optimizer_state_bytes)}" in text
    seconds = sum(run.device_seconds for run in services.runs.read_all(experiment.id))
    assert f"{formats.duration(seconds)} of device time" in text


def test_a_tuned_comparison_says_that_it_is_tuned_while_no_seed_counts(client, services, player):
    """Runs have ended, only not yet those that are compared."""
    tuned = services.experiments.submit(DEMO.model_copy(update={"tuning": Tuning(seeds=(99,))})).experiment
    page = client.get(f"/experiments/{tuned.id}").text
    assert f"1 of {tuned.spec.run_count()} runs" not in page
    player.finish(1)
    page = client.get(f"/experiments/{tuned.id}").text
    assert f"1 of {tuned.spec.run_count()} runs" in page
    assert "tuning" in client.get("/").text


def test_all_pairs_stand_below_the_leaderboard_and_lost_runs_in_its_further_columns(client, services, player):
    experiment = services.experiments.submit(DEMO.model_copy(update={"all_pairs": True})).experiment
    plain = services.experiments.submit(DEMO).experiment
    player.finish()
    comparison = services.analysis.compare(experiment.id)
    assert len(comparison.pairs) == len(comparison.rows) * (len(comparison.rows) - 1) // 2 > len(comparison.rows) - 1
    page = client.get(f"/experiments/{experiment.id}?columns=all").text
    assert all(f"<bdi>{pair.title}</bdi> − <bdi>{pair.other_title}</bdi>" in page for pair in comparison.pairs)
    seeds = len(DEMO.seeds)
    assert page.count(f">0 of {seeds}<") == len(comparison.rows)
    assert "All pairs" not in client.get(f"/experiments/{plain.id}").text


def test_profiles_of_experiments_without_a_common_candidate_are_a_page(client, services, player):
    """Each counts as not there where it was not trained."""
    ids = [
        services.experiments.submit(
            DEMO.model_copy(update={"candidates": (candidate,), "baseline": None})
        ).experiment.id
        for candidate in DEMO.candidates[:2]
    ]
    player.finish()
    answer = client.get(f"/profiles?experiments={','.join(ids)}")
    assert answer.status_code == 200
    assert all(candidate.title() in answer.text for candidate in DEMO.candidates[:2])


def test_leaderboard_holds_what_the_comparison_says(client, services, finished):
    page, whole = (client.get(f"/experiments/{finished}{query}").text for query in ("", "?columns=all"))
    table = page[page.index('<table class="grid leaderboard') :].partition("</table>")[0]
    assert table.count('<th scope="col"') == 7
    for row in services.analysis.compare(finished).rows:
        assert row.val_loss is not None
        assert f"{row.val_loss.mean:.4f}" in table
        assert f">{verdicts.WORDS[row.conclusion]}</span>" in table
        assert formats.page_sentence(row.verdict) in html.unescape(whole)
    assert "Device time (cpu)" in whole and "Device time (gpu)" not in whole
    assert f"{100 * STATE_BYTES['adapm'] / STATE_BYTES['adamw']:.0f} %" in page


def test_peak_memory_is_that_of_the_tensors_and_the_process_is_a_detail(client, services, finished):
    rows = services.analysis.compare(finished).rows
    runs = [run for run in services.runs.read_all(finished) if run.result is not None]
    largest = {
        row.candidate: max(run.result.memory_breakdown.peak_bytes for run in runs if run.candidate == row.candidate)
        for row in rows
    }
    assert {row.candidate: row.peak_memory_bytes for row in rows} == largest
    host = {formats.size(run.result.peak_memory.host_rss_bytes) for run in runs}
    for path in (f"/experiments/{finished}", "/"):
        assert not any(size in client.get(path).text for size in host)
    page = client.get(f"/experiments/{finished}?columns=all").text
    table = publication.markdown(services.analysis.compare(finished))
    for row in rows:
        assert f'{formats.size(row.peak_memory_bytes)}<span class="sub">tensors</span>' in page
        assert publication.md(formats.size(row.peak_memory_bytes)) in table
    comparison_page = client.get(f"/compare?runs={runs[0].id},{runs[-1].id}").text
    for name, size in (
        ("peak memory (tensors)", runs[0].result.peak_tensor_bytes()),
        ("host RSS of the process", runs[0].result.peak_memory.host_rss_bytes),
    ):
        assert name in comparison_page and formats.size(size) in comparison_page.partition(name)[2]
    run_page = client.get(f"/runs/{runs[0].id}").text
    assert run_page.index("Peak memory (tensors)") < run_page.index("Peak host RSS")


def test_the_first_runs_begin_with_those_at_work(services, finished):
    runs = [run.model_copy(update={"position": n, "status": RunStatus.RUNNING if n > 70 else run.status})
            for n, run in enumerate([*Reader(services).snapshot(finished).runs] * 8)]  # fmt: skip
    shown = [run.position for run in first_runs(runs)]
    assert len(shown) == RUNS_SHOWN
    assert shown == [*range(71, 80), *range(RUNS_SHOWN - 9)]


def test_a_failed_run_tells_why(client, services, player):
    experiment = services.experiments.submit(DEMO).experiment
    run = player.begin()
    run.break_down("CUDA error: an illegal memory access was encountered")
    assert services.runs.page(experiment_id=experiment.id, status=RunStatus.FAILED)
    assert "illegal memory access" in client.get(f"/experiments/{experiment.id}").text
    assert "illegal memory access" in client.get(f"/runs/{run.lease.run_id}").text


@pytest.mark.parametrize("status", ["queued", "leased", "running", "succeeded"])
def test_a_run_has_a_page_in_every_state(client, services, player, status):
    services.experiments.submit(DEMO)
    if status == "leased":
        claim(player.queue, cpus=1, gpus=0, limit=1)
    elif status != "queued":
        run = player.begin()
        run.report(30)
        if status == "succeeded":
            run.finish()
    record = services.runs.page(limit=1)[0]
    assert record.status.value == status
    assert client.get(f"/runs/{record.id}").status_code == 200
    assert client.get(f"/runs/{record.id}/figures/series.json").status_code == 200


@pytest.mark.parametrize("path", ["/experiments/none/events", "/experiments/none/figures/curves.json"])
def test_streams_and_figures_of_nothing_are_not_found(client, path):
    assert client.get(path).status_code == 404


def figures_of(page: str) -> set[str]:
    """The addresses of a page's figures, but for their ending."""
    return set(re.findall(r'data-figure="([^"]*)\.json', page))


def test_every_figure_of_every_page_is_a_file_in_every_form(client, services, finished):
    runs = services.runs.page(experiment_id=finished)
    pages = (f"/experiments/{finished}", f"/runs/{runs[0].id}", f"/compare?runs={runs[0].id}")
    figures_by_page = {page: figures_of(client.get(page).text) for page in pages}
    assert all(figures_by_page.values())
    assert not figures_of(client.get(f"/fits?experiments={finished}").text), "one size has no law to draw"
    for page, figures in figures_by_page.items():
        text = client.get(page).text
        for figure in figures:
            for form in ("svg", "csv"):
                assert f'<a download href="{figure}.{form}' in text
    for form, begins in (("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF"), ("csv", b"trace,"), ("html", b"<!")):
        answer = client.get(f"/runs/{runs[0].id}/figures/series.{form}")
        assert answer.content.lower().startswith(begins.lower())
        assert answer.headers["Content-Disposition"] == f'attachment; filename="{runs[0].id}-series.{form}"'
    for figure in figures_by_page[f"/experiments/{finished}"]:
        assert client.get(f"{figure}.svg").content.startswith(b"<?xml")


def test_runs_beside_each_other_are_read_anew_only_when_their_experiments_change(client, services, finished):
    path = f"/compare/figures/panel.json?runs={services.runs.page(experiment_id=finished)[0].id}"
    tag = client.get(path).headers["ETag"]
    services.experiments.submit(DEMO)  # another one
    assert client.get(path, headers={"If-None-Match": tag}).status_code == 304
    assert client.get(path, headers={"If-None-Match": '"0"'}).status_code == 200


def test_a_listener_that_reconnects_hears_only_what_it_missed(client, services, finished):
    path = f"/experiments/{finished}/events?since=0"
    version = services.experiments.version(finished)
    assert "event: changed" in client.get(path).text
    assert "event: changed" not in client.get(path, headers={"Last-Event-ID": str(version)}).text


def test_static_files_are_cached_for_a_year_and_compressed(client):
    for name in ("app.css", "palette.css", "live.js", PLOTLY):
        answer = client.get(f"/static/{name}", headers={"Accept-Encoding": "gzip"})
        assert answer.status_code == 200
        assert "immutable" in answer.headers["Cache-Control"]
        assert answer.headers["Content-Encoding"] == "gzip"
    plain = client.get("/static/app.css", headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in plain.headers
    assert ":root" in plain.text


def test_a_page_weighs_little_without_plotly(client, finished):
    page = client.get(f"/experiments/{finished}")
    names = set(re.findall(r'(?:src|href)="/static/([\w.]+)', page.text)) - {PLOTLY}
    weight = len(page.content) + sum(len(client.get(f"/static/{name}").content) for name in names)
    assert weight <= 150_000


def test_a_damaged_row_is_marked_where_it_is_shown(services, player):
    """A result, the specification of a run, and the specification of an experiment."""
    client = TestClient(create_app(services, allowed_hosts=("testserver",)))
    experiment = services.experiments.submit(DEMO).experiment
    broken = services.experiments.submit(DEMO.model_copy(update={"name": "broken"})).experiment
    player.finish()
    first, second = [run.id for run in services.runs.read_all(experiment.id)][:2]
    with services.keyring._database.writing() as connection:
        for statement in (
            f"UPDATE results SET result = '{{' WHERE run_id = '{first}'",
            f"UPDATE run_specs SET spec = 'nonsense' WHERE run_id = '{second}'",
            f"UPDATE experiments SET spec = 'null' WHERE id = '{broken.id}'",
        ):
            assert connection.exec_driver_sql(statement).rowcount > 0
    assert client.get(f"/experiments/{experiment.id}").text.count(">damaged<") == 2
    assert client.get("/?q=broken").text.count(">damaged<") == 1
    for id, part in ((first, "stored result"), (second, "stored specification")):
        assert part in client.get(f"/runs/{id}").text
    refused = client.get(f"/experiments/{broken.id}", headers={"accept": "text/html"})
    assert (refused.status_code, broken.id in refused.text) == (500, True)
    assert client.get(f"/v1/experiments/{broken.id}").json()["type"] == "urn:adapm-bench:problem:damaged"


def test_another_baseline_is_chosen_in_the_address(client, services, player):
    experiment = services.experiments.submit(AT_THREE_RATES).experiment.id
    player.finish()
    path = f"/experiments/{experiment}"
    page = client.get(f"{path}?baseline=adapm&x=tokens").text
    assert '<input type="hidden" name="x" value="tokens">' in page
    assert '<option value="adapm" selected>' in page and f"{path}/table.csv?baseline=adapm&amp;x=tokens" in page
    assert client.get(f"{path}?baseline=none").status_code == 200, "an edited link still opens"
    assert client.get(f"{path}/table.csv?baseline=adapm").text != client.get(f"{path}/table.csv").text
    figures, view = FigureFiles(Reader(services)), ViewState(baseline="adapm")
    on_the_page = client.get(f"{path}/figures/loss-memory.json?baseline=adapm").json()
    assert figures.picture(experiment, "loss-memory", view).figure["data"] == on_the_page["data"]
    assert figures.picture(experiment, "loss-memory", ViewState()).figure["data"] != on_the_page["data"]


def test_admins_see_keys_and_who_changed_what(
    client: TestClient, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = client.get("/keys").text
    assert "No keys" in empty
    ada = services.keyring.create(KeyRequest(label="<b>Ada", scope=Scope.SUBMITTER, runs_at_once=3))
    bob = services.keyring.create(KeyRequest(label="Bob"))
    services.keyring.revoke(bob.key.id)
    for number, new_key in enumerate((ada, ada, bob)):
        services.audit.add(
            AuditLine(key_id=new_key.key.id, address="10.0.0.1", action=f"act{number}", target="/x", outcome=409)
        )
    page = client.get("/keys").text
    assert "&lt;b&gt;Ada" in page and "<b>Ada" not in page and "0 of 3" in page and ">revoked<" in page
    assert ada.secret not in page and page.index("act2") < page.index("act1") < page.index("act0")
    of_ada = client.get(f"/keys?key={ada.key.id}").text
    assert "act1" in of_ada and "act2" not in of_ada
    monkeypatch.setattr("dashboards.pages.service.LINES_SHOWN", 2)
    first = client.get("/keys").text
    assert "act1" in first and "act0" not in first
    address = first.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
    older = client.get(address).text
    assert "act0" in older and "act1" not in older and 'rel="next"' not in older
    assert client.get("/keys?key=a%00b&before=\u00b2").status_code == 200


def test_the_table_of_all_runs_is_filtered_sorted_grouped_and_downloaded(
    client: TestClient, services: Services, player: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "No run matches" in client.get("/runs").text
    experiment = services.experiments.submit(comparison_spec(optimizers=("adamw", "lion"), seeds=range(60))).experiment
    player.finish(1)
    services.external_runs.append("mine", batch({0: 5.0, 9: 2.5}, run=header("<b>muon</b>", config={"note": "=1+1"})))
    page = client.get("/runs").text
    assert "&lt;b&gt;muon" in page and "<b>muon" not in page and ">logged</span>" in page and 'rel="next"' in page
    assert 'name="runs" value="mine"' in page, "the id that the table shows is the one that /compare takes"
    narrowed = client.get("/runs?q=candidate=lion and seed<3&sort=-seed&columns=seed,spec.workload.model").text
    assert narrowed.count('name="runs"') == 3 and "gpt2" in narrowed and 'aria-sort="descending"' in narrowed
    assert narrowed.index(">2</bdi>") < narrowed.index(">0</bdi>")
    grouped = client.get("/runs?group=candidate").text
    assert grouped.count(">60</td>") == 2 and "candidate%22+%3D+%22lion" in grouped
    several = client.get("/runs?group=candidate+lr").text
    assert "candidate%22+%3D+%22lion" in several and "and+%22lr%22" in several and "Mean validation loss" in several
    monkeypatch.setattr("orchestrator.store.run_table.MOST_GROUPS", 1)
    cut = client.get("/runs?group=candidate").text
    assert cut.count(">60</td>") == 1
    faulty = client.get("/runs?q=lr<oops")
    assert faulty.status_code == 422 and "position 4" in faulty.text and 'value="lr&lt;oops"' in faulty.text
    assert client.get("/runs?sort=secret").status_code == 422 and client.get("/runs.csv?q=lr<").status_code == 422
    assert client.get("/runs?after=gone").status_code == 422
    for address in ("/runs.csv?where=lr%3D0.5", "/runs?where=(((("):
        lost = client.get(address)
        assert lost.status_code == 422, "a filter does not vanish"
    lines = client.get("/runs.csv?columns=config.note,state").text.splitlines()
    assert len(lines) == 1 + 120 + 1 and sum("finished" in line for line in lines) == 1
    assert next(line for line in lines if line.startswith("mine")).endswith("'=1+1,running"), "no formula"
    assert client.get(f"/runs?q=experiment_id={experiment.id}&sort=metric.val_loss").status_code == 200


@pytest.mark.parametrize("name", ["../routes.py", "nothing.css", "", "templates", "/etc/passwd"])
def test_no_other_file_can_be_asked_for(name):
    with pytest.raises(KeyError):
        assets.asset(name)


def test_the_address_carries_the_content():
    stylesheet = assets.asset("app.css")
    assert assets.url("app.css") == f"/static/app.css?v={stylesheet.digest}"
    assert gzip.decompress(stylesheet.gzipped_body) == stylesheet.body


def test_plotly_is_the_official_bundle_unchanged():
    assert hashlib.sha256(assets.asset(assets.PLOTLY).body).hexdigest() == assets.PLOTLY_SHA256
    assert len(assets.asset(assets.PLOTLY).gzipped_body) < 400_000
