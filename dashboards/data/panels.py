"""Panels: figures that readers add to a page, any metric of points over any axis. A panel is a word of the address, and
its form leads to another address of the same page.

    panel=grad_norm*tokens*s10*ly*by-lr

The metric, the horizontal axis, the smoothing in per cent of the points, a logarithmic vertical axis, what runs are
averaged by. What is not understood is left out: an edited link still opens.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote, urlencode

from dashboards.view_state import AXIS_TITLES, MOST_PANELS, XAxis, panel_words
from orchestrator.columns import FIELDS, STEP
from orchestrator.kinds.registry import ExperimentSpec

TITLES = {
    "train_loss": "training loss",
    "val_loss": "validation loss",
    "kl_nats": "KL divergence, nats",
    "lr": "learning rate",
    "grad_norm": "gradient norm",
    "step_seconds": "step time, s",
    "host_rss_bytes": "host RSS, bytes",
    "cpu_cores": "CPU cores in use",
    "host_cpu_utilization": "busy share of the host's CPUs",
    "gpu_utilization": "busy share of the GPU",
    "gpu_memory_bytes": "GPU memory in use, bytes",
    "gpu_power_watts": "GPU power, W",
}
METRICS: Mapping[str, str] = {
    name: TITLES.get(name, name.replace("_", " ").replace(" seconds", " time, s"))
    for name in FIELDS
    if name not in (STEP, "tokens")
}
"""Metric → its title, of all that can be drawn of runs that were measured here."""
Pairs = Sequence[tuple[str, str]]
"""The pairs of an address's query."""
MOST_SMOOTHING = 30
"""Per cent of the points."""
LONGEST_FIELD = 80


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A panel."""

    metric: str = "train_loss"
    x: XAxis = "steps"
    smooth: int = 3
    """Per cent of the points; 0 leaves them as they were reported."""
    log: bool = False
    by: str = ""
    """A field: runs that share it are drawn as their mean, in the band from the lowest to the highest. Empty is a line
    for each run."""

    @classmethod
    def parse(cls, text: str, metrics: Collection[str] = METRICS) -> "Panel":
        """Read the word of an address; a metric that there is not becomes the first one."""
        metric, *parts = text.split("*")
        panel = cls(metric=unquote(metric) if unquote(metric) in metrics else next(iter(metrics), ""))
        for word in parts:
            if word in AXIS_TITLES:
                panel = replace(panel, x=word)
            elif word[:1] == "s" and word[1:].isdecimal() and len(word) < 5:
                panel = replace(panel, smooth=min(int(word[1:]), MOST_SMOOTHING))
            elif word.startswith("by-"):
                panel = replace(panel, by=word.removeprefix("by-")[:LONGEST_FIELD])
        return replace(panel, log="ly" in parts)

    def word(self) -> str:
        """Return the word of an address for it."""
        parts = [quote(self.metric, safe=""), self.x, f"s{self.smooth}"]
        parts += ["ly"] * self.log + [f"by-{self.by}"] * bool(self.by)
        return "*".join(parts)


@dataclass(frozen=True, kw_only=True)
class PanelCard:
    """A panel on its page."""

    index: int
    panel: Panel
    title: str
    figure: str
    """Address of its figure."""
    remove: str | None
    """Address of the page without it; None if the page would show its first panels again."""


@dataclass(frozen=True, kw_only=True)
class Panels:
    """All panels of a page."""

    path: str
    cards: tuple[PanelCard, ...]
    words: tuple[str, ...]
    """The parts of the address."""
    kept: tuple[tuple[str, str], ...]
    """The rest of the view, which a form sends along."""
    fields: tuple[str, ...]
    """The fields by which runs can be averaged."""
    fresh: Panel
    """The defaults of the form for another panel."""
    metrics: Mapping[str, str]
    """The metrics that can be drawn, and their titles."""
    axes = AXIS_TITLES
    most = MOST_PANELS
    most_smoothing = MOST_SMOOTHING


def page_panels(
    path: str,
    pairs: Pairs,
    figures: str,
    fields: tuple[str, ...],
    fresh: Panel,
    *,
    metrics: Mapping[str, str] = METRICS,
    first: tuple[str, ...] = (),
) -> Panels:
    """Return the panels of the page at `path`, whose address has these `pairs`; `figures` is the address of their
    figure, with what it needs besides. `first` are the words of those that the page shows where its address has none:
    it keeps one."""
    words = panel_words(pairs) or first
    panels = [Panel.parse(word, metrics) for word in words]
    cards = (
        PanelCard(
            index=index,
            panel=panel,
            title=metrics.get(panel.metric, panel.metric),
            figure=f"{figures}{'&' if '?' in figures else '?'}{urlencode({'panel': panel.word()})}",
            remove=None
            if first and len(panels) == 1
            else _address(path, pairs, [*panels[:index], *panels[index + 1 :]]),
        )
        for index, panel in enumerate(panels)
    )
    return Panels(
        path=path,
        cards=tuple(cards),
        words=words,
        kept=(*_rest(pairs), *(("panel", word) for word in words)),
        fields=fields,
        fresh=fresh,
        metrics=metrics,
    )


def edited_address(
    path: str, pairs: Pairs, *, metrics: Mapping[str, str] = METRICS, first: tuple[str, ...] = ()
) -> str | None:
    """Return the address that a panel's form leads to, whose fields are among the `pairs` of the address; None if none
    was sent."""
    form = dict(pairs)
    if "edit" not in form:
        return None
    panels = [Panel.parse(word, metrics) for word in panel_words(pairs) or first]
    return _address(path, pairs, edit_panels(panels, form, metrics))


def edit_panels(
    panels: Sequence[Panel], form: Mapping[str, str], metrics: Collection[str] = METRICS
) -> tuple[Panel, ...]:
    """Return the panels after a form was sent: `edit` is the index of the one that it is about, one more adds one. Its
    fields begin with `p_`, since the page has fields of its own."""
    index = int(form["edit"]) if form["edit"].isdecimal() and len(form["edit"]) < 3 else len(panels)
    parts = [quote(form.get("p_metric", ""), safe=""), form.get("p_across", ""), f"s{form.get('p_smooth', '')}"]
    parts += ["ly"] * (form.get("p_log_y") == "1")
    changed = Panel.parse("*".join([*parts, f"by-{form.get('p_by', '').strip().replace('*', '')}"]), metrics)
    return (*panels[:index], changed, *panels[index + 1 :])[:MOST_PANELS]


def experiment_fields(spec: ExperimentSpec) -> tuple[str, ...]:
    """Return the fields by which the runs of an experiment can be averaged, known without reading them."""
    options = dict.fromkeys(name for candidate in spec.candidates for name in candidate.options)
    sizes = ("model",) if spec.cells() else ()
    return ("candidate", "optimizer", *sizes, "lr", "seed", *(f"optimizer.options.{name}" for name in options))


def _rest(pairs: Pairs) -> list[tuple[str, str]]:
    """Return the pairs of an address that are about no panel."""
    return [(name, value) for name, value in pairs if name not in ("panel", "edit") and not name.startswith("p_")]


def _address(path: str, pairs: Pairs, panels: Sequence[Panel]) -> str:
    words = (("panel", panel.word()) for panel in panels)
    return f"{path}?{urlencode([*_rest(pairs), *words], safe=',*')}#panels"
