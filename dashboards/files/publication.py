"""A comparison's table for papers, notes and spreadsheets: LaTeX (booktabs), Markdown, CSV. Pure text.

LaTeX and Markdown show what a reader needs beside each number: n, the interval, what it is of. CSV has every field of
the record, at full precision. Names that users chose are escaped: no TeX command, no Markdown, no formula.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Literal

from dashboards.text import formats, words
from orchestrator.analysis import verdicts
from orchestrator.export.cells import leaves, spreadsheet_safe
from orchestrator.records import CandidatePair, CandidateRow, Comparison, Difference

TableFormat = Literal["latex", "markdown", "csv"]
SUFFIXES: dict[TableFormat, str] = {"latex": "tex", "markdown": "md", "csv": "csv"}
TABLE_MEDIA_TYPES: dict[TableFormat, str] = {
    "latex": "application/x-tex",
    "markdown": "text/markdown",
    "csv": "text/csv",
}

TEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    formats.UNKNOWN: "---",
    formats.MINUS: r"\ensuremath{-}",
    "±": r"\ensuremath{\pm}",
    "×": r"\ensuremath{\times}",
    "Δ": r"\ensuremath{\Delta}",
    "\N{NO-BREAK SPACE}": "~",
}
"""Every character that TeX would take for something else."""
LIGATURES = frozenset("-',")
"""Characters that TeX joins when they are doubled."""
MARKDOWN = frozenset("\\`*_{}[]<>()#+!|~&$")
"""The characters that Markdown, GitHub's tables and their mathematics treat as markup."""

Cells = tuple[str, ...]
LINES_AT_ONCE = 500
"""The lines of a streamed file that are sent together."""
PAIR_HEAD: Cells = ("Pair", "Δ", "p", "Verdict")


def publish(comparison: Comparison, form: TableFormat) -> str:
    """Return the table in that format."""
    writers: dict[TableFormat, Callable[[Comparison], str]] = {"latex": latex, "markdown": markdown, "csv": table_csv}
    return writers[form](comparison)


def latex(comparison: Comparison) -> str:
    """Return a `table` with booktabs rules (\\usepackage{booktabs}) and its method in the caption; it compiles."""
    lines = [
        r"% needs \usepackage{booktabs} and, for accents and quotes, \usepackage[T1]{fontenc} \usepackage{textcomp}",
        r"\begin{table}",
        r"  \centering",
        r"  \begin{tabular}{l" + "r" * (len(head(comparison)) - 1) + "}",
        r"    \toprule",
        "    " + _tex_row(head(comparison)),
        r"    \midrule",
        *("    " + _tex_row(cells(row)) for row in comparison.rows),
        r"    \bottomrule",
        r"  \end{tabular}",
        rf"  \caption{{{tex(caption(comparison))}}}",
        rf"  \label{{tab:{''.join(filter(str.isalnum, comparison.experiment_id))}}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def markdown(comparison: Comparison) -> str:
    """Return a table in GitHub's Markdown, with verdicts and notes below it."""
    heads = head(comparison)
    rows = [_md_row(heads), "|" + "|".join(["---"] + ["---:"] * (len(heads) - 1)) + "|"]
    rows += [_md_row(cells(row)) for row in comparison.rows]
    pairs = [_md_row(PAIR_HEAD), "|---|---:|---:|---|", *(_md_row(pair_cells(pair)) for pair in comparison.pairs), ""]
    verdicts = [f"* **{md(row.title)}**: {md(formats.sentence(row.verdict))}" for row in comparison.rows]
    notes = [f"* {md(formats.sentence(note))}" for note in comparison.notes]
    return (
        "\n".join([*rows, "", md(caption(comparison)), "", *(pairs if comparison.pairs else ()), *verdicts, *notes])
        + "\n"
    )


def table_csv(comparison: Comparison) -> str:
    """Return the table as CSV, a line for each candidate and a column for each field that any has, as
    `time_to_target.speed_up.mean`; unknown ones are empty."""
    rows = [
        {name: value for name, value in leaves(row.model_dump(mode="json")) if value is not None}
        for row in comparison.rows
    ]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return _csv_lines([names, *([row.get(name) for name in names] for row in rows)])


def tex(text: str) -> str:
    """Return text that pdfLaTeX prints literally; a letter that it lacks becomes a question mark."""
    last_letters = ["", *text[:-1]]
    return "".join(
        "{}" * (letter == last and letter in LIGATURES) + _letter(letter)
        for last, letter in zip(last_letters, text, strict=False)
    )


def _letter(letter: str) -> str:
    if letter in TEX:
        return TEX[letter]
    if letter.isascii() or "À" <= letter <= "ÿ":
        return letter if letter.isprintable() else " "
    return "?"


def md(text: str) -> str:
    """Return text that Markdown prints literally, in one line."""
    flat = "".join(letter if letter.isprintable() else " " for letter in text)
    return "".join(f"\\{letter}" if letter in MARKDOWN else letter for letter in flat)


def head(comparison: Comparison) -> Cells:
    """Return the heads of the columns that people read."""
    baseline = next((row.title for row in comparison.rows if row.is_baseline), comparison.baseline)
    return (
        "Optimizer",
        "lr",
        "Validation loss",
        f"Δ to {baseline}",
        "p",
        "Lost runs",
        "State",
        "Peak memory",
        "Step",
        formats.device_time_title(comparison.device),
        "Speed-up",
    )


def cells(row: CandidateRow) -> Cells:
    """Return a candidate's cells below them."""
    difference, time = row.difference, row.time_to_target
    p_value = difference.p_value if difference else None
    count, share = words.unstable_runs(row)
    return (
        row.title,
        formats.rate(row.best_lr),
        _loss(row),
        "baseline" if row.is_baseline else formats.UNKNOWN if difference is None else difference_text(difference),
        formats.UNKNOWN if difference is None or p_value is None else verdicts.p_number(p_value),
        "".join((count, f" ({share})" if share else "")),
        formats.size(row.optimizer_state_bytes),
        formats.size(row.peak_memory_bytes),
        formats.seconds(row.step_seconds),
        formats.device_time(row.device_hours),
        words.speed_up(row) or (f"{time.reached} of {time.n}" if time and not row.is_baseline else formats.UNKNOWN),
    )


def _loss(row: CandidateRow) -> str:
    if row.val_loss is None:
        return formats.UNKNOWN
    half = row.val_loss.half_width()
    spread = "" if half is None else f" ± {formats.loss(half)}"
    return f"{formats.loss(row.val_loss.mean)}{spread} (n = {row.val_loss.n})"


def difference_text(estimate: Difference) -> str:
    """Return a difference with its interval: `−0.0290 [−0.0514, −0.0066]`."""
    interval = formats.interval(estimate.low, estimate.high, formats.difference)
    return f"{formats.difference(estimate.mean)} {interval}".rstrip()


def pair_cells(pair: CandidatePair) -> Cells:
    """Return a pair, its difference and its verdict."""
    estimate = pair.difference
    return (
        f"{pair.title} − {pair.other_title}",
        formats.UNKNOWN if estimate is None else difference_text(estimate),
        formats.UNKNOWN if estimate is None or estimate.p_value is None else verdicts.p_number(estimate.p_value),
        formats.sentence(pair.verdict),
    )


def caption(comparison: Comparison) -> str:
    """Return a caption: the content of the table and how it was made."""
    tuned = (
        f" Settings were chosen on other seeds ({', '.join(map(str, comparison.tuning_seeds))})."
        if comparison.tuning_seeds
        else ""
    )
    unit = f" in{comparison.loss_unit}" if comparison.loss_unit else ""
    count = len(comparison.pairs) or len(comparison.rows) - 1
    looks = " and at all looks (alpha spending)" if any(row.seeds_used for row in comparison.rows) else ""
    family = f", both for all {count} differences at once{looks}" if count > 1 else f", both{looks}" if looks else ""
    unfinished = "" if comparison.complete else " Some runs have not ended."
    return (
        f"{comparison.name}. Final {comparison.loss_name}{unit}, mean over seeds ± 95 % t-interval; Δ paired by seed, "
        f"with interval and p-value of the paired t-test{family} (95 %{', Bonferroni' if count > 1 else ''}); "
        "lost runs: those that were lost, with the exact 95 % interval of their share; "
        "peak memory: most bytes of tensors at once; "
        "speed-up: how many times fewer tokens to the baseline's loss, with its interval; without one, how many seeds "
        f"reached that loss.{tuned}{unfinished}"
    )


def _tex_row(cells: Sequence[str]) -> str:
    return " & ".join(tex(cell) for cell in cells) + r" \\"


def _md_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(md(cell) for cell in cells) + " |"


Value = str | float | int | bool | None


def run_table_csv(columns: Sequence[str], rows: Iterable[Sequence[Value]]) -> Iterator[str]:
    """Yield the table of all runs, some hundred lines at a time; a row is id, origin, experiment and a value a
    column."""
    yield _csv_lines([["run", "is_external", "experiment_id", *columns]])
    lines = iter(rows)
    while piece := list(islice(lines, LINES_AT_ONCE)):
        yield _csv_lines(piece)


def _csv_lines(rows: Iterable[Sequence[Value]]) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="\r\n").writerows(map(spreadsheet_safe, row) for row in rows)  # RFC 4180
    return written.getvalue()
