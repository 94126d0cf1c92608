"""A board's pages on a phone: nothing is cut off at the right, and no table hides its columns."""

from pathlib import Path

from playwright.sync_api import Browser, ViewportSize

from api.bundles.board import write_board
from api.bundles.publication import write_bundle
from api.bundles.rules import RuleSet
from tests.factories.bundles import KEY, STEPS, trained_content

PHONE: ViewportSize = {"width": 390, "height": 844}
WIDER = """() => [...document.querySelectorAll('html, .scroll, h1, h3, p, dd')]
    .filter(each => each.scrollWidth > each.clientWidth).map(each => each.outerHTML.slice(0, 200))"""


def test_nothing_is_wider_than_a_phone(browser: Browser, tmp_path: Path) -> None:
    content = trained_content()
    write_bundle(tmp_path / "one", content.document, content.attempts, content.files()["points.parquet"], KEY)
    rules = RuleSet.model_validate(
        {
            "name": "ours",
            "title": "A_regression" * 8,
            "source": f"https://example.org/{'x' * 120}",
            "workload": {"task": {"kind": "regression", "dimension": 20}, "budget": {"steps": STEPS}},
            "record": {"kind": "paired", "baseline": "sgd", "least_seeds": 3},
        }
    )
    board = write_board([tmp_path / "one"], tmp_path / "site", rules=[rules])
    page = browser.new_page(viewport=PHONE)
    for name in ("index.html", board.submissions[0].page):
        page.goto(f"file://{tmp_path / 'site' / name}")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        assert page.evaluate(WIDER) == [], name
        heads = page.locator("td").evaluate_all("cells => cells.map(each => each.dataset.label)")
        assert heads and all(heads), "each value on a card says what it is"
    page.close()
