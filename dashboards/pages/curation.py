"""Pages that keep experiments in order: labels and note, clone, delete with its undo, and what is deleted.

/experiments/{id}/edit       a form of labels and note; it stands on the experiment's own page, too
/experiments/{id}/clone      asks, then queues the same specification once more
/experiments/{id}/delete     asks, then deletes, and leads to a page with the undo
/experiments/{id}/restore    the undo
/deleted                     what can be restored, and until when

All are plain forms that post and lead on: they need no script.
"""

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from typing import Annotated, Any, ParamSpec

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import ValidationError

from dashboards.pages.submit import Pairs, read_form_pairs
from dashboards.render import missing_page, page, refused_page, visitor_id
from dashboards.view_state import number_of
from orchestrator.annotations import AnnotationChange, LabelChange
from orchestrator.errors import ChangedMeanwhileError, ConflictError, DeletedError, MissingDataError, NotFoundError
from orchestrator.external_runs import ExternalExperiment
from orchestrator.kinds.fields import MOST_SEEDS
from orchestrator.records import AnyExperiment, ExperimentRecord
from orchestrator.services.experiments import Experiments
from orchestrator.store.external_runs import ExternalRuns

MOST_DELETED = 200
"""The most deleted experiments on one page; `adapm-bench ls --deleted` lists more."""

P = ParamSpec("P")
Sent = Annotated[Pairs, Depends(read_form_pairs)]


def curation_pages(experiments: Experiments, external_runs: ExternalRuns) -> APIRouter:
    """Return the routes of this file."""
    router = APIRouter(include_in_schema=False)
    handlers = CurationPages(experiments, external_runs)
    router.get("/deleted")(handlers.list_deleted)
    for name, ask, act in (
        ("edit", handlers.ask_to_edit, handlers.edit),
        ("clone", handlers.ask_to_clone, handlers.clone),
        ("delete", handlers.ask_to_delete, handlers.delete),
    ):
        router.get(f"/experiments/{{experiment_id}}/{name}")(or_not_found_page(experiments, ask))
        router.post(f"/experiments/{{experiment_id}}/{name}")(or_not_found_page(experiments, act))
    router.post("/experiments/{experiment_id}/restore")(or_not_found_page(experiments, handlers.restore))
    return router


def not_found_page(experiments: Experiments, error: NotFoundError) -> HTMLResponse:
    """Return the page in place of an experiment's, or of anything of it; of a deleted one with its undo."""
    experiment = deleted_experiment(experiments, error)
    if experiment is None:
        return missing_page(str(error))
    return page("curation/deleted.html", status=404, experiments=[experiment], alone=True)


def or_not_found_page(experiments: Experiments, handler: Callable[P, Response]) -> Callable[P, Response]:
    """Return the handler of a page, which answers with `not_found_page` where what it is about does not exist."""

    @wraps(handler)
    def answer(*args: P.args, **kwargs: P.kwargs) -> Response:
        try:
            return handler(*args, **kwargs)
        except NotFoundError as error:
            return not_found_page(experiments, error)

    return answer


def deleted_experiment(experiments: Experiments, error: NotFoundError) -> AnyExperiment | None:
    """Return the deleted experiment because of which something was not found; None if that is not why."""
    try:
        return experiments.get_any(error.experiment_id, deleted_too=True) if isinstance(error, DeletedError) else None
    except NotFoundError:  # restored, or removed for good, since
        return None


CHANGED_SINCE = (
    "The labels or the note have changed since you opened this page, in another tab or by someone else. "
    "The stored version is above and yours is below; save again to replace it."
)
"""The refusal of a change that began from an older version; only the note has an author, and only if there are keys."""


class CurationPages:
    """The handlers of the pages."""

    def __init__(self, experiments: Experiments, external_runs: ExternalRuns) -> None:
        self._experiments, self._external_runs = experiments, external_runs

    def list_deleted(self) -> HTMLResponse:
        """Answer with the deleted experiments that can be restored, the newest first."""
        deleted_experiments = self._experiments.page(limit=MOST_DELETED, deleted=True)
        return page("curation/deleted.html", experiments=deleted_experiments, alone=False)

    def ask_to_edit(self, experiment_id: str) -> HTMLResponse:
        """Return the form of labels and note."""
        return _form(self._experiments.find(experiment_id))

    def edit(self, experiment_id: str, pairs: Sent) -> Response:
        """Take labels and note from the form. What cannot be taken comes back as it was written, with the reason."""
        sent = dict(pairs)
        revision = number_of(sent.get("revision", ""))
        try:
            fields: dict[str, Any] = {"note": sent["note"]} if "note" in sent else {}
            fields |= {"labels": _split(sent["labels"])} if "labels" in sent else {}
            wanted = AnnotationChange.model_validate(fields)
            if isinstance(experiment := self._experiments.find(experiment_id), ExternalExperiment):
                if wanted.labels is not None:
                    labels, shown = set(wanted.labels), set(_split(sent.get("shown", "")))
                    change = LabelChange(add=tuple(labels - shown), remove=tuple(shown - labels))
                    self._external_runs.change_labels(experiment.id, change)
                return RedirectResponse(f"/experiments/{experiment.id}", status_code=303)
            self._experiments.annotate(experiment_id, wanted, revision=revision, by=visitor_id())
        except ValidationError as error:
            names = {"note": "The note"}
            faults = [
                f"{names.get(str(detail['loc'][0]), 'Labels')}: {detail['msg'].removeprefix('Value error, ')}."
                for detail in error.errors(include_url=False, include_context=False)
            ]
            return _form(self._experiments.find(experiment_id), sent=sent, faults=faults, status=422)
        except ChangedMeanwhileError:
            experiment = self._experiments.find(experiment_id)
            return _form(experiment, sent=sent, faults=[CHANGED_SINCE], status=412)
        return RedirectResponse(f"/experiments/{experiment_id}", status_code=303)

    def ask_to_clone(
        self,
        experiment_id: str,
        more_seeds: Annotated[int | None, Query(ge=1, le=MOST_SEEDS)] = None,
    ) -> Response:
        """Answer with a clone's form, filled in from the address, and the use of more seeds."""
        power = None
        if more_seeds:
            with suppress(ConflictError, NotFoundError):
                power = self._experiments.preview_clone(experiment_id, fresh_seeds=more_seeds, keep_rates=True).power
        form_fields: dict[str, Any] = {"name": None, "more_seeds": more_seeds, "power": power}
        return self._ask("curation/clone.html", experiment_id, **form_fields)

    def clone(self, experiment_id: str, pairs: Sent) -> Response:
        """Queue it; the same page sent twice makes one clone."""
        sent = dict(pairs)
        name, nonce = sent.get("name", "").strip() or None, sent.get("nonce", "")
        key = f"clone-{nonce[:32]}-{experiment_id}" if nonce.isascii() and nonce.isalnum() else None
        count = sent.get("more_seeds", "").strip()
        form_fields: dict[str, Any] = {"name": name, "more_seeds": count, "power": None}
        if count and not (count.isdecimal() and 1 <= int(count) <= MOST_SEEDS):
            trouble = f"More seeds must be a number from 1 to {MOST_SEEDS}."
            return self._ask("curation/clone.html", experiment_id, **form_fields, trouble=trouble, status=422)
        try:
            more_seeds = int(count) if count else None
            receipt = self._experiments.clone(
                experiment_id, name, key, fresh_seeds=more_seeds, keep_rates=bool(count), by=visitor_id()
            )
        except (ConflictError, MissingDataError) as error:
            return self._ask("curation/clone.html", experiment_id, **form_fields, trouble=str(error), status=409)
        return RedirectResponse(f"/experiments/{receipt.experiment.id}", status_code=303)

    def ask_to_delete(self, experiment_id: str) -> Response:
        """Answer with the consequences of a deletion."""
        with suppress(NotFoundError):
            return self._ask("curation/delete.html", experiment_id)
        return page("curation/delete.html", experiment=self._experiments.find(experiment_id))

    def delete(self, experiment_id: str) -> Response:
        """Delete it, and answer with the deleted experiments, where it is offered back."""
        try:
            self._experiments.delete(experiment_id)
        except ConflictError as error:
            return self._ask("curation/delete.html", experiment_id, trouble=str(error), status=409)
        except NotFoundError:
            self._external_runs.delete_experiment(self._experiments.find(experiment_id).id)
            return RedirectResponse("/", status_code=303)
        return RedirectResponse("/deleted", status_code=303)

    def restore(self, experiment_id: str) -> Response:
        """Undo a deletion."""
        try:
            self._experiments.restore(experiment_id)
        except ConflictError as error:
            return refused_page(409, "Too late", str(error))
        return RedirectResponse(f"/experiments/{experiment_id}", status_code=303)

    def _ask(
        self, template: str, experiment_id: str, *, trouble: str | None = None, status: int = 200, **values: Any
    ) -> Response:
        return page(
            template,
            status=status,
            experiment=self._experiments.get(experiment_id),
            trouble=trouble,
            undo_days=self._experiments.undo_days,
            nonce=secrets.token_hex(8),
            **values,
        )


def _form(
    experiment: ExperimentRecord | ExternalExperiment,
    *,
    sent: dict[str, str] | None = None,
    faults: Sequence[str] = (),
    status: int = 200,
) -> HTMLResponse:
    """Return the form with what is stored, or with what was sent."""
    note = experiment.note.text if isinstance(experiment, ExperimentRecord) and experiment.note else ""
    labels = ", ".join(experiment.labels)
    typed = {"labels": labels, "shown": labels, "note": note} | (sent or {})
    return page(
        "curation/edit.html",
        status=status,
        experiment=experiment,
        labels=typed["labels"],
        shown=typed["shown"],
        note=typed["note"],
        faults=faults,
        overtaken=status == 412,
    )


def _split(labels: str) -> list[str]:
    return [label for label in map(str.strip, labels.split(",")) if label]
