"""A board: pages of folders of bundles, ranked by sets of rules and by workload. Plain files, which need no server.

    bundles ─► each verified, or refused with its reason ─► rankings (`ranking.py`) ─► index.html
                                                        └► a page each: answer, figures, what was verified, whose

Two installations' bundles become one board: each row names who signed it, each page every publication.
"""

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from api.bundles.layout import STATEMENT, BundleError
from api.bundles.ranking import BoardSubmission, Place, Ranking, rankings_by_rules, rankings_by_workload, submissions_of
from api.bundles.rules import RuleSet, shipped_rules
from api.bundles.verification import verify
from dashboards.data.reader import candidate_styles
from dashboards.data.series import evenly_spaced_rows, series
from dashboards.figures.base import Figure, figure, layout_of, plain, trace
from dashboards.figures.curves import Curve, loss_curves
from dashboards.figures.tradeoffs import loss_by_price
from dashboards.files import publication
from dashboards.files.figures import script_hash
from dashboards.files.vector import vector
from dashboards.palette import THEMES, Style, ThemeName, styles, stylesheet
from dashboards.render import environment
from dashboards.text import words
from dashboards.view_state import ViewState
from orchestrator.records import CandidateRow, Comparison, RunRecord
from worker.files import write_atomically

DEEPEST: int = 3
"""Folders below the given one in which bundles are looked for."""
Picture = tuple[str, str, str]
"""Title, address of the light picture, of the dark one."""


@dataclass(frozen=True, kw_only=True)
class Board:
    """What was written."""

    submissions: tuple[BoardSubmission, ...]
    refused: Mapping[str, str]
    """Why bundles are not on it, by their path."""
    rankings: tuple[Ranking, ...]
    """By each set of rules."""


def write_board(
    folders: Iterable[Path], site: Path, trusted: Iterable[str] = (), rules: Sequence[RuleSet] | None = None
) -> Board:
    """Write the board of all bundles below these folders, ranked by these rules, else by the shipped ones. Raises
    `OSError`."""
    keys, verified, refused = tuple(trusted), {}, {}
    for bundle in dict.fromkeys(each for folder in folders for each in _bundles(folder, DEEPEST)):
        try:
            verified[bundle] = verify(bundle, keys)
        except BundleError as error:
            refused[str(bundle)] = str(error)
    submissions, disputed = submissions_of(verified)
    rankings = tuple(
        ranking
        for each in (shipped_rules() if rules is None else rules)
        for ranking in rankings_by_rules(each, submissions)
    )
    refused |= disputed
    site.mkdir(parents=True, exist_ok=True)
    for submission in submissions:
        write_atomically(site / submission.page, _submission_page(submission, rankings))
    ranked_first = sorted(rankings, key=lambda each: not each.places)
    sections = [
        _Section(ranking, _pictures(ranking)) for ranking in (*ranked_first, *rankings_by_workload(submissions))
    ]
    write_atomically(
        site / "index.html", _render("files/board.html", sections=sections, submissions=submissions, refused=refused)
    )
    return Board(submissions=submissions, refused=refused, rankings=rankings)


def _bundles(folder: Path, depth: int) -> Iterable[Path]:
    """The folder itself, or those below it that hold a statement; links are not followed: they may lead anywhere."""
    if (folder / STATEMENT).exists():
        yield folder
    elif depth:
        for each in sorted(folder.iterdir()):
            if each.is_dir() and not each.is_symlink():
                yield from _bundles(each, depth - 1)


@dataclass(frozen=True)
class _Section:
    """A ranking as the page shows it."""

    ranking: Ranking
    pictures: Sequence[Picture]

    @property
    def title(self) -> str:
        """What is ranked."""
        rules, experiment = self.ranking.rules, self.ranking.experiment
        if rules is not None or experiment is None:
            return rules.title if rules else ""
        # How many seeds there were is each submission's own.
        *what, _, precision = words.workload_facts(experiment)
        return " · ".join((*what, precision))

    @property
    def loss_name(self) -> str:
        """Of all that is ranked."""
        return self.ranking.places[0].entry.comparison.loss_name if self.ranking.places else "loss"


def _pictures(ranking: Ranking) -> list[Picture]:
    """Loss by optimizer state of all that is ranked on one workload, and the records over time."""
    if ranking.experiment is None:
        return []
    found = []
    if len({place.entry.submission.page for place in ranking.places}) > 1:  # else its own page has the figure
        found.append(_picture("Loss and optimizer state", lambda theme: _loss_by_state(ranking.places, theme)))
    if len(ranking.records) > 1:
        found.append(_picture("Lowest loss over time", lambda theme: _history(ranking, theme)))
    return found


def _loss_by_state(places: Sequence[Place], theme: ThemeName) -> Figure:
    """As of one comparison, of the candidates of several; the front is that of mean losses, which no test shows."""
    rows = [
        place.entry.row.model_copy(update={"candidate": name, "title": name, "pareto_front_shown": False})
        for name, place in zip(map(str, range(1, len(places) + 1)), places, strict=True)
    ]
    costs = [(row.val_loss.mean, row.optimizer_state_bytes) for row in rows if row.val_loss]
    rows = [row.model_copy(update={"on_pareto_front": not _is_beaten(row, costs)}) for row in rows]
    whole = places[0].entry.comparison.model_copy(update={"rows": tuple(rows)})
    looks = styles((row.candidate, row.optimizer) for row in rows)
    return loss_by_price(whole, looks, ViewState(), theme, "memory")


def _is_beaten(row: CandidateRow, costs: Iterable[tuple[float, int | None]]) -> bool:
    state = row.optimizer_state_bytes
    if row.val_loss is None or state is None:
        return True
    return any(
        loss <= row.val_loss.mean and other <= state and (loss, other) != (row.val_loss.mean, state)
        for loss, other in costs
        if other is not None
    )


def _history(ranking: Ranking, theme: ThemeName) -> Figure:
    """A step for each record, at the end of its experiment."""
    records = ranking.records[::-1]
    layout = layout_of(theme, x_title="ended", y_title=f"final {records[0].entry.comparison.loss_name}")
    layout["xaxis"]["type"] = "date"
    times = [1000 * (each.entry.submission.experiment.ended_at or 0.0) for each in records]
    losses = [each.entry.loss()[1] for each in records]
    look = {"shape": "hv", "width": 1.4, "color": THEMES[theme].muted}
    marks = [
        trace(
            "markers+text", [at], [loss], name=plain(each.entry.row.title), text=[plain(each.entry.row.title)],
            textposition="top right", marker={"size": 9, "color": THEMES[theme].ink},
            textfont={"size": 11, "color": THEMES[theme].ink}, cliponaxis=False,
        )
        for at, loss, each in zip(times, losses, records, strict=True)
    ]  # fmt: skip
    return figure([trace("lines", times, losses, line=look), *marks], layout, theme, empty="")


def _submission_page(submission: BoardSubmission, rankings: Iterable[Ranking]) -> str:
    standings = [(each.rules, standing) for each in rankings if each.rules for standing in _standings(each, submission)]
    answer = submission.verified.bundle.document.comparison
    return _render(
        "files/board_submission.html",
        submission=submission,
        standings=standings,
        comparison=answer,
        head=publication.head(answer) if answer else (),
        rows=[publication.cells(row) for row in answer.rows] if answer else (),
        caption=publication.caption(answer) if answer else "",
        figures=_figures(submission, answer) if answer else (),
        facts=words.workload_facts(submission.experiment),
        provenance=submission.verified.bundle.document.provenance,
    )


def _standings(ranking: Ranking, submission: BoardSubmission) -> Iterable[str]:
    """What a set of rules says of each of its candidates, or of the whole."""
    for place in ranking.places:
        if place.entry.submission is submission:
            yield f"{place.entry.row.title}: place {place.place} of {len(ranking.places)}. {place.shown}"
    for out in ranking.not_ranked:
        if out.submission is submission:
            yield f"{out.entry.row.title if out.entry else 'Not ranked'}: {out.reason}"


def _figures(submission: BoardSubmission, answer: Comparison) -> list[Picture]:
    """Curves, and loss by memory."""
    looks = candidate_styles(submission.experiment)
    curves = tuple(_curve(submission, row, looks) for row in answer.rows)
    title = words.loss_title(answer)
    return [
        _picture("Loss curves", lambda theme: loss_curves(curves, ViewState(), None, theme, title=title)),
        _picture("Loss and optimizer state", lambda theme: loss_by_price(answer, looks, ViewState(), theme, "memory")),
    ]


def _picture(title: str, draw: Callable[[ThemeName], Figure]) -> Picture:
    themes: tuple[ThemeName, ...] = ("light", "dark")
    drawn = (base64.b64encode(vector(draw(theme), "svg", theme=theme)).decode() for theme in themes)
    light, dark = (f"data:image/svg+xml;base64,{each}" for each in drawn)
    return title, light, dark


def _curve(submission: BoardSubmission, row: CandidateRow, looks: Mapping[str, Style]) -> Curve:
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
        candidate=row.candidate, title=row.title, lr=row.best_lr, is_best=True, style=looks[row.candidate], seeds=seeds
    )


def _render(template: str, **values: object) -> str:
    """A page that lets nothing in: no script, no other file, one style sheet by its hash."""
    style = stylesheet() + environment().get_template("files/board.css").render()
    return environment().get_template(template).render(style=style, style_hash=script_hash(style), **values)
