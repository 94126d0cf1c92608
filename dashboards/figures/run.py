"""The figures of a run's page: its curves, its other series, what its probes saw of each block. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dashboards.data.series import Series
from dashboards.figures.base import Figure, add_axes, figure, heading, layout_of, line, plain, shades
from dashboards.palette import THEMES, Style, ThemeName
from dashboards.text.formats import LOSS_IN_NATS
from orchestrator.columns import Columns, spikes
from worker.records.result import Observation

METER_TITLES = {
    "data_seconds": "data, ms",
    "forward_seconds": "forward, ms",
    "backward_seconds": "backward, ms",
    "optimizer_seconds": "optimizer, ms",
    "host_rss_bytes": "host RSS, MB",
    "cpu_cores": "CPU cores in use",
    "host_cpu_utilization": "host's CPUs, %",
    "gpu_utilization": "GPU, %",
    "gpu_memory_bytes": "GPU memory, MB",
    "gpu_power_watts": "GPU power, W",
    "reward": "reward",
    "kl_nats": "KL divergence, nats",
    "answer_tokens": "answer tokens",
}
"""Field of a point → what its small plot is called; those that the main figure shows are left out."""
SCALES = {"_seconds": 1e3, "_bytes": 1e-6, "_utilization": 100.0}
COLUMNS, NARROW_COLUMNS = 4, 2
GAP = 0.28
"""The gap between rows, as a share of a row's height: above it the title, below it the steps."""
FEW_POINTS = 3
"""The number of points up to which a run is drawn as marks."""
RANGES = 150
"""Ranges of steps of a small plot, of each of which the lowest and the highest point are drawn."""
MOST_STEPS = 80
"""Columns of a heat map: some pixels each on a phone."""
MOST_CELLS = 6_000


@dataclass(frozen=True, kw_only=True)
class ProbeChoice:
    """The choices: probe → its quantities, in the order of their first appearance."""

    quantities: dict[str, tuple[str, ...]]

    def choose(self, probe: str | None, quantity: str | None) -> tuple[str, str] | None:
        """Return the probe and quantity that were asked for, or the first ones; None if nothing was observed."""
        if not self.quantities:
            return None
        chosen_probe = probe if probe in self.quantities else next(iter(self.quantities))
        choices = self.quantities[chosen_probe]
        return chosen_probe, quantity if quantity in choices else choices[0]


def probe_choices(observations: Sequence[Observation]) -> ProbeChoice:
    """Return the probes and quantities of the observations."""
    quantities_by_probe: dict[str, dict[str, None]] = {}
    for observation in observations:
        for values in observation.blocks.values():
            quantities_by_probe.setdefault(observation.probe, {}).update(dict.fromkeys(values))
    return ProbeChoice(quantities={probe: tuple(names) for probe, names in quantities_by_probe.items() if names})


def run_series(
    rows: Series,
    style: Style,
    steps_total: int,
    theme: ThemeName,
    *,
    title: str = LOSS_IN_NATS,
    narrow: bool = False,
) -> Figure:
    """Return a run's own curves over its steps: losses above; learning rate, gradient norm and step time below them,
    beside each other or, where it is `narrow`, each below the other."""
    colour, muted = style.colour(theme), THEMES[theme].muted
    trained = np.isfinite(rows.val_loss) & (rows.steps > 0)  # from the first trained evaluation on, as in `curves`
    marks = {"size": 7, "symbol": style.symbol, "color": colour}
    data = [
        line(rows.steps, rows.train_loss, "training loss, each step", muted, width=1, opacity=0.45),
        line(rows.steps, rows.smoothed, "training loss, smoothed", colour, width=1.5),
        line(
            rows.steps[trained],
            rows.val_loss[trained],
            "validation loss",
            colour,
            width=2,
            mode="lines+markers",
            marker=marks,
        ),
    ]
    layout = layout_of(theme, x_title="", y_title=title)
    ends = {"range": [0, 1.015 * steps_total]}
    layout["yaxis"] |= {"domain": [0.6 if narrow else 0.42, 1.0]}
    layout["xaxis"] |= ends | {"anchor": "y"}
    small = (("learning rate", rows.lr), ("gradient norm", rows.grad_norm), ("step time, ms", 1000 * rows.step_seconds))
    for index, (name, values) in enumerate(small, start=2):
        left, low = (0.0, 0.18 * (4 - index)) if narrow else (0.36 * (index - 2), 0.0)
        right, high = (1.0, low + 0.11) if narrow else (left + 0.28, 0.24)
        axes = add_axes(layout, theme, index, (left, right), (low, high), "" if narrow else "step")
        layout[f"xaxis{index}"] |= ends
        layout[f"yaxis{index}"] |= {"nticks": 3 if narrow else 4, "rangemode": "tozero", "exponentformat": "none"}
        data.append(line(rows.steps, values, name, colour) | axes)
        layout["annotations"].append(heading(name, left, high + 0.01, theme))
    if np.count_nonzero(np.isfinite(rows.train_loss)) <= FEW_POINTS:
        data = [trace | {"mode": "lines+markers"} for trace in data]  # a line of one point shows nothing
    return figure(data if rows.steps.size else [], layout, theme, empty="This run has not reported a step yet.")


def draw_meters(columns: Columns, style: Style, theme: ThemeName, *, narrow: bool = False) -> Figure:
    """Return a small plot for every series that has values, four in a row; two where it is `narrow`."""
    column_count = NARROW_COLUMNS if narrow else COLUMNS
    names = [name for name in METER_TITLES if np.isfinite(columns.column(name)).any()]
    rows = -(-len(names) // column_count) or 1
    layout = layout_of(theme, x_title="", y_title="")
    data: list[Any] = []
    for index, name in enumerate(names):
        row, column = divmod(index, column_count)
        left, top = column * (1 / column_count), 1 - row / rows
        domains = (
            (left + 0.12 / column_count, left + 0.94 / column_count),
            (top - (1 - GAP) / rows, top - GAP / 2 / rows),
        )
        chosen = columns.rows(spikes(columns, (name,), RANGES))
        finite = chosen.rows(np.isfinite(chosen.column(name)))
        scale = next((factor for ending, factor in SCALES.items() if name.endswith(ending)), 1.0)
        axes = add_axes(layout, theme, index + 1, *domains)
        if name.endswith("_utilization"):
            layout["yaxis" + axes["yaxis"].removeprefix("y")]["range"] = [0, 103]  # per cent, to be seen as such
        mode = "lines+markers" if len(finite) <= FEW_POINTS else "lines"
        drawn = line(finite.step, scale * finite.column(name), METER_TITLES[name], style.colour(theme), mode=mode)
        data.append(drawn | axes)
        layout["annotations"].append(heading(METER_TITLES[name], domains[0][0], domains[1][1], theme))
    layout["margin"] |= {"b": 20}
    if len(names) < 2:
        del layout["yaxis2"]
    return figure(data, layout, theme, empty="This run has reported no other metrics yet.")


def probe_heatmap(observations: Sequence[Observation], probe: str, quantity: str, theme: ThemeName) -> Figure:
    """Return a heat map of one quantity: every block over the observed steps, the first block on top.

    Cells are bars of height 1 on a base: Plotly's own heat maps need inline styles, which the policy forbids.
    """
    probed = [observation for observation in observations if observation.probe == probe]
    blocks = list(dict.fromkeys(name for observation in probed for name in observation.blocks))[::-1]
    step_limit = max(8, min(MOST_STEPS, MOST_CELLS // max(len(blocks), 1)))
    if len(probed) > step_limit:
        probed = [probed[index] for index in np.linspace(0, len(probed) - 1, step_limit).astype(int)]
    cells = [
        (index, row, observation.blocks[name][quantity])
        for index, observation in enumerate(probed)
        for row, name in enumerate(blocks)
        if quantity in observation.blocks.get(name, {})
    ]
    layout = layout_of(theme, x_title="step", y_title="") | {"bargap": 0, "barmode": "overlay"}
    ticks = list(range(0, len(probed), max(1, len(probed) // 10)))
    layout["xaxis"] |= {
        "tickvals": ticks, "ticktext": [str(probed[index].step) for index in ticks], "showgrid": False,
        "range": [-0.5, len(probed) - 0.5],
    }  # fmt: skip
    layout["yaxis"] |= {
        "tickvals": list(range(len(blocks))), "ticktext": [plain(name) for name in blocks], "showgrid": False,
        "range": [-0.5, len(blocks) - 0.5], "tickfont": {"size": 10, "color": THEMES[theme].muted},
    }  # fmt: skip
    values = [value for _, _, value in cells]
    low, high = min(values, default=0.0), max(values, default=0.0)
    bars = {
        "type": "bar",
        "x": [index for index, _, _ in cells],
        "y": [1] * len(cells),
        "base": [row - 0.5 for _, row, _ in cells],
        "width": 1,
        "customdata": [f"{plain(blocks[row])}, step {probed[index].step}" for index, row, _ in cells],
        "text": [f"{value:.4g}" for value in values],
        "textposition": "none",
        "hovertemplate": "%{customdata}: %{text}<extra></extra>",
        "marker": {"color": shades(values, low, high), "line": {"width": 0}},
    }
    if cells:
        layout["annotations"] = [heading(f"dark {low:.3g} to bright {high:.3g}", 0.0, 1.0, theme)]
    return figure([bars], layout, theme, empty="No observations yet.")
