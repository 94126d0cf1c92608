"""A board: one page that lists the verdicts of bundles, each verified. A plain file, which needs no server.

    folders ─► bundles ─► verified, or refused with the reason ─► a line for each candidate beside its baseline

Bundles of several installations stand together; each line names the key that signed it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from api.bundles.layout import STATEMENT, BundleError
from api.bundles.verification import Verification, verify
from dashboards.files.figures import script_hash
from dashboards.files.publication import difference_text
from dashboards.palette import stylesheet
from dashboards.render import environment
from dashboards.text import formats, words
from orchestrator.analysis.cells import comparisons
from orchestrator.records import CandidateRow, Comparison
from worker.files import write_atomically

DEEPEST: int = 3
"""Folders below the given one in which bundles are looked for."""
PAGE = "index.html"


@dataclass(frozen=True, kw_only=True)
class BoardLine:
    """The verdict on a candidate beside the baseline of its own experiment, tuned alike and paired by seed."""

    bundle: Verification
    comparison: Comparison
    row: CandidateRow
    workload: tuple[str, ...]

    @property
    def baseline(self) -> str:
        """Return the title of the baseline of the comparison."""
        return next(row.title for row in self.comparison.rows if row.is_baseline)

    @property
    def difference(self) -> str:
        """Return the candidate's loss minus the baseline's, with its interval."""
        return formats.UNKNOWN if self.row.difference is None else difference_text(self.row.difference)

    @property
    def cost(self) -> str:
        """Return the device time of all runs of the candidate, and the bytes of its optimizer state."""
        unit = formats.device_time_title(self.comparison.device).lower()
        state = formats.size(self.row.optimizer_state_bytes)
        return f"{formats.device_time(self.row.device_hours)} {unit}, {state} of state"


@dataclass(frozen=True, kw_only=True)
class Board:
    """The content of the page."""

    lines: tuple[BoardLine, ...]
    bundles: int
    """The number of verified bundles; a sweep has no verdict and no line."""
    refused: Mapping[str, str]
    """Path of a bundle that is not on the board → the reason."""


def write_board(folders: Iterable[Path], site: Path, trusted: Iterable[str] = ()) -> Board:
    """Write `index.html` of all bundles below these folders. Raises `OSError`."""
    keys, verified, refused = tuple(trusted), [], {}
    for path in dict.fromkeys(path for folder in folders for path in _bundles(folder, DEEPEST)):
        try:
            verified.append(verify(path, keys))
        except BundleError as error:
            refused[str(path)] = str(error)
    lines = sorted((line for bundle in verified for line in _lines(bundle)), key=lambda line: line.workload)
    board = Board(lines=tuple(lines), bundles=len(verified), refused=refused)
    site.mkdir(parents=True, exist_ok=True)
    style = stylesheet() + environment().get_template("files/board.css").render()
    page = environment().get_template("files/board.html")
    write_atomically(site / PAGE, page.render(board=board, style=style, style_hash=script_hash(style)))
    return board


def _bundles(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the folder itself, or those below it that hold a statement; links are not followed."""
    if (folder / STATEMENT).exists():
        yield folder
    elif depth:
        for path in sorted(folder.iterdir()):
            if path.is_dir() and not path.is_symlink():
                yield from _bundles(path, depth - 1)


def _lines(bundle: Verification) -> Iterator[BoardLine]:
    """Yield a line for each candidate but the baseline, of each cell where there are cells; none of a sweep."""
    document = bundle.document
    answers: Sequence[Comparison | None] = [cell.comparison for cell in document.cells] or [document.comparison]
    for (experiment, _), comparison in zip(comparisons(document.experiment, document.runs), answers, strict=True):
        if comparison is not None:
            facts = words.workload_facts(experiment)
            candidates = (row for row in comparison.rows if not row.is_baseline)
            yield from (BoardLine(bundle=bundle, comparison=comparison, row=row, workload=facts) for row in candidates)
