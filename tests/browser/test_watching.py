"""The queue, the planner, comparing, zooming, and the view of an experiment, in a real browser."""

import re

import pytest

from dashboards.figures.registry import COMPARISON_FIGURES
from tests.browser.expecting import expect
from tests.browser.test_accessible import ASKED, COUNTED
from tests.factories.external_runs import batch, header
from tests.factories.playing import DEMO
from worker.spec.parts import Probes
from worker.spec.run import RunSpec

pytestmark = pytest.mark.browser
FIGURES = len(COMPARISON_FIGURES)


def test_chosen_runs_are_compared_and_the_view_is_shared_by_its_address(eyes, site):
    experiment = site.experiments.submit(DEMO).experiment
    site.player.finish()
    watched = eyes.look()
    page = watched.open(f"{site.url}/experiments/{experiment.id}", figures=FIGURES)
    page.get_by_role("switch", name="more columns").click()
    expect(page.locator("#leaderboard thead")).to_contain_text("Speed-up")
    page.get_by_role("link", name="device-hours", exact=True).click()
    expect(page.locator("#figure-curves .xtitle")).to_have_text("device-hours")
    assert page.url.endswith("?x=hours&columns=all")
    for number in (0, 1):
        page.locator("#runs input[type=checkbox]").nth(number).check()
    page.get_by_role("button", name="Compare selected").click()
    expect(page.locator("[data-drawn]")).to_have_count(2)
    expect(page.locator("#differences tbody tr")).to_have_count(1)
    expect(page.locator("#differences")).to_contain_text("optimizer.name")
    page.locator("#panels .panel-settings summary").first.click()
    page.locator("#panel-form-0 select[name=p_metric]").select_option("lr")
    expect(page.locator("#figure-panel-0 .ytitle")).to_have_text("learning rate")
    assert watched.complaints == []


def test_a_run_of_another_loop_is_selected_among_all_runs_and_compared_with_a_measured_one(eyes, site):
    experiment = site.experiments.submit(DEMO).experiment
    site.player.finish()
    site.external_runs.append("mine", batch({0: 5.0, 100: 3.0, 200: 2.5}, run=header(config={"batch": 512})))
    watched = eyes.look()
    page = watched.open(f"{site.url}/runs?q=candidate=muon or experiment_id={experiment.id} and seed=1")
    page.get_by_label("Select run mine").check()
    page.locator("input[type=checkbox][name=runs]").nth(1).check()
    page.get_by_role("button", name="Compare selected").click()
    expect(page.locator("[data-drawn]")).to_have_count(2)
    expect(page.locator(".chosen-runs")).to_contain_text("logged")
    expect(page.locator("#results thead")).to_contain_text("logged")
    expect(page.locator("#results")).to_contain_text("2.5000")
    expect(page.locator("#differences")).to_contain_text("config.batch")
    phone = eyes.look(width=500, theme="dark")
    assert phone.open(page.url, figures=2).evaluate("document.documentElement.scrollWidth") <= 500
    assert watched.complaints == phone.complaints == []


def test_what_is_selected_stays_so_while_rows_move(eyes, site):
    """And nothing is offered before anything is selected."""
    first = site.experiments.submit(DEMO).experiment
    page = eyes.look().open(site.url)
    compare = page.get_by_role("button", name="Compare selected")
    expect(compare).to_be_disabled()
    page.get_by_label(f"Select {DEMO.name}").check()
    expect(compare).to_be_enabled()
    site.experiments.submit(DEMO.model_copy(update={"name": "a newer one"}))
    expect(page.locator("#experiments tbody tr")).to_have_count(2)
    ticked = page.locator(".choose input:checked")
    expect(ticked).to_have_count(1)
    expect(ticked).to_have_value(first.id)
    expect(compare).to_be_enabled()


def test_the_planner_shows_its_answer_as_soon_as_it_is_known(eyes, site, monkeypatch):
    monkeypatch.setattr(site.footprints, "_begin", lambda question: None)
    watched = eyes.look(width=390, height=844)
    page = watched.open(site.url + "/memory?model=gpt2-124m")
    expect(page.locator("#plan")).to_contain_text("Counting gpt2-124m")
    monkeypatch.setattr(site.footprints, "find", lambda question: COUNTED if question == ASKED else None)
    expect(page.locator(".planner-table tbody tr")).to_have_count(1)
    expect(page.locator(".planner-table")).to_contain_text("13.0 kB")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator("#plan-rank").select_option(label="10 %")
    page.wait_for_url("**rank=0.1*")
    assert watched.complaints == []


def test_the_runs_page_has_probes_the_log_and_the_command_that_trains_it_again(eyes, site):
    probes = Probes(every_steps=40)
    workload = DEMO.workload.model_copy(update={"probes": probes})
    site.experiments.submit(DEMO.model_copy(update={"workload": workload}))
    site.player.finish(1)
    run = site.runs.page(limit=1)[0]
    watched = eyes.look()
    watched.page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=site.url)
    page = watched.open(f"{site.url}/runs/{run.id}", figures=3)
    page.get_by_role("link", name="residual", exact=True).click()
    expect(page.locator("#probe-details")).to_contain_text("Numbers at step 240")
    expect(page.locator("#figure-probe .barlayer .point")).to_have_count(72)
    expect(page.locator("#log")).to_contain_text("No log here")
    page.get_by_role("button", name="Copy the command").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    first, *middle, last = page.evaluate("navigator.clipboard.readText()").strip().splitlines()
    assert (first, last) == ("adapm-bench run - <<'SPEC'", "SPEC")
    assert RunSpec.model_validate_json("\n".join(middle)) == run.spec
    assert watched.complaints == []


def test_parts_are_drawn_once_unfolded_and_further_columns_stand_in_the_address(eyes, site):
    experiment = site.experiments.submit(DEMO).experiment
    site.player.finish()
    watched = eyes.look()
    page = watched.open(f"{site.url}/experiments/{experiment.id}", figures=1, folded=True)
    assert not any("figures/curves.json" in request for request in watched.requests)
    page.get_by_text("Loss curves").click()
    expect(page.locator("[data-drawn]")).to_have_count(2)
    assert page.locator("#leaderboard thead th").count() == 7
    page.get_by_role("switch", name="more columns").click()
    expect(page.locator("#leaderboard thead th")).to_have_count(12)
    assert page.url.endswith("?columns=all")
    expect(page.locator("#figure-curves")).to_be_visible()
    linked = eyes.look().open(page.url + "&x=tokens", figures=2, folded=True)
    assert linked.locator("#leaderboard thead th").count() == 12
    assert linked.locator("#figure-curves").is_visible(), "its view is what the link is about"
    linked.close()
    assert watched.complaints == []


def test_figures_without_anything_to_draw_take_little_room_until_there_is(eyes, site):
    experiment = site.experiments.submit(DEMO).experiment
    page = eyes.look().open(f"{site.url}/experiments/{experiment.id}", figures=FIGURES)
    expect(page.locator(".figure[data-empty]")).to_have_count(FIGURES)
    assert page.locator("#figure-curves").bounding_box()["height"] < 120
    site.player.begin().report(120)
    expect(page.locator("#figure-curves .scatterlayer .trace").first).to_be_attached()
    expect(page.locator("#figure-curves .main-svg").first).to_have_css("height", "430px")


RANGES = "figure => [figure.layout.xaxis.range, figure.layout.yaxis.range].map(range => range.map(Number))"


def drag(page, selector: str, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Pull the mouse from one place of an element to another, as shares of its width and height, once it stands still
    and nothing lies above it."""
    element = page.locator(selector).first
    element.evaluate("each => each.scrollIntoView({ block: 'center' })")
    box = element.bounding_box()
    element.hover(position={"x": start[0] * box["width"], "y": start[1] * box["height"]})
    box = element.bounding_box()
    page.mouse.down()
    page.mouse.move(box["x"] + end[0] * box["width"], box["y"] + end[1] * box["height"], steps=8)
    page.mouse.up()


def test_a_zoom_outlasts_refreshes_and_is_shared_by_the_address(eyes, site):
    experiment = site.experiments.submit(DEMO).experiment
    run = site.player.begin()
    run.report(run.total // 2)
    watched = eyes.look()
    page = watched.open(f"{site.url}/experiments/{experiment.id}", figures=FIGURES)
    figure = page.locator("#figure-curves")
    expect(figure.locator(".scatterlayer .trace").first).to_be_attached()
    whole = figure.evaluate(RANGES)
    drag(page, "#figure-curves .nsewdrag", (0.1, 0.2), (0.3, 0.7))
    expect(page).to_have_url(re.compile(r"\?zoom=curves\*x\*"))
    zoomed = figure.evaluate(RANGES)
    assert whole[0][0] < zoomed[0][0] < zoomed[0][1] < whole[0][1]
    assert whole[1][0] < zoomed[1][0] < zoomed[1][1] < whole[1][1]
    points = figure.evaluate("figure => figure.data[0].x.length")
    run.report(3 * run.total // 4)
    page.wait_for_function("before => document.getElementById('figure-curves').data[0].x.length > before", arg=points)
    assert figure.evaluate(RANGES) == zoomed
    page.get_by_role("switch", name="more columns").click()
    expect(page).to_have_url(re.compile(r"\?columns=all&zoom=curves\*x\*"))
    shared = eyes.look().open(page.url, figures=FIGURES)
    assert shared.locator("#figure-curves").evaluate(RANGES) == [pytest.approx(range, rel=1e-4) for range in zoomed]
    shared.close()  # the page in front alone is painted, and a drag waits for that
    page.locator("#figure-curves .nsewdrag").first.dblclick()
    expect(page).to_have_url(re.compile(r"\?columns=all$"))
    assert figure.evaluate(RANGES)[0] == whole[0]
    drag(page, "#figure-curves .nsewdrag", (0.1, 0.2), (0.3, 0.7))
    expect(page).to_have_url(re.compile("zoom=curves"))
    page.get_by_role("link", name="tokens", exact=True).click()
    expect(figure.locator(".xtitle")).to_have_text("training tokens")
    assert page.url.endswith("?x=tokens&columns=all"), "a range of steps says nothing of tokens"
    page.go_back()
    expect(figure.locator(".xtitle")).to_have_text("step")
    expect(page).to_have_url(re.compile("zoom=curves"))
    page.wait_for_function("() => document.getElementById('figure-curves').layout.xaxis.range[0] > 10")
    assert watched.complaints == []
