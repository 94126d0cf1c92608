"""Actions on several runs or experiments at once, selected on `/runs` or on the first page.

GET  /selection?action=delete&runs=…&experiments=…    asks: what it would mean, for each
POST /selection                                       does it, and says what could not be done

Plain forms without a script. A run's label and its deletion are those of its experiment; runs that were logged or
imported, whose ids have `external:` before them, are removed one by one.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, get_args

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import TypeAdapter, ValidationError

from dashboards.data.any_run import AnyRun
from dashboards.data.reader import Reader
from dashboards.pages.submit import Pairs, read_form_pairs
from dashboards.render import page, refused_page
from orchestrator.annotations import Label, LabelChange
from orchestrator.errors import ConflictError, NotFoundError
from orchestrator.external_runs import ExternalExperiment, ExternalRun, Listed
from orchestrator.jobs import ACTIONABLE, RunAction
from orchestrator.records import RunRecord
from orchestrator.run_table.fields import EXTERNAL
from orchestrator.services.composition import Services

SelectionAction = Literal["retry", "label", "delete"]
MOST_SELECTED = 200
LONGEST_ID = 64
LABEL: TypeAdapter[str] = TypeAdapter(Label)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The selected items, as far as they exist."""

    runs: tuple[AnyRun, ...]
    experiments: tuple[Listed, ...]
    """The selected ones and those of the selected runs."""
    chosen: frozenset[str]
    """Ids of the experiments that were selected themselves."""
    unknown: tuple[str, ...]

    def ids(self) -> list[tuple[str, str]]:
        """Return the fields of a form that selects the same."""
        alone = (experiment.id for experiment in self.experiments if experiment.id in self.chosen)
        return [*(("runs", run.key) for run in self.runs), *(("experiments", experiment_id) for experiment_id in alone)]

    def retriable(self) -> list[RunRecord]:
        """Return the runs that can be tried again."""
        measured = (run.measured for run in self.runs)
        return [run for run in measured if run is not None and run.status in ACTIONABLE[RunAction.RETRY]]

    def deleted_experiments(self) -> list[Listed]:
        """Experiments that a deletion removes whole."""
        return [
            experiment
            for experiment in self.experiments
            if experiment.id in self.chosen or not isinstance(experiment, ExternalExperiment)
        ]

    def deleted_runs(self) -> list[ExternalRun]:
        """Runs that a deletion removes one by one."""
        external_runs = (run.external for run in self.runs)
        return [run for run in external_runs if run is not None and run.experiment_id not in self.chosen]


def selection_pages(services: Services, reader: Reader) -> APIRouter:
    """Return the page and what it does."""
    router = APIRouter(include_in_schema=False)
    handlers = SelectionPages(services, reader)
    router.get("/selection")(handlers.ask)
    router.post("/selection")(handlers.act)
    return router


class SelectionPages:
    """The handlers of the pages."""

    def __init__(self, services: Services, reader: Reader) -> None:
        self._services, self._reader = services, reader

    def ask(self, request: Request) -> Response:
        """Answer with the consequences of the action."""
        pairs = request.query_params.multi_items()
        if len(_selected_items(pairs)) > MOST_SELECTED:
            return _too_many_page(pairs)
        return _question(self._find(pairs), _action(pairs), back=_return_address(pairs))

    def act(self, request: Request, pairs: Annotated[Pairs, Depends(read_form_pairs)]) -> Response:
        """Do it, one by one: what cannot be done is named, and the rest is done."""
        if len(_selected_items(pairs)) > MOST_SELECTED:
            return _too_many_page(pairs)
        if (asked := dict(pairs).get("action", "")) not in get_args(SelectionAction):
            names = ", ".join(get_args(SelectionAction))
            return refused_page(422, "No such action", f"There is no action {asked[:LONGEST_ID]!r}; there are {names}.")
        selection, action, back = self._find(pairs), _action(pairs), _return_address(pairs)
        label = dict(pairs).get("label", "")
        if action == "label":
            try:
                label = LABEL.validate_python(label)
            except ValidationError as error:
                why = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
                return _question(selection, action, back=back, label=label, faults=(f"The label {why}.",), status=422)
        targets: list[str] = []
        faults = [f"There is no {key}." for key in selection.unknown]
        for target, change in self._changes(selection, action, label):
            try:
                change()
                targets.append(target)
                request.scope["bench.targets"] = tuple(targets)  # at once: the next one may end this request
            except (ConflictError, NotFoundError) as error:
                faults.append(f"{target}: {error}")
        if faults:
            remaining = self._find(pairs)
            return _question(remaining, action, back=back, label=label, faults=faults, done=len(targets), status=409)
        return RedirectResponse(back, status_code=303)

    def _changes(
        self, selection: Selection, action: SelectionAction, label: str
    ) -> list[tuple[str, Callable[[], object]]]:
        """(what is changed, how) for each that the action is about."""
        runs, experiments, external = self._services.runs, self._services.experiments, self._services.external_runs
        if action == "retry":
            return [(f"/runs/{run.id}", partial(runs.apply, run.id, RunAction.RETRY)) for run in selection.retriable()]
        if action == "label":
            added = LabelChange(add=(label,))
            return [
                (f"/experiments/{experiment.id}", partial(experiments.change_labels, experiment.id, added))
                for experiment in selection.experiments
            ]
        changes: list[tuple[str, Callable[[], object]]] = []
        for experiment in selection.deleted_experiments():
            delete = external.delete_experiment if isinstance(experiment, ExternalExperiment) else experiments.delete
            changes.append((f"/experiments/{experiment.id}", partial(delete, experiment.id)))
        return changes + [
            (f"/external-runs/{run.id}", partial(external.delete_run, run.id)) for run in selection.deleted_runs()
        ]

    def _find(self, pairs: Iterable[tuple[str, str]]) -> Selection:
        runs: list[AnyRun] = []
        experiments: dict[str, Listed] = {}
        chosen: set[str] = set()
        unknown: list[str] = []
        for name, value in _selected_items(pairs):
            try:
                if len(value.removeprefix(EXTERNAL)) > LONGEST_ID:
                    raise NotFoundError(f"no id is as long as {value!r}")
                if name == "runs":
                    runs.append(self._reader.run(value))
                    experiment_id = runs[-1].record.experiment_id
                else:
                    experiment_id = value
                if experiment_id not in experiments:
                    experiments[experiment_id] = self._services.experiments.find_any(experiment_id)
                chosen |= {experiment_id} if name == "experiments" else set()
            except NotFoundError:
                unknown.append(f"{'experiment' if name == 'experiments' else 'run'} {value[:LONGEST_ID]}")
        return Selection(
            runs=tuple(sorted(runs, key=lambda run: run.key)),
            experiments=tuple(experiments.values()),
            chosen=frozenset(chosen),
            unknown=tuple(unknown),
        )


def _selected_items(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the items of the form, without duplicates."""
    return list(dict.fromkeys((name, value) for name, value in pairs if name in ("runs", "experiments")))


def _too_many_page(pairs: Iterable[tuple[str, str]]) -> Response:
    """Rather than a part of what was selected, nothing."""
    count = len(_selected_items(pairs))
    return refused_page(422, "Too many at once", f"{count:,} are selected, and {MOST_SELECTED} are the most at once.")


def _action(pairs: Iterable[tuple[str, str]]) -> SelectionAction:
    given = dict(pairs).get("action")
    return next((action for action in get_args(SelectionAction) if action == given), "label")


def _return_address(pairs: Iterable[tuple[str, str]]) -> str:
    """Return the page of the selection: a path of ours, whatever a link says."""
    given = dict(pairs).get("back", "")
    is_ours = given == "/" or given.startswith(("/?", "/runs?"))
    return given if is_ours and given.isascii() and given.isprintable() and "\\" not in given else "/runs"


def _question(
    selection: Selection,
    action: SelectionAction,
    *,
    back: str,
    label: str = "",
    faults: Iterable[str] = (),
    done: int = 0,
    status: int = 200,
) -> Response:
    return page(
        "runs/selection.html",
        status=status,
        found=selection,
        action=action,
        back=back,
        label=label,
        faults=tuple(faults),
        done=done,
    )
