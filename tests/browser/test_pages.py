"""The pages in a real browser, with the real service behind them and played workers."""

import re

import pytest
from playwright.sync_api import Route

from dashboards.figures.registry import COMPARISON_FIGURES
from orchestrator.kinds.comparison import Candidate
from tests.browser.expecting import expect
from tests.factories.playing import DEMO
from tests.factories.waiting import until

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>%{x} $x$ <b>&lt;"
FIGURES = len(COMPARISON_FIGURES)
PAPER = 718
"""Pixels between the margins of an A4 page."""


@pytest.fixture
def finished(site) -> str:
    """The address of a finished experiment."""
    experiment = site.experiments.submit(DEMO).experiment
    site.player.finish()
    return f"{site.url}/experiments/{experiment.id}"


def test_a_finished_experiment_on_a_laptop(eyes, site, finished):
    """Keyboard focus is seen, the leaderboard shows who wins up to its last column, and a figure is saved as a file."""
    watched = eyes.look(width=1280, height=800)
    page = watched.open(finished, figures=FIGURES)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    rows = page.locator("#leaderboard tbody tr")
    best = site.analysis.compare(finished.rsplit("/", 1)[1]).rows[0]
    assert rows.count() == 3
    expect(rows.first).to_contain_text("AdaPM")
    assert best.val_loss is not None
    expect(rows.first).to_contain_text(f"{best.val_loss.mean:.4f}")
    expect(page.locator("#live")).to_have_text("Up to date")
    assert page.locator("#figure-curves .scatterlayer .trace").count() >= 3
    assert page.locator("#leaderboard").evaluate("e => e.scrollWidth - e.clientWidth") <= 0
    with page.expect_download() as saved:
        page.locator("#files-curves").get_by_role("link", name="PNG").click()
    assert saved.value.path().read_bytes().startswith(b"\x89PNG")
    assert watched.complaints == []


def test_a_workers_report_appears_without_reload_and_keeps_what_the_reader_is_doing(eyes, site):
    experiment = site.experiments.submit(DEMO).experiment
    run = site.player.begin()
    watched = eyes.look()
    page = watched.open(f"{site.url}/experiments/{experiment.id}", figures=FIGURES)
    expect(page.locator("#live")).to_have_text("Live")
    page.evaluate("window.stillTheSamePage = true")
    page.click("#rates-numbers summary")
    page.focus("#runs tbody tr:nth-child(4) a")
    run.report(120)
    expect(page.locator("#runs tbody tr").first).to_contain_text("120/240")
    expect(page.locator("#figure-curves .scatterlayer .trace").first).to_be_attached()
    assert page.evaluate("window.stillTheSamePage")
    assert page.evaluate("document.activeElement.closest('tr')?.rowIndex") == 4
    assert page.locator("#rates").is_visible()
    assert watched.complaints == []


def test_the_view_lives_in_the_address(eyes, finished):
    page = eyes.look().open(finished, figures=FIGURES)
    page.get_by_role("link", name="tokens", exact=True).click()
    expect(page).to_have_url(finished + "?x=tokens")
    page.get_by_role("switch", name="log loss").click()
    expect(page).to_have_url(finished + "?x=tokens&log=1")
    page.get_by_role("switch", name="AdamW", exact=True).click()
    expect(page.get_by_role("switch", name="AdamW", exact=True)).to_have_attribute("aria-checked", "false")
    expect(page).to_have_url(finished + "?x=tokens&log=1&hide=adamw")
    expect(page.locator("#figure-curves .xtitle")).to_have_text("training tokens")
    shared = eyes.look().open(page.url, figures=FIGURES)
    expect(shared.locator("#figure-curves .xtitle")).to_have_text("training tokens")
    expect(shared.locator("#figure-loss-memory .legend .traces")).to_have_count(2)
    expect(page.locator("#files-curves a").first).to_have_attribute("href", re.compile(r"curves\.svg\?x=tokens"))
    page.go_back()
    expect(page.get_by_role("switch", name="AdamW", exact=True)).to_have_attribute("aria-checked", "true")
    expect(page.locator("#figure-loss-memory .legend .traces")).to_have_count(3)


def test_quick_clicks_add_up_however_slow_the_service_is(eyes, finished):
    page = eyes.look().open(finished, figures=FIGURES)
    answers: list[Route] = []
    page.route(finished + "?**", lambda route: answers.append(route) if not answers else route.continue_())
    page.get_by_role("link", name="tokens", exact=True).click()
    expect(page).to_have_url(finished + "?x=tokens")
    page.get_by_role("switch", name="log loss").click()
    page.get_by_role("switch", name="AdamW", exact=True).click()
    assert page.url == finished + "?x=tokens"
    answers[0].continue_()
    expect(page).to_have_url(finished + "?x=tokens&log=1&hide=adamw")


def test_hostile_names_do_nothing(eyes, site):
    candidates = (
        Candidate(optimizer="adamw", learning_rates=(4e-3,)),
        Candidate(optimizer="adapm", learning_rates=(4e-3,), label=HOSTILE[:60]),
    )
    experiment = site.experiments.submit(DEMO.model_copy(update={"name": HOSTILE, "candidates": candidates})).experiment
    site.player.finish()
    run = site.runs.page(experiment_id=experiment.id)[1]
    watched = eyes.look()
    watched.page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    for path, figures in (("/", 0), (f"/runs/{run.id}", 2), (f"/experiments/{experiment.id}", FIGURES)):
        bars = watched.open(site.url + path, figures=figures)
        assert bars.locator("main img").count() == 0
        assert HOSTILE[:60] in bars.inner_text("main")
        assert watched.complaints == []
    assert HOSTILE[:60].replace(" ", "") in bars.locator("#figure-breakdown .yaxislayer-above").text_content().replace(
        "\N{NO-BREAK SPACE}", ""
    ).replace(" ", "")


def test_pages_fit_a_phone(eyes, site):
    """Nothing scrolls sideways, and neither the studies nor an experiment of 27 runs are long."""
    candidates = tuple(
        candidate.model_copy(update={"learning_rates": (1e-3, 2e-3, 4e-3)}) for candidate in DEMO.candidates
    )
    spec = DEMO.model_copy(update={"candidates": candidates, "seeds": (1, 2, 3)})
    experiment = site.experiments.submit(spec).experiment
    site.player.finish()
    run = site.runs.page(limit=1)[0]
    site.experiments.submit(DEMO.model_copy(update={"name": "anameofonehundredcharacters" * 4}))
    watched = eyes.look(width=390, height=844)
    pages = (
        ("/", 0, None),
        ("/studies", 0, 4),
        (f"/experiments/{experiment.id}", 1, 3),
        (f"/runs/{run.id}", 2, 6),
    )
    for path, figures, screens in pages:
        page = watched.open(site.url + path, figures=figures, folded=True)
        if screens is not None:
            assert page.evaluate("document.documentElement.scrollHeight") <= screens * 844, path
        boxes = page.locator("input[type=checkbox]:visible").all()
        sizes = [box.bounding_box() for box in boxes]
        assert all(size and min(size["width"], size["height"]) >= 24 for size in sizes), "each takes a finger"
        assert all(size and size["x"] + size["width"] <= 390 - 16 for size in sizes), "none is cut at its card's edge"
        assert sizes or path != "/"
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    larger = eyes.look(width=500, height=900).open(f"{site.url}/runs/{run.id}", figures=2)
    assert larger.evaluate("document.documentElement.scrollHeight") <= 3.5 * 900, "its long parts are folded"
    larger.get_by_text("host, versions, commit").click()
    expect(larger.get_by_text("Platform", exact=True)).to_be_visible()


def test_on_paper_nothing_is_cut_and_nothing_is_there_to_click(eyes, finished):
    watched = eyes.look(theme="dark")
    page = watched.open(finished, figures=FIGURES)
    on_screen = page.locator("#figure-curves .main-svg").first.bounding_box()
    page.emulate_media(media="print")
    page.set_viewport_size({"width": PAPER, "height": 1000})
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    for hidden in (".top", ".tools", ".figure-files", "#edit", ".run-actions"):
        assert not any(part.is_visible() for part in page.locator(hidden).all()), hidden
    ends = page.locator(".figure .main-svg, .grid").evaluate_all("all => all.map(e => e.getBoundingClientRect().right)")
    assert len(ends) > 2 * FIGURES and max(ends) <= PAPER
    assert page.locator("#rates").is_visible(), "the numbers of a figure, which nobody unfolded"
    assert {"avoid"} == set(page.locator("tr").evaluate_all("all => all.map(e => getComputedStyle(e).breakInside)"))
    assert page.pdf(format="A4").startswith(b"%PDF")
    page.set_viewport_size({"width": 1440, "height": 900})
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(page.locator(".top")).to_be_visible()
    assert page.locator("#figure-curves .main-svg").first.bounding_box() == on_screen
    assert watched.complaints == []


def test_everything_is_there_without_javascript(eyes, site, finished):
    page = eyes.look(scripts=False).open(finished, figures=0)
    assert page.locator("#leaderboard tbody tr").count() == 3
    assert page.locator("#runs tbody tr").count() == 12
    assert page.locator("#rates tbody tr").count() == 6
    assert page.locator(".noscript").is_visible()
    picture = page.get_by_role("img", name="Training and validation loss of each candidate")
    picture.scroll_into_view_if_needed()
    expect(picture).to_have_js_property("complete", True)
    assert picture.bounding_box()["height"] > 200, "the figure as a picture"
    assert not page.locator("#figure-curves").is_visible()
    page.get_by_role("link", name="tokens", exact=True).click()
    assert page.url == finished + "?x=tokens"
    assert not page.locator("#theme").is_visible()


def test_the_chosen_theme_is_kept(eyes, finished):
    watched = eyes.look(theme="light")
    page = watched.open(finished, figures=FIGURES)
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark != light
    adamw_on_dark = "rgb(169, 179, 193)"
    drawn = "fill => [...document.querySelectorAll('#figure-curves path.point')].some(e => e.style.fill === fill)"
    page.wait_for_function(drawn, arg=adamw_on_dark)
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark


def test_nothing_moves_where_less_motion_is_asked_for(eyes, site):
    page = eyes.look().open(site.url + "/")
    expect(page.locator("#live")).to_have_text("Live")
    assert page.evaluate("document.getAnimations().length") == 0
    page.emulate_media(reduced_motion="no-preference")
    page.wait_for_function("document.getAnimations().length > 0")


def test_the_page_is_readable_before_its_deferred_scripts_have_come(eyes, finished):
    """Nor Plotly's megabytes after them. How soon that is, `benchmarks/first_paint.py` measures."""
    page, held, waits = eyes.look().page, [], True

    def answer(route: Route) -> None:
        if waits and "/theme." not in route.request.url:
            held.append(route)
        else:
            route.continue_()

    page.route(re.compile(r"\.js\b"), answer)
    page.goto(finished, wait_until="commit")
    expect(page.locator("#leaderboard tbody tr").first).to_contain_text("AdaPM")
    until(lambda: page.evaluate("performance.getEntriesByName('first-contentful-paint').length"), "it is painted")
    assert page.evaluate("document.readyState") != "complete"
    assert any("/figures." in route.request.url for route in held), "which loads Plotly and draws"
    assert page.locator("[data-drawn]").count() == 0
    waits = False
    for route in held:
        route.continue_()
    expect(page.locator("[data-drawn]")).to_have_count(1)
