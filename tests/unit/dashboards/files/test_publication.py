"""Tables, reports and references for papers: nothing that a user typed becomes a command, and every figure keeps its
unit."""

import csv
import io
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dashboards.data.reader import Reader
from dashboards.files.bibliography import bibtex, reference, references
from dashboards.files.figures import FigureFiles
from dashboards.files.publication import (
    MARKDOWN,
    SUFFIXES,
    TEX,
    TableFormat,
    latex,
    markdown,
    md,
    publish,
    table_csv,
    tex,
)
from dashboards.files.report import report
from optim import catalog
from orchestrator.analysis.comparison import compare
from orchestrator.export.cells import FORMULA_STARTS
from orchestrator.kinds.comparison import Candidate
from tests.factories.comparison import experiment_record, made_comparison, made_spec, records
from tests.factories.playing import DEMO
from tests.factories.stores import comparison_spec

HOSTILE = r"=1+1 \input{/etc/passwd} & 50% _x_ #1 ^~ <b> |a| `c` $y$ --- ''"


def test_latex_is_a_booktabs_table_with_n_interval_and_method() -> None:
    text = latex(made_comparison())
    assert text.count(r"\toprule") == text.count(r"\midrule") == text.count(r"\bottomrule") == 1
    assert r"AdamW & 0.002 & 2.3010 \ensuremath{\pm} 0.0025 (n = 3) & baseline" in text
    assert r"\ensuremath{-}0.0505 [\ensuremath{-}0.0614, \ensuremath{-}0.0396]" in text
    assert "& 0 of 3" in text and "0 of 3 (" not in text and "p = 1" not in text, "none was lost: no share"
    assert "paired t-test" in text
    heads = next(line for line in text.splitlines() if "Optimizer &" in line)
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len({row.count(" & ") for row in rows}) == 1
    assert f"{{l{'r' * heads.count(' & ')}}}" in text


@given(st.text(max_size=60))
@example("--")
@example("---{}\\{}``")
def test_no_text_becomes_a_tex_command(text: str) -> None:
    """After our own replacements are taken out again, no character is left that TeX acts on."""
    markup = tex(text)
    for replacement in sorted(TEX.values(), key=len, reverse=True):
        markup = markup.replace(replacement, "")
    parted = markup.replace("{}", "")  # what stands between letters that would become one
    assert not set(parted) & set("\\{}$&#%_^~\n\r")
    assert "--" not in tex(text)


@given(st.text(max_size=60))
def test_no_text_becomes_markdown_or_leaves_its_line(text: str) -> None:
    markup = md(text)
    assert len(markup.splitlines()) <= 1
    for position, letter in enumerate(markup):
        if letter in MARKDOWN and letter != "\\":
            assert markup[position - 1] == "\\"


def test_markdown_has_the_table_the_verdicts_and_the_notes() -> None:
    comparison = made_comparison(name=HOSTILE)
    lines = markdown(comparison).splitlines()
    assert len({line.replace("\\|", "").count("|") for line in lines[:4]}) == 1
    assert sum(line.startswith("* ") for line in lines) == len(comparison.rows) + len(comparison.notes)


def test_csv_keeps_every_digit_and_executes_nothing() -> None:
    comparison = made_comparison(label=HOSTILE)
    head, *rows = csv.reader(io.StringIO(table_csv(comparison)))
    by_name = [dict(zip(head, row, strict=True)) for row in rows]
    hostile = next(row for row in by_name if row["optimizer"] == "adapm")
    assert hostile["candidate"] == f"'{HOSTILE}"
    difference = comparison.rows[0].difference
    assert difference is not None and float(hostile["difference.mean"]) == difference.mean
    assert float(hostile["difference.mean"]) < 0, "a number keeps its sign"
    estimates = comparison.rows[0].time_to_target
    for name in ("steps", "tokens", "device_hours", "speed_up"):
        estimate = getattr(estimates, name)
        cells = [hostile[f"time_to_target.{name}.{end}"] for end in ("mean", "low", "high")]
        assert cells == [str(number) for number in (estimate.mean, estimate.low, estimate.high)]
    texts = [value for row in by_name for value in row.values() if value.startswith(FORMULA_STARTS)]
    assert all(float(value) < 0 for value in texts)


@pytest.mark.parametrize("form", SUFFIXES)
def test_a_comparison_without_any_result_is_a_table_too(form: TableFormat) -> None:
    experiment, _ = records(made_spec(), lambda *_run: None)
    assert "adamw" in publish(compare(experiment, ()), form).lower()


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="there is no TeX here, which is too large to ask for")
def test_the_table_compiles(tmp_path: Path) -> None:
    """Of hostile names, as it is."""
    text = latex(made_comparison(name=HOSTILE, label=HOSTILE))
    packages = r"\usepackage{booktabs}\usepackage[T1]{fontenc}\usepackage{textcomp}"
    document = rf"\documentclass{{article}}{packages}\begin{{document}}{text}\end{{document}}"
    (tmp_path / "table.tex").write_text(document)
    command = ["pdflatex", "-no-shell-escape", "-halt-on-error", "-interaction=nonstopmode", "table.tex"]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stdout[-2000:]


def test_all_pairs_are_a_table_below_in_markdown() -> None:
    spec = comparison_spec(optimizers=("adamw", "adapm", "lion"), seeds=range(3)).model_copy(update={"all_pairs": True})
    shift = {"adamw": 0.0, "adapm": -0.05, "lion": 0.2}
    text = markdown(compare(*records(spec, lambda name, lr, seed: 2.3 + shift[name] * (1 + 0.01 * seed))))
    assert "| Pair | Δ | p | Verdict |" in text
    assert "| AdaPM − Lion |" in text.replace("\\", "") and "lower than Lion" in text
    assert "| Pair |" not in markdown(made_comparison())


def test_the_answer_is_about_the_candidate_that_is_compared_where_the_baseline_leads(services, player) -> None:
    candidates = tuple(Candidate(optimizer=name, learning_rates=(4e-3,)) for name in ("adamw", "lion"))
    spec = DEMO.model_copy(update={"candidates": candidates, "seeds": (1, 2, 3)})
    experiment = services.experiments.submit(spec).experiment
    player.finish()
    reader = Reader(services)
    assert reader.snapshot(experiment.id).comparison.rows[0].is_baseline, "else there is nothing to show"
    text = report(FigureFiles(reader), experiment.id, "0.1.0")
    assert "Lion: " in text and "higher than AdamW" in text
    assert "AdamW: " not in text.partition("<table")[0]


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
