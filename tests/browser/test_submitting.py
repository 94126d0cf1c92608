"""The submit form in a real browser: checked while it is written, submitted, followed to the end."""

import re

import pytest
from playwright.sync_api import Dialog

from orchestrator.specs.footprints import footprint_question
from tests.architecture.tree import REPOSITORY
from tests.browser.expecting import expect

pytestmark = pytest.mark.browser
SWEEP = (REPOSITORY / "docs" / "example-sweep.yaml").read_text()


def test_from_the_form_to_a_full_leaderboard(eyes, site):
    watched = eyes.look()
    page = watched.open(site.url + "/new")
    expect(page.locator("#preview")).to_contain_text("102")
    expect(page.locator("#preview")).to_contain_text(re.compile(r"adapm-mini \d"))  # what it keeps in memory
    assert site.footprints.find(footprint_question("gpt2-nano")) is not None
    page.get_by_label("Steps", exact=True).fill("12")
    expect(page.locator("#fault-field-warmup")).to_contain_text("must be below budget.steps = 12")
    page.get_by_label("Warm-up steps").fill("2")
    page.get_by_label("Seeds", exact=True).fill("1, 2")
    expect(page.locator("#fault-field-warmup")).to_have_text("")
    expect(page.locator("#preview .chip")).to_have_text("valid")
    page.locator("input[value=adapm-mini]").uncheck()
    expect(page.locator("#preview")).to_contain_text("52")
    page.get_by_text("Other optimizers").click()
    page.locator("input[value=galore]").press("Space")
    expect(page.locator("#preview")).to_contain_text("78")
    page.locator("input[value=galore]").uncheck()
    expect(page.locator("#preview")).to_contain_text("52")
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url("**/experiments/*")
    expect(page.locator(".title-row .chip")).to_have_text("queued")
    expect(page.locator("#live")).to_have_text("Live")
    site.player.finish()
    expect(page.locator(".title-row .chip")).to_have_text("done")
    expect(page.locator("#live")).to_have_text("Up to date")
    expect(page.locator(".headline")).to_contain_text("than AdamW")
    expect(page.locator("#figure-loss-memory .scatterlayer .trace").first).to_be_attached()
    assert watched.complaints == []


def test_what_was_written_is_not_lost_on_the_way(eyes, site):
    """The tab takes the form over as YAML; whoever has followed a link finds it again on the way back."""
    page = eyes.look().open(site.url + "/new")
    page.get_by_label("Name").fill("kept")
    page.get_by_label("Steps", exact=True).fill("77")
    page.get_by_role("link", name="Memory", exact=True).click()
    page.wait_for_url("**/memory")
    page.go_back()
    expect(page.get_by_label("Name")).to_have_value("kept")
    expect(page.get_by_label("Steps", exact=True)).to_have_value("77")
    page.get_by_role("button", name="YAML", exact=True).click()
    expect(page.locator("textarea")).to_contain_text("steps: 77")
    expect(page.locator("textarea")).to_contain_text("name: kept")


def test_by_keyboard_the_form_stays_as_it_is_written(eyes, site):
    """Keys that lead elsewhere are letters in a field, the link past the navigation asks for nothing anew, and Enter
    checks."""
    page = eyes.look(width=390).open(site.url + "/new")
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#keys")).not_to_be_visible()
    page.get_by_label("Name").fill("")
    page.keyboard.type("gq? kept")
    expect(page.locator("#as-yaml")).to_contain_text("gq? kept")
    places = page.locator("nav[aria-label=Main]")
    expect(places).to_be_hidden()
    page.get_by_role("button", name="Menu").click()
    expect(places.get_by_role("link", name="Queue")).to_be_visible()
    page.keyboard.press("Escape")
    expect(places).to_be_hidden()
    loads: list[str] = []  # what the form asks for in the background is none
    page.on("request", lambda request: loads.append(request.url) if request.is_navigation_request() else None)
    page.locator(".skip").press("Enter")
    expect(page).to_have_url(re.compile("#main$"))
    page.get_by_label("Steps", exact=True).press("Enter")
    page.wait_for_url("**/new")
    expect(page.get_by_label("Name")).to_have_value("gq? kept")
    assert [url.partition("#")[0] for url in loads] == [f"{site.url}/new"]


def test_a_refusal_is_seen_and_leads_to_its_fields(eyes, site):
    """On a phone, where the fields are far below."""
    watched = eyes.look()
    page = watched.open(site.url + "/new")
    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_label("Steps", exact=True).fill("")
    page.get_by_label("Trials of each candidate", exact=True).fill("-1")
    page.get_by_role("button", name="Submit").click()
    summary = page.locator(".obstacles")
    expect(summary).to_be_focused()
    expect(summary).to_be_in_viewport()
    expect(summary.locator("h2")).to_have_text("2 faults")
    summary.get_by_role("link", name="Trials of each candidate").click()
    field = page.get_by_label("Trials of each candidate", exact=True)
    expect(field).to_be_focused()
    expect(field).to_have_attribute("aria-invalid", "true")
    field.fill("4")
    expect(summary.locator("h2")).to_have_text("1 fault")
    expect(field).not_to_have_attribute("aria-invalid", "true")
    page.get_by_label("Steps", exact=True).fill("40")
    expect(summary).to_have_count(0)
    assert [complaint for complaint in watched.complaints if "422" not in complaint] == []


def test_typed_yaml_is_not_lost_to_the_form_or_a_template(eyes, site):
    page = eyes.look().open(site.url + "/new?as=yaml")
    page.locator("textarea").fill("name: precious")
    messages: list[str] = []

    def decline(dialog: Dialog) -> None:
        messages.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", decline)
    for name in ("scaling", "Form"):
        page.get_by_role("link", name=name, exact=True).click()
        expect(page.locator("textarea")).to_have_value("name: precious")
    assert len(messages) == 2


def test_nothing_that_was_written_is_lost_while_the_service_is_away(eyes, site):
    """Neither an experiment nor a note; each is sent once the service is back."""
    watched = eyes.look()
    page = watched.open(site.url + "/new")
    page.get_by_label("Name").fill("written offline")
    expect(page.locator("#preview .chip")).to_have_text("valid")
    page.context.set_offline(True)
    page.get_by_role("button", name="Submit").click()
    expect(page.locator(".form-away")).to_contain_text("The service does not answer")
    expect(page.get_by_label("Name")).to_have_value("written offline")
    assert page.url == site.url + "/new" and site.experiments.page() == ()
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".form-away")).to_have_count(1)
    page.context.set_offline(False)
    page.get_by_role("button", name="Try again").click()
    page.wait_for_url("**/experiments/*")
    assert [experiment.name for experiment in site.experiments.page()] == ["written offline"]
    page.locator("#edit summary").click()
    page.get_by_label("Note, in Markdown").fill("a long thought")
    page.context.set_offline(True)
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".form-away")).to_be_visible()
    expect(page.get_by_label("Note, in Markdown")).to_have_value("a long thought")
    page.context.set_offline(False)
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".note-text")).to_have_text("a long thought")


def test_rates_that_are_only_suggested_follow_the_model(eyes, site):
    page = eyes.look().open(site.url + "/new")
    rates = page.get_by_label("Learning rates of AdamW", exact=True)
    expect(rates).to_have_attribute("placeholder", "0.004")
    page.get_by_label("Learning rates of AdaPM", exact=True).fill("0.001, 0.003, 0.009")
    page.get_by_label("Model").select_option("gpt2-124m")
    expect(rates).to_have_attribute("placeholder", "0.0006")
    expect(page.get_by_label("Learning rates of AdaPM", exact=True)).to_have_value("0.001, 0.003, 0.009")


def test_what_cannot_be_checked_says_so_until_it_can(eyes, site):
    """Too large for the service, and while the service answers with no page."""
    watched = eyes.look()
    page = watched.open(site.url + "/new?as=yaml")
    page.locator("textarea").fill(SWEEP)
    expect(page.locator("#preview .chip")).to_have_text("valid")
    page.locator("textarea").fill(SWEEP + "#" * 2**20)
    expect(page.locator("#preview")).to_contain_text("The body is larger than 1 MiB")
    expect(page.locator("#preview")).to_contain_text("adapm-bench submit")
    expect(page.locator("#preview .chip")).to_have_text("not checked")
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("h1")).to_have_text(re.compile("too large", re.IGNORECASE))
    page.go_back()
    page.locator("textarea").fill(SWEEP)
    expect(page.locator("#preview .chip")).to_have_text("valid")
    page.route("**/new", lambda route: route.fulfill(status=502, body="Bad Gateway"))
    page.locator("textarea").press("End")
    page.locator("textarea").type(" ")
    expect(page.locator("#preview")).to_contain_text("The service answered with 502.")
    page.unroute("**/new")
    page.locator("textarea").type(" ")
    expect(page.locator("#preview .chip")).to_have_text("valid")
    assert [complaint for complaint in watched.complaints if "413" not in complaint and "502" not in complaint] == []
