"""BibTeX from the catalog's words: every optimizer's paper is an entry, and nothing is invented."""

import re

import pytest

from dashboards.files.bibliography import bibtex, reference, references
from optim import catalog
from tests.factories.comparison import experiment_record, made_spec


@pytest.mark.parametrize("name", catalog.names())
def test_every_optimizer_of_the_catalog_can_be_cited(name: str) -> None:
    for work in catalog.entry(name).paper.split("; "):
        entry = reference(work).bibtex()
        assert re.match(r"@misc\{[a-z0-9.-]+,\n", entry)
        assert entry.count("{") == entry.count("}")
        if number := re.search(r"arXiv (\d{4}\.\d{5})", work):
            assert f"eprint = {{{number[1]}}}" in entry and f"year = {{20{number[1][:2]}}}" in entry


def test_an_entry_says_what_the_catalog_says() -> None:
    assert reference("Vyas et al.: SOAP, Improving and Stabilizing Shampoo using Adam, arXiv 2409.11321").bibtex() == (
        "@misc{vyas-2409.11321,\n"
        "  author = {Vyas and others},\n"
        "  title = {{SOAP, Improving and Stabilizing Shampoo using Adam}},\n"
        "  year = {2024},\n"
        "  eprint = {2409.11321},\n"
        "  archivePrefix = {arXiv}\n"
        "}\n"
    )


def test_hostile_names_are_escaped_and_works_stand_once() -> None:
    spec = made_spec(name="50 % \\input{x} _")
    text = bibtex(references(experiment_record(spec, 1), "0.1.0", "abc"))
    assert r"50 \% \textbackslash{}input\{x\} \_" in text
    assert text.count("2510.09103") == 2  # key and eprint of one entry
    assert "git commit abc" in text
