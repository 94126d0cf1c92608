"""The figure of learning rates: the final loss at each of them, by candidate."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dashboards.figures.base import Figure, figure, final_loss_title, layout_of, plain, say_above, trace
from dashboards.palette import Style, ThemeName
from dashboards.text import formats
from dashboards.view_state import ViewState
from orchestrator.records import Comparison, RunRecord
from worker.records.result import Verdict

FEW_SEEDS = 4
"""The most tuning seeds that a figure names."""
WIDE_TICKS, NARROW_TICKS = 10, 5
"""The learning rates that have room below the axis."""
WIDE_LETTERS, NARROW_LETTERS = 70, 40
"""The letters that a line above the plot has room for."""
FAR_RATE_RATIO = 4.0
"""A diverged rate this many times above all others is drawn at the edge, lest it squeezes them together."""


def learning_rates(
    comparison: Comparison,
    styles: Mapping[str, Style],
    view: ViewState,
    theme: ThemeName,
    runs: Sequence[RunRecord],
    *,
    narrow: bool = False,
) -> Figure:
    """Draw final validation loss by learning rate: a line through means, a small mark per seed, × if one diverged.

    Where a comparison tunes first, the line is dotted and its marks are hollow: it is of the tuning seeds, which chose
    the rate. The full mark is the mean of the compared seeds, which ran at that rate alone. Trials that were searched
    over more than the rate have no line. What each kind of mark is stands above the plot.
    """
    rows = [row for row in comparison.rows if row.candidate not in view.hidden]
    tuning_seeds = frozenset(comparison.tuning_seeds)
    data: list[Any] = []
    for row in rows:
        chosen, colour = styles[row.candidate], styles[row.candidate].colour(theme)
        means = sorted((rate.lr, rate.val_loss.mean) for rate in row.learning_rates if rate.val_loss is not None)
        candidate_runs = [run for run in runs if run.candidate == row.candidate]
        compared = [run for run in candidate_runs if run.seed not in tuning_seeds]
        if tuning_seeds:
            tried = [run for run in candidate_runs if run.seed in tuning_seeds]
            line = _mean_line(row.title, means, colour, chosen) | {  # chose the rate, but is not compared
                "line": {"width": 1.2, "color": colour, "dash": "dot"},
                "marker": {"size": 8, "symbol": f"{chosen.symbol}-open", "color": colour},
                "hovertemplate": f"%{{y:.4f}} at lr %{{x}}, {_seed_words(comparison.tuning_seeds)}",
            }
            if any(rate.setting for rate in row.learning_rates):
                line["mode"] = "markers"  # neighbours differ in more than their rates: no line joins them
            traces = [line]
            traces += [_seed_marks(row.title, tried, colour, "tuning seed")] if len(tuning_seeds) > 1 else []
            mean = row.final.val_loss if row.final else None
            traces += [_mean_line(row.title, [(row.final.lr, mean.mean)], colour, chosen)] if row.final and mean else []
            traces += [_seed_marks(row.title, compared, colour)]
        else:
            traces = [_mean_line(row.title, means, colour, chosen), _seed_marks(row.title, compared, colour)]
        data += traces
    shown = [run for run in runs if run.candidate in {row.candidate for row in rows}]
    # A little beyond the largest rate that trained, or the largest of all.
    largest = max((run.lr for run in shown), default=1.0)
    trained = max((run.lr for run in shown if run.result and not _has_diverged(run)), default=largest)
    edge = largest if largest <= FAR_RATE_RATIO * trained else 2 * trained
    data += _diverged_marks(shown, styles, theme, edge)
    layout = layout_of(theme, x_title="learning rate", y_title=final_loss_title(comparison))
    rates, ticks = sorted({run.lr for run in shown if run.lr <= edge}), list[float]()
    for rate in rates:  # those that have room for a label beside each other
        least = math.log(rates[-1] / rates[0]) / (NARROW_TICKS if narrow else WIDE_TICKS)
        if not ticks or math.log(rate / ticks[-1]) >= least:
            ticks.append(rate)
    layout["xaxis"] |= {
        "type": "log", "tickvals": ticks, "ticktext": [formats.rate(lr) for lr in ticks], "tickangle": 0,
    }  # fmt: skip
    letters = NARROW_LETTERS if narrow else WIDE_LETTERS
    say_above(layout, _key(comparison.tuning_seeds, shown, edge), letters, theme)
    ended = any(trace["x"] for trace in data)
    empty = "No run finished." if comparison.complete else "Finished runs will appear here."
    return figure(data if ended else [], layout, theme, empty=empty)


def _mean_line(title: str, means: Sequence[tuple[float, float]], colour: str, style: Style) -> dict[str, Any]:
    return trace(
        "lines+markers",
        [lr for lr, _ in means],
        [mean for _, mean in means],
        name=plain(title),
        line={"width": 2, "color": colour, "dash": style.dash},
        marker={"size": 8, "symbol": style.symbol, "color": colour},
        hovertemplate="%{y:.4f} at lr %{x}",
    )


def _key(tuning_seeds: Sequence[int], runs: Sequence[RunRecord], edge: float) -> str:
    """Return a caption of the marks: `line: mean over seeds; small circles: each seed; ×: diverged, up to lr 1000`."""
    if tuning_seeds:
        clauses = ["filled: mean of the compared seeds", f"dotted and hollow: {_seed_words(tuning_seeds)}"]
    else:
        clauses = ["line: mean over seeds"]
    several = "each compared seed" if len(tuning_seeds) == 1 else "each seed"
    lost = dict.fromkeys(run.state_word() for run in runs if _has_diverged(run))
    largest = max((run.lr for run in runs), default=0.0)
    limit_note = f", up to lr\N{NO-BREAK SPACE}{formats.rate(largest)}" if largest > edge else ""
    return "; ".join(
        [*clauses, f"small circles: {several}", *([f"×: {' or '.join(lost)}{limit_note}"] if lost else [])]
    )


def _seed_words(seeds: Sequence[int]) -> str:
    """Return `tuning seeds 1001, 1002`, short because half a page is 70 characters wide."""
    numbers = ", ".join(map(str, seeds[:FEW_SEEDS])) + (" …" if len(seeds) > FEW_SEEDS else "")
    return f"tuning seed{'s' if len(seeds) > 1 else ''} {numbers}"


def _seed_marks(title: str, runs: Sequence[RunRecord], colour: str, noun: str = "seed") -> dict[str, Any]:
    ended = [(run.lr, run.result.final_val_loss, run.seed) for run in runs if run.result and not _has_diverged(run)]
    return trace(
        "markers",
        [lr for lr, _, _ in ended],
        [value for _, value, _ in ended],
        name=plain(title),
        customdata=[seed for _, _, seed in ended],
        marker={"size": 6, "symbol": "circle-open", "color": colour, "line": {"width": 1.2}},
        opacity=0.75,
        hovertemplate=f"%{{y:.4f}} · {noun} %{{customdata}}",
    )


def _diverged_marks(runs: Sequence[RunRecord], styles: Mapping[str, Style], theme: ThemeName, edge: float) -> list[Any]:
    """Return runs without a loss as × along the upper edge, each kind by its outcome."""
    lost: dict[str, list[RunRecord]] = {}
    for run in filter(_has_diverged, runs):
        lost.setdefault(run.state_word(), []).append(run)
    return [
        trace(
            "markers",
            [min(run.lr, edge) for run in kind_runs],
            [1.0] * len(kind_runs),
            name=word,
            yaxis="y2",
            customdata=[f"{plain(run.candidate)} · lr {formats.rate(run.lr)} · seed {run.seed}" for run in kind_runs],
            marker={
                "size": 9,
                "symbol": "x-thin",
                "line": {"width": 2.2, "color": [styles[run.candidate].colour(theme) for run in kind_runs]},
            },
            hovertemplate=f"{word}: %{{customdata}}<extra></extra>",
            cliponaxis=False,
        )
        for word, kind_runs in lost.items()
    ]


def _has_diverged(run: RunRecord) -> bool:
    return run.result is not None and (run.result.verdict is Verdict.DIVERGED or run.result.final_val_loss is None)
