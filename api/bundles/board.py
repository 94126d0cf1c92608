"""A board: pages of a folder of bundles, ranked by workload. Plain files, which no server has to answer for.

    bundles ─► each verified, or refused with its reason ─► leaderboards of one workload together ─► index.html
                                                        └► a page each: answer, figures, what was verified, whose

Two installations' bundles in one folder are one board: each row says who signed it. Losses of one workload stand side
by side; a verdict is only ever about the candidates of one bundle, which were paired by seed and tuned alike.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from api.bundles.layout import STATEMENT, BundleError
from api.bundles.verification import Verification, verify
from dashboards.data.reader import candidate_styles
from dashboards.data.series import evenly_spaced_rows, series
from dashboards.figures.curves import Curve, loss_curves
from dashboards.figures.tradeoffs import loss_by_price
from dashboards.files import publication
from dashboards.files.figures import script_hash
from dashboards.files.vector import vector
from dashboards.palette import Style, ThemeName, stylesheet
from dashboards.render import environment
from dashboards.text import formats, words
from dashboards.view_state import ViewState
from orchestrator.analysis.cells import comparisons
from orchestrator.analysis.profiles import trained_workload
from orchestrator.kinds.experiment import AnswerKind
from orchestrator.records import CandidateRow, Comparison, ExperimentRecord, RunRecord
from worker.files import write_atomically

SHORT = 12
"""Characters of a fingerprint that name a signer where many stand."""


@dataclass(frozen=True, kw_only=True)
class BoardSubmission:
    """One bundle that was believed."""

    verified: Verification
    page: str
    """The file of its page."""

    @property
    def experiment(self) -> ExperimentRecord:
        """What was published."""
        return self.verified.bundle.experiment

    @property
    def signer(self) -> str:
        """Short."""
        return self.verified.signer[:SHORT]


@dataclass(frozen=True, kw_only=True)
class BoardEntry:
    """One candidate of one submission on a workload."""

    submission: BoardSubmission
    comparison: Comparison
    row: CandidateRow

    @property
    def verdict(self) -> str:
        """Of its own submission."""
        return formats.sentence(self.row.verdict)


@dataclass(frozen=True, kw_only=True)
class Workboard:
    """All that was published on one workload, the lowest loss first; without a finite loss last."""

    facts: tuple[str, ...]
    loss_name: str
    entries: tuple[BoardEntry, ...]
    records: tuple[BoardEntry, ...]
    """Who had the lowest loss from when on, the newest first."""


def write_board(folders: Iterable[Path], site: Path, trusted: Iterable[str] = ()) -> tuple[int, dict[str, str]]:
    """Write the board of all bundles below these folders; how many are on it, and why the others are not, by their
    path. Raises `OSError`."""
    keys, submissions, refused = tuple(trusted), {}, {}
    for bundle in sorted(each for folder in folders for each in _bundles(folder)):
        try:
            verified = verify(bundle, keys)
        except BundleError as error:
            refused[str(bundle)] = str(error)
            continue
        name = f"{verified.bundle.experiment.id}-{verified.signer[:SHORT]}.html"
        submissions[name] = BoardSubmission(verified=verified, page=name)
    site.mkdir(parents=True, exist_ok=True)
    for name, submission in submissions.items():
        write_atomically(site / name, _submission_page(submission))
    found = sorted(submissions.values(), key=lambda each: each.experiment.created_at, reverse=True)
    write_atomically(
        site / "index.html", _render("board.html", boards=_boards(found), submissions=found, refused=refused)
    )
    return len(found), refused


def _bundles(folder: Path) -> Sequence[Path]:
    """The folder itself, or those in it that hold a statement."""
    below = [folder, *sorted(each for each in folder.iterdir() if each.is_dir())]
    return [each for each in below if (each / STATEMENT).exists()]


def _boards(submissions: Sequence[BoardSubmission]) -> tuple[Workboard, ...]:
    by_workload: dict[str, list[BoardEntry]] = {}
    facts: dict[str, tuple[str, ...]] = {}
    for submission in submissions:
        for experiment, comparison in _comparisons(submission):
            key = trained_workload(experiment.spec.workload)
            facts.setdefault(key, _facts(experiment))
            entries = [BoardEntry(submission=submission, comparison=comparison, row=row) for row in comparison.rows]
            by_workload.setdefault(key, []).extend(entries)
    return tuple(
        Workboard(
            facts=facts[key],
            loss_name=entries[0].comparison.loss_name,
            entries=tuple(sorted(entries, key=_loss)),
            records=_records(entries),
        )
        for key, entries in by_workload.items()
    )


def _facts(experiment: ExperimentRecord) -> tuple[str, ...]:
    """What is trained; how many seeds there were is each submission's own."""
    *what, _, precision = words.workload_facts(experiment)
    return (*what, precision)


def _comparisons(submission: BoardSubmission) -> list[tuple[ExperimentRecord, Comparison]]:
    """The leaderboard of a comparison, or that of each cell of a scaling experiment; none of a sweep, whose trials
    have one seed."""
    bundle = submission.verified.bundle
    match bundle.experiment.spec.answer:
        case AnswerKind.COMPARISON if bundle.document.comparison is not None:
            return [(bundle.experiment, bundle.document.comparison)]
        case AnswerKind.LAW:
            cells = comparisons(bundle.experiment, bundle.runs)
            answers = [cell.comparison for cell in bundle.document.cells]
            return [(experiment, answer) for (experiment, _), answer in zip(cells, answers, strict=True)]
        case _:
            return []


def _loss(entry: BoardEntry) -> tuple[bool, float]:
    loss = entry.row.val_loss
    return loss is None, loss.mean if loss else 0.0


def _records(entries: Iterable[BoardEntry]) -> tuple[BoardEntry, ...]:
    found: list[BoardEntry] = []
    for entry in sorted(entries, key=lambda each: each.submission.experiment.ended_at or 0.0):
        if entry.row.val_loss is not None and (not found or _loss(entry) < _loss(found[-1])):
            found.append(entry)
    return tuple(reversed(found))


def _submission_page(submission: BoardSubmission) -> str:
    answer = submission.verified.bundle.document.comparison
    return _render(
        "board_submission.html",
        submission=submission,
        comparison=answer,
        head=publication.head(answer) if answer else (),
        rows=[publication.cells(answer, row) for row in answer.rows] if answer else (),
        caption=publication.caption(answer) if answer else "",
        figures=_figures(submission, answer) if answer else (),
        facts=words.workload_facts(submission.experiment),
        provenance=submission.verified.bundle.document.provenance,
    )


def _figures(submission: BoardSubmission, answer: Comparison) -> list[tuple[str, str, str]]:
    """(title, address of the light picture, of the dark one): curves, and loss by memory."""
    styles = candidate_styles(submission.experiment)
    curves = tuple(_curve(submission, row, styles) for row in answer.rows)
    title = words.loss_title(answer)
    themes: tuple[ThemeName, ...] = ("light", "dark")
    drawn = {
        "Loss curves": [loss_curves(curves, ViewState(), None, theme, title=title) for theme in themes],
        "Loss and optimizer state": [loss_by_price(answer, styles, ViewState(), theme, "memory") for theme in themes],
    }
    found = []
    for name, figures in drawn.items():
        pictures = [vector(each, "svg", theme=theme) for each, theme in zip(figures, themes, strict=True)]
        light, dark = (f"data:image/svg+xml;base64,{base64.b64encode(each).decode()}" for each in pictures)
        found.append((name, light, dark))
    return found


def _curve(submission: BoardSubmission, row: CandidateRow, styles: Mapping[str, Style]) -> Curve:
    bundle = submission.verified.bundle
    best = row.final or row.best()
    judged = set(best.run_ids) if best else set()
    runs: list[RunRecord] = [run for run in bundle.runs if run.id in judged and run.id in bundle.points]
    seeds = tuple(
        evenly_spaced_rows(
            series(bundle.points[run.id], ended=True, device_seconds=run.device_seconds), run.steps_total
        )
        for run in runs
    )
    return Curve(
        candidate=row.candidate, title=row.title, lr=row.best_lr, is_best=True, style=styles[row.candidate], seeds=seeds
    )


def _render(template: str, **values: object) -> str:
    """A page that lets nothing in: no script, no other file, one style sheet by its hash."""
    style = stylesheet() + environment().get_template("board.css").render()
    return environment().get_template(template).render(style=style, style_hash=script_hash(style), **values)
