"""A report: one HTML file with method, tables, figures and provenance, which needs nothing else and lets nothing in.

    experiment ─► sections of its answer (`SECTIONS`) ─► method, provenance, bibliography ─► report.html

Figures are SVG images inside the file, so that it is small, prints well and runs no script: the policy in its head
allows images from itself and one style sheet by its hash. A new sort of answer adds its own function to `SECTIONS`.
"""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from dashboards.figures.registry import COMPARISON_FIGURES, LAW_FIGURES, SWEEP_FIGURES, FigureEntry
from dashboards.files import publication
from dashboards.files.bibliography import bibtex, references
from dashboards.files.figures import FigureFiles, draw, script_hash
from dashboards.render import environment
from dashboards.text import answers, formats, tables, words
from dashboards.text.tables import Table
from dashboards.view_state import ViewState
from orchestrator.analysis.cells import select_cell
from orchestrator.analysis.laws.fit import FitError
from orchestrator.export.document import Provenance, provenance
from orchestrator.kinds.experiment import AnswerKind
from orchestrator.kinds.registry import ExperimentSpec
from orchestrator.records import ExperimentRecord, RunRecord

MOST_RUNS = 1_000
"""Runs that the table at the end lists; the exports have all of them."""
MOST_CELLS = 12
"""Leaderboards of a scaling experiment that a report holds; the law's table has all sizes."""


@dataclass(frozen=True, kw_only=True)
class Image:
    """A figure as a data address."""

    address: str
    title: str
    caption: str


@dataclass(frozen=True, kw_only=True)
class Sentences:
    """Paragraphs, or a list of what has a name."""

    lines: tuple[tuple[str, str], ...]


Block = Table | Image | Sentences


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading with what stands below it."""

    title: str
    blocks: tuple[Block, ...]
    level: Literal[2, 3] = 2


@dataclass(frozen=True, kw_only=True)
class ReportSubject:
    """The subject of a report, read once."""

    files: FigureFiles
    experiment: ExperimentRecord
    runs: tuple[RunRecord, ...]
    provenance: Provenance


def report(files: FigureFiles, experiment_id: str, version: str) -> str:
    """Return the report of an experiment, ended or not; raises `NotFoundError`."""
    experiment = files.reader.experiments.get(experiment_id)
    runs = tuple(files.reader.runs.read_all(experiment_id))
    origin = provenance(experiment, runs, version)
    subject = ReportSubject(files=files, experiment=experiment, runs=runs, provenance=origin)
    sections = SECTIONS[experiment.spec.answer](subject)
    template = environment().get_template("files/report.html")
    style = environment().get_template("files/report.css").render()
    works = references(experiment, version, origin.commits[0] if origin.commits else None)
    return template.render(
        experiment=experiment,
        sections=(*sections, _runs(subject)),
        method=_method(subject),
        provenance=origin,
        facts=words.workload_facts(experiment),
        bibtex=bibtex(works),
        style=style,
        style_hash=script_hash(style),
        kinds={Table: "table", Image: "image", Sentences: "sentences"},
    )


def law_sections(subject: ReportSubject) -> tuple[Section, ...]:
    """Return the laws, what they predict, and the comparison at each size."""
    try:
        law = subject.files.reader.law([subject.experiment])
    except FitError as error:
        return (Section(title="Scaling law", blocks=(Sentences(lines=(("", str(error)),)),)),)
    cells = subject.files.reader.analysis.cells(subject.experiment.id)
    shown = [_leaderboard(subject, cell.key, 3) for cell in cells[-MOST_CELLS:]]
    largest = _figures(subject, COMPARISON_FIGURES, cells[-1].key)
    blocks = (tables.coefficients(law), _verdicts([(fit.title, fit.verdict) for fit in law.fits], law.notes))
    has_predictions = any(fit.predictions for fit in law.fits)
    return (
        Section(title="Scaling law", blocks=blocks),
        _figures(subject, LAW_FIGURES, ""),
        *([Section(title="Predictions", blocks=(tables.predictions(law),))] if has_predictions else []),
        Section(title="Sizes and budgets", blocks=()),
        *shown,
        Section(title=f"Figures of {cells[-1].key}", blocks=largest.blocks),
    )


def sweep_sections(subject: ReportSubject) -> tuple[Section, ...]:
    """Return the result of each optimizer, and every trial."""
    sweep_report = subject.files.reader.analysis.sweep(subject.experiment.id)
    answer = Sentences(lines=(("", answers.sweep_headline(sweep_report)),))
    notes = Sentences(lines=tuple(("", note) for note in sweep_report.notes))
    return (
        Section(title="Answer", blocks=(answer, tables.best_trials(sweep_report), notes)),
        _figures(subject, SWEEP_FIGURES, ""),
        Section(title="Trials", blocks=(tables.trials(sweep_report),)),
    )


SECTIONS: dict[AnswerKind, Callable[[ReportSubject], tuple[Section, ...]]] = {
    AnswerKind.COMPARISON: lambda subject: (
        _leaderboard(subject, "", 2),
        _figures(subject, COMPARISON_FIGURES, ""),
    ),
    AnswerKind.LAW: law_sections,
    AnswerKind.FINDINGS: sweep_sections,
}
"""The answer. Method, runs, provenance and bibliography are the same for all."""


def _leaderboard(subject: ReportSubject, cell: str, level: Literal[2, 3]) -> Section:
    comparison = subject.files.reader.analysis.compare(subject.experiment.id, cell or None)
    table = Table(
        head=publication.head(comparison),
        rows=tuple(map(publication.cells, comparison.rows)),
        caption=publication.caption(comparison),
    )
    sentence = words.headline(comparison)
    first = words.headline_row(comparison)
    answer = Sentences(lines=(("", f"{first.title}: {formats.sentence(sentence)}"),) if first and sentence else ())
    verdicts = _verdicts([(row.title, row.verdict) for row in comparison.rows], comparison.notes)
    title = comparison.name if cell else "Answer"
    pairs = Table(head=publication.PAIR_HEAD, rows=tuple(map(publication.pair_cells, comparison.pairs)))
    blocks = (answer, table, *((pairs,) if comparison.pairs else ()), verdicts)
    return Section(title=title, blocks=blocks, level=level)


def _figures(subject: ReportSubject, entries: Sequence[FigureEntry], cell: str) -> Section:
    """Return the figures that have a caption."""
    view = ViewState(cell=cell)
    blocks = []
    for entry in entries:
        if entry.caption:
            picture = subject.files.picture(subject.experiment.id, entry.name, view)
            image = base64.b64encode(draw(picture.figure, "svg")).decode()
            address = f"data:image/svg+xml;base64,{image}"
            blocks.append(Image(address=address, title=picture.title, caption=entry.caption))
    return Section(title="Figures", blocks=tuple(blocks))


def _verdicts(verdicts: Sequence[tuple[str, str]], notes: Sequence[str]) -> Sentences:
    lines = (*verdicts, *(("Note", note) for note in notes))
    return Sentences(lines=tuple((name, formats.sentence(text)) for name, text in lines))


def _runs(subject: ReportSubject) -> Section:
    rows = tuple(
        (
            run.id,
            run.candidate,
            run.model,
            formats.rate(run.lr),
            str(run.seed),
            run.state_word(),
            formats.loss(run.result.final_val_loss if run.result else None),
            formats.duration(run.device_seconds),
        )
        for run in subject.runs[:MOST_RUNS]
    )
    unlisted_runs = len(subject.runs) - len(rows)
    caption = f"{unlisted_runs:,} more runs are in the exports." if unlisted_runs else ""
    head = ("Run", "Optimizer", "Model", "lr", "Seed", "Outcome", "Final loss", "Device time")
    return Section(title="Runs", blocks=(Table(head=head, rows=rows, caption=caption),))


def _method(subject: ReportSubject) -> Sentences:
    """Return the method, from the specification: nothing here is written by hand for one experiment."""
    experiment = subject.experiment
    record, _ = select_cell(experiment, (), None)
    workload, spec = record.spec.workload, experiment.spec
    batch = workload.budget.batch_sequences
    lines = [
        ("Workload", f"{workload.task.kind} on {workload.data.dataset}, tokenizer {workload.data.tokenizer}, sequences "
         f"of {workload.data.sequence_length_tokens} tokens, {batch} in a step, precision {workload.precision}"
         f"{'' if workload.clip_grad_norm is None else f', gradients clipped at norm {workload.clip_grad_norm:g}'}. "
         "Compared runs share data order, initial weights, budget and evaluation batches; the seed pairs them."),
        ("Schedule", f"Linear warm-up, then {workload.schedule.shape}"
         + (f" to {workload.schedule.final_lr_ratio:g} of the rate" if workload.schedule.decays() else "")
         + (f"; validated are averaged weights ({workload.ema_decay:g})." if workload.ema_decay else ".")
         + " Every run uses the whole budget; only the loss after the last step is ranked."),
        ("Evaluation", f"{workload.evaluation.sequences} held-out sequences, the same for every run."),
        ("Tuning", spec.tuning_method()),
        ("Seeds", f"{', '.join(map(str, spec.seeds))} (n {'≤' if spec.adds_seeds() else '='} {len(spec.seeds)})."),
        ("Statistics", _statistics(spec)),
    ]  # fmt: skip
    return Sentences(lines=tuple(lines))


def _statistics(spec: ExperimentSpec) -> str:
    common = (
        "Means over seeds with 95 % t-intervals; differences to the baseline paired by seed, two-sided paired t-tests, "
        "intervals and p-values simultaneous over the optimizers (Bonferroni): an interval excludes zero where p < "
        "0.05, and only there is a difference claimed. Where rates or settings were tuned, both hold what that left "
        "open. A mean over the surviving seeds alone is not a result."
    )
    if spec.adds_seeds():
        common += (
            " Seeds were added while a verdict was open, in the order above: intervals and p-values hold at all looks "
            "together (Lan and DeMets' alpha spending, like O'Brien-Fleming, with exact levels of t-tests in a row)."
        )
    if spec.answer is not AnswerKind.LAW:
        return common
    return (
        "Power laws by Huber loss of the log residuals (Hoffmann et al., arXiv 2203.15556, approach 3); each size at "
        "each budget counts once, as the mean of its seeds; bootstrap over these cells, with Student's t. Two laws are "
        "compared on common draws, over the optimizers at once (Bonferroni). "
        f"Within one size: {common[0].lower()}{common[1:]}"
    )
