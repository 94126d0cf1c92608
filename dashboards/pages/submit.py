"""`/new`: a form that becomes a comparison, or YAML of any kind of experiment; checked by the server as it is written.

Every check posts the whole form and renders the whole page, as a browser without scripts would see it; the script only
takes over the parts that changed. So there is one judge and one template.
"""

import secrets
from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse

from dashboards.pages import form as forms
from dashboards.pages.form import SubmitForm
from dashboards.render import page, visitor
from optim import catalog
from orchestrator.errors import NotFoundError, OrchestratorError
from orchestrator.kinds.registry import KINDS, validate_spec
from orchestrator.services.experiments import Experiments
from orchestrator.services.specifications import Specifications
from orchestrator.specs.preview import Preview
from orchestrator.specs.text import SpecTextError, brief, parse, to_yaml
from worker.catalog import datasets as data_catalog
from worker.catalog import presets

MOST_FIELDS = 2_000
"""Of a form: every optimizer with every option is about 300."""
Pairs = list[tuple[str, str]]


async def read_form_pairs(request: Request) -> Pairs:
    """The fields of a form that was posted; nothing where it is none."""
    text = (await request.body()).decode("utf-8", "replace")
    try:
        return parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        return []


def submit_pages(experiments: Experiments, specifications: Specifications) -> APIRouter:
    """The routes of `/new`."""
    router = APIRouter(include_in_schema=False)
    found = SubmitPages(experiments, specifications)
    router.get("/new")(found.ask)
    router.post("/new")(found.answer)
    return router


class SubmitPages:
    """What answers."""

    def __init__(self, experiments: Experiments, specifications: Specifications) -> None:
        self._experiments, self._specifications = experiments, specifications

    def ask(self, request: Request) -> Response:
        """The form, empty or as a copy of an experiment."""
        query = request.query_params
        if (copied := query.get("from")) is not None:
            return self._copy(copied)
        if query.get("as") == "yaml":
            return self._yaml("", asked=False)
        return self._form(forms.EMPTY, asked=False)

    def answer(self, pairs: Annotated[Pairs, Depends(read_form_pairs)]) -> Response:
        """What was asked of the form: `check` it, `submit` it, or write it as `yaml`."""
        sent = dict(pairs)
        action, nonce = sent.get("action", "check"), sent.get("nonce", "")
        if "yaml" in sent and action != "yaml":
            return self._yaml(sent["yaml"], asked=True, submit=action == "submit", nonce=nonce)
        form = forms.read(pairs)
        if action == "yaml":
            return self._yaml(to_yaml(forms.fields_of(form)), asked=True)
        return self._form(form, asked=True, submit=action == "submit", nonce=nonce)

    def _form(self, form: SubmitForm, *, asked: bool, submit: bool = False, nonce: str = "") -> Response:
        fields = forms.fields_of(form)
        found = self._specifications.preview(fields)
        if submit and found.accepted():
            return self._submit(fields, nonce, found)
        by_field, others = forms.field_faults(found.faults, form)
        return _page(
            form=form, preview=found, faults=by_field, others=others, text=to_yaml(fields), mode="form",
            asked=asked, refused=submit, nonce=nonce,
        )  # fmt: skip

    def _yaml(self, text: str, *, asked: bool, submit: bool = False, nonce: str = "") -> Response:
        try:
            fields = parse(text, "The text") if text.strip() else None
        except SpecTextError as error:
            return _page(text=text, mode="yaml", trouble=str(error), asked=asked, refused=submit, nonce=nonce)
        if fields is None:
            return _page(text=text, mode="yaml", asked=asked, refused=submit, nonce=nonce)
        found = self._specifications.preview(fields)
        if submit and found.accepted():
            return self._submit(fields, nonce, found)
        return _page(
            text=text, mode="yaml", preview=found, others=list(found.faults), asked=asked, refused=submit, nonce=nonce
        )

    def _copy(self, experiment_id: str) -> Response:
        """The specification of an experiment, to be changed and submitted again."""
        try:
            spec = self._experiments.get(experiment_id).spec
        except NotFoundError:
            return page("missing.html", status=404, what=f"There is no experiment {experiment_id!r} to copy.")
        return self._yaml(to_yaml(brief(spec)), asked=False)

    def _submit(self, fields: dict[str, Any], nonce: str, found: Preview) -> Response:
        """Queue it and show it. The same page sent twice makes one experiment: by its nonce and what it says."""
        spec = validate_spec(fields)
        key = f"form-{nonce[:32]}-{spec.content_hash()[:32]}" if nonce.isalnum() else None
        try:
            made = self._experiments.submit(spec, key, by=who.key_id if (who := visitor()) else None)
        except OrchestratorError as error:
            return _page(text=to_yaml(fields), mode="yaml", preview=found, trouble=str(error), asked=True, refused=True)
        return RedirectResponse(f"/experiments/{made.experiment.id}", status_code=303)


def _page(
    *, text: str, mode: str, form: SubmitForm = forms.EMPTY, preview: Preview | None = None, trouble: str | None = None,
    faults: dict[str, list[str]] | None = None, others: Sequence[Any] = (), asked: bool, refused: bool = False,
    nonce: str = "",
) -> Response:  # fmt: skip
    return page(
        "new.html",
        status=422 if refused else 200,
        form=form,
        preview=preview,
        kind=KINDS[preview.kind] if preview and preview.kind else None,
        trouble=trouble,
        faults=faults or {},
        others=others,
        text=text,
        mode=mode,
        asked=asked,
        nonce=nonce or secrets.token_hex(8),
        optimizers=catalog.CATALOG,
        model_choices=[(name, name) for name in presets.names()],
        optimizer_choices=[(entry.name, entry.title) for entry in catalog.CATALOG],
        datasets=data_catalog.DATASETS,
        tokenizers=data_catalog.TOKENIZERS,
    )
