"""The experiments of the first page: by words, state, source and labels, as its URL says."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args
from urllib.parse import urlencode

from dashboards.view_state import state_filter
from orchestrator.annotations import MOST_LABELS, plain_label, sort_labels
from orchestrator.external_runs import ExternalExperiment, Listed
from orchestrator.jobs import RunStatus
from orchestrator.run_table.fields import FilterError
from orchestrator.services.experiments import Experiments
from orchestrator.store.external_runs import ExternalRuns

Source = Literal["all", "bench", "logged", "imported"]
SOURCES: tuple[Source, ...] = get_args(Source)
StateFilter = Literal["all", "active", "done", "failed"]
STATES: tuple[StateFilter, ...] = get_args(StateFilter)
LONGEST_TEXT = 200
PAGE = 200
MOST_SEARCHED = 4_000
"""Experiments that one search looks at, newest first: some seconds for the largest of them."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """A search for experiments."""

    text: str = ""
    state: StateFilter = "all"
    source: Source = "all"
    """Whether the bench measured the runs, or another loop or tool logged them."""
    labels: tuple[str, ...] = ()
    """All of which an experiment has."""

    @classmethod
    def parse(cls, query: Iterable[tuple[str, str]]) -> "Search":
        """Read the query of a URL. Raises `FilterError` for a state, a source or a label that there can be
        none of."""
        pairs = list(query)
        fields = dict(pairs)
        labels = sort_labels(label for name, value in pairs if name == "label" for label in _labels(value))[
            :MOST_LABELS
        ]
        return cls(
            text=fields.get("q", "").strip()[:LONGEST_TEXT],
            state=state_filter(fields.get("state"), STATES, "all"),
            source=state_filter(fields.get("source"), SOURCES, "all"),
            labels=labels,
        )

    def narrows(self) -> bool:
        """Return whether anything is looked for."""
        return self != Search()

    def query(self, without: str = "", **changes: Any) -> str:
        """Return the query of a URL for the same with these changes and `without` one label, `?` included."""
        search = replace(self, **changes)
        pairs = [("q", search.text)] if search.text else []
        pairs += [("state", search.state)] if search.state != "all" else []
        pairs += [("source", search.source)] if search.source != "all" else []
        return "?" + urlencode(pairs + [("label", label) for label in search.labels if label != without])

    def words(self) -> str:
        """Return a description of the search for people."""
        chosen = (f"({word})" for word in (self.state, self.source) if word != "all")
        return " ".join(filter(None, (self.text, *self.labels, *chosen)))

    def fits(self, experiment: Listed) -> bool:
        """Return whether every word occurs somewhere in what the experiment is, and its state and source are those."""
        kinds = experiment.source_kinds if isinstance(experiment, ExternalExperiment) else ("bench",)
        return (
            self.source in ("all", *kinds)
            and self._is_in_state(experiment)
            and all(word in _searched_text(experiment) for word in self.text.lower().split())
        )

    def _is_in_state(self, experiment: Listed) -> bool:
        counts = experiment.counts
        if self.state == "active":
            return not counts.done()
        if self.state == "failed":
            return bool(counts.by_status.get(RunStatus.FAILED, 0))
        return self.state == "all" or counts.done()


def find_experiments(experiments: Experiments, external_runs: ExternalRuns, query: Search, limit: int) -> list[Listed]:
    """Return the experiments of all sources that fit, at most `limit`, the newest first."""
    matches: list[Listed] = []
    if query.source in ("all", "bench"):
        matches += _fitting(experiments.page, query, limit)
    if query.source != "bench":
        matches += _fitting(external_runs.experiments, query, limit)
    return sorted(matches, key=lambda experiment: experiment.created_at, reverse=True)[:limit]


def _fitting(read_page: Callable[..., Sequence[Listed]], query: Search, limit: int) -> list[Listed]:
    """Return the newest of one list that fit, page by page."""
    fitting: list[Listed] = []
    cursor, looked, size = None, 0, PAGE if replace(query, labels=()).narrows() else limit
    while (
        len(fitting) < limit
        and looked < MOST_SEARCHED
        and (page := read_page(limit=size, before=cursor, labels=query.labels))
    ):
        fitting += [experiment for experiment in page if query.fits(experiment)]
        cursor, looked = page[-1].id, looked + len(page)
        if len(page) < size:
            break
    return fitting[:limit]


def _labels(text: str) -> tuple[str, ...]:
    """Return the label that a link means, if any. Raises `FilterError` if it cannot be one."""
    try:
        return (plain_label(text),) if text.strip() else ()
    except ValueError as error:
        raise FilterError(f"the label {text[:LONGEST_TEXT]!r} {error}") from error


def _searched_text(experiment: Listed) -> str:
    if isinstance(experiment, ExternalExperiment):
        texts = (experiment.id, experiment.name, *experiment.candidates, *experiment.sources, *experiment.labels)
        return " ".join(texts).lower()
    spec = experiment.spec
    if spec is None:
        return " ".join([experiment.id, experiment.name, "damaged", *experiment.labels]).lower()
    names = [name for candidate in spec.candidates for name in (candidate.optimizer, candidate.name())]
    parts = [
        experiment.id,
        experiment.name,
        *spec.models(),
        spec.workload.data.dataset,
        spec.workload.task.kind,
        *experiment.labels,
    ]
    return " ".join([*parts, *names]).lower()
