"""The curves of external runs: one line a run, in the colour of its candidate. Pure."""

from collections.abc import Mapping, Sequence

import numpy as np

from dashboards.figures.base import HEADROOM, Figure, figure, layout_of, line, plain
from dashboards.palette import Style, ThemeName, numbered_style
from dashboards.text import formats
from orchestrator.external_runs import ExternalRun, ExternalSeries

MOST_LINES = 48
"""More of them nobody tells apart."""
MOST_POINTS = 1_000
"""Of one line, evenly taken: a screen has not many more columns."""


def candidate_styles(candidates: Sequence[str]) -> dict[str, Style]:
    """A look for each candidate, in their order."""
    return {name: numbered_style(place) for place, name in enumerate(candidates)}


def external_curves(
    runs: Sequence[ExternalRun],
    series: Mapping[str, ExternalSeries],
    metric: str,
    looks: Mapping[str, Style],
    theme: ThemeName,
) -> Figure:
    """One metric of the runs over their steps; what is not finite is a gap, and a run that rises far above where all
    began leaves the figure instead of flattening the others."""
    data, known = [], []
    for run in runs:
        steps, values = (
            np.array(column.get(metric, ()), dtype=float) for column in (series[run.id].steps, series[run.id].values)
        )
        places = np.unique(np.linspace(0, steps.size - 1, min(steps.size, MOST_POINTS)).astype(int))
        if not np.isfinite(values).any():
            continue
        known.append(values[np.isfinite(values)])
        look = looks[run.candidate]
        seed = formats.UNKNOWN if run.seed is None else run.seed
        title = plain(f"{run.candidate} · lr {formats.rate(run.lr)} · seed {seed}")
        drawn = line(steps[places], values[places], title, look.colour(theme))
        drawn["line"] |= {"dash": look.dash}
        mode = "lines+markers" if places.size <= 30 else "lines"  # a single point has no line
        data.append(drawn | {"mode": mode, "marker": {"size": 4, "color": look.colour(theme)}})
    layout = layout_of(theme, x_title="step", y_title=plain(metric))
    layout["hovermode"] = "x unified" if len(data) <= 6 else "closest"
    if data:
        first, low = max(float(each[0]) for each in known), min(float(each.min()) for each in known)
        if first > low >= 0 and max(float(each.max()) for each in known) > HEADROOM * first:
            layout["yaxis"]["range"] = [low - 0.05 * (first - low), HEADROOM * first]
    return figure(data, layout, theme, empty=f"None of these runs has told {metric}.")
