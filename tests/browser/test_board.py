"""A board on a phone: nothing is cut off at the right, and no table hides its columns."""

from dataclasses import replace
from pathlib import Path

from playwright.sync_api import Browser, ViewportSize

from api.bundles.board import PAGE, write_board
from api.bundles.publication import write_bundle
from tests.factories.bundles import KEY, trained_content

PHONE: ViewportSize = {"width": 390, "height": 844}
WIDER = """() => [...document.querySelectorAll('html, .scroll, h1, p, td, dd')]
    .filter(each => each.scrollWidth > each.clientWidth).map(each => each.outerHTML.slice(0, 200))"""


def test_nothing_is_wider_than_a_phone(browser: Browser, tmp_path: Path) -> None:
    trained = trained_content()
    spec = trained.experiment.spec.model_copy(update={"name": "A_regression" * 8})
    renamed = {"spec": spec, "name": spec.name, "spec_hash": spec.content_hash()}
    content = replace(trained, experiment=trained.experiment.model_copy(update=renamed))
    write_bundle(tmp_path / "one", content.document, content.files()["points.parquet"], KEY)
    write_board([tmp_path / "one"], tmp_path / "site")
    page = browser.new_page(viewport=PHONE)
    page.goto(f"file://{tmp_path / 'site' / PAGE}")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert page.evaluate(WIDER) == []
    heads = page.locator("td").evaluate_all("cells => cells.map(cell => cell.dataset.label)")
    assert heads and all(heads), "each value on a card says what it is"
    page.close()
