"""`/new`: a form that becomes a comparison, or YAML of any kind of experiment; checked by the server as it is written.

Every check posts the whole form and renders the whole page, as a browser without scripts would see it; the script only
takes over the parts that changed. So there is one judge and one template. The form (`submit_form.py`) builds a
specification, which can be edited further as YAML.
"""

import re
import secrets
from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse

from dashboards.pages.submit_form import (
    EMPTY,
    FIELDS,
    PRECISIONS,
    SHAPES,
    ShownFault,
    SubmitForm,
    fields_of,
    form_faults,
    read_form,
    text_faults,
)
from dashboards.render import missing_page, page, refused_page, visitor_id
from optim import catalog
from orchestrator.errors import ConflictError, NotFoundError, OrchestratorError
from orchestrator.kinds.fields import MOST_SEEDS
from orchestrator.kinds.registry import KINDS, validate_spec
from orchestrator.kinds.tuning import METHODS
from orchestrator.services.analysis import Analysis
from orchestrator.services.experiments import Experiments
from orchestrator.services.specifications import Specifications
from orchestrator.specs.preview import Preview
from orchestrator.specs.text import SpecTextError, brief, example, parse, to_yaml
from worker.catalog import datasets as data_catalog
from worker.catalog import presets

MOST_FIELDS = 2_000
"""The most fields of a form: every optimizer with every option is about 300."""
FRESH_SEEDS = 5
Pairs = list[tuple[str, str]]
TEXT_PLACE = re.compile(r"^The text:(\d+):(\d+):")


async def read_form_pairs(request: Request) -> Pairs:
    """Return the fields of a form that was posted; nothing if it is none."""
    text = (await request.body()).decode("utf-8", "replace")
    try:
        return parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        return []


def submit_pages(experiments: Experiments, specifications: Specifications, analysis: Analysis) -> APIRouter:
    """Return the routes of `/new`."""
    router = APIRouter(include_in_schema=False)
    pages = SubmitPages(experiments, specifications, analysis)
    router.get("/new")(pages.ask)
    router.post("/new")(pages.answer)
    return router


class SubmitPages:
    """The handlers of the pages."""

    def __init__(self, experiments: Experiments, specifications: Specifications, analysis: Analysis) -> None:
        self._experiments, self._specifications, self._analysis = experiments, specifications, analysis

    def ask(self, request: Request) -> Response:
        """Return the form, empty or as a copy of an experiment."""
        query = request.query_params
        if (copied := query.get("from")) is not None:
            return self._copy(copied)
        if (sweep := query.get("best_of")) is not None:
            return self._best_of(sweep, _count(query.get("trials"), 1), _count(query.get("seeds"), FRESH_SEEDS))
        if query.get("template") in KINDS:
            return self._yaml(example(query["template"]))
        if query.get("as") == "yaml":
            return self._yaml("")
        return self._form(EMPTY)

    def answer(self, pairs: Annotated[Pairs, Depends(read_form_pairs)]) -> Response:
        """Return the page of a form or text that was checked, or sent as `yaml`; `submit` queues an experiment."""
        sent = dict(pairs)
        action, nonce = sent.get("action", "check"), sent.get("nonce", "")
        submit, refused = action == "submit", "refused" in sent
        if "yaml" in sent:
            return self._yaml(sent["yaml"], submit=submit, refused=refused, nonce=nonce)
        form = read_form(pairs)
        if action == "yaml":
            return self._yaml(to_yaml(fields_of(form)))
        return self._form(form, submit=submit, refused=refused, nonce=nonce)

    def _form(self, form: SubmitForm, *, submit: bool = False, refused: bool = False, nonce: str = "") -> Response:
        fields = fields_of(form)
        checked = self._specifications.preview(fields)
        if submit and checked.is_acceptable():
            return self._submit(fields, nonce, checked)
        return _page(
            form=form, preview=checked, faults=form_faults(checked.faults, form), text=to_yaml(fields), mode="form",
            submitted=submit, refused=refused, nonce=nonce,
        )  # fmt: skip

    def _yaml(self, text: str, *, submit: bool = False, refused: bool = False, nonce: str = "") -> Response:
        if not text.strip():
            return _page(text=text, mode="yaml", submitted=submit, refused=refused, nonce=nonce)
        try:
            fields = parse(text, "The text")
        except SpecTextError as error:
            return _page(
                text=text, mode="yaml", trouble=TEXT_PLACE.sub(r"The text, line \1, column \2:", str(error)),
                submitted=submit, refused=refused, nonce=nonce,
            )  # fmt: skip
        checked = self._specifications.preview(fields)
        if submit and checked.is_acceptable():
            return self._submit(fields, nonce, checked)
        return _page(
            text=text, mode="yaml", preview=checked, faults=text_faults(checked.faults, text), submitted=submit,
            refused=refused, nonce=nonce,
        )  # fmt: skip

    def _copy(self, experiment_id: str) -> Response:
        """Return the specification of an experiment, to be changed and submitted again."""
        try:
            spec = self._experiments.get(experiment_id).spec
        except NotFoundError:
            return page("missing.html", status=404, what=f"There is no experiment {experiment_id!r} to copy.")
        return self._yaml(to_yaml(brief(spec)))

    def _best_of(self, sweep_id: str, trials: int, seeds: int) -> Response:
        """Return a comparison of the best trials of a sweep over fresh seeds, to be changed and submitted."""
        try:
            spec = self._analysis.sweep_comparison(sweep_id, seeds, best=trials)
        except NotFoundError as error:
            return missing_page(str(error))
        except ConflictError as error:
            return refused_page(409, "No comparison of these trials", str(error))
        return self._yaml(to_yaml(brief(spec)))

    def _submit(self, fields: dict[str, Any], nonce: str, checked: Preview) -> Response:
        """Queue it and show it. The same page sent twice makes one experiment: by its nonce and what it says."""
        spec = validate_spec(fields)
        key = f"form-{nonce[:32]}-{spec.content_hash()[:32]}" if nonce.isalnum() else None
        try:
            receipt = self._experiments.submit(spec, key, by=visitor_id())
        except OrchestratorError as error:
            return _page(text=to_yaml(fields), mode="yaml", preview=checked, trouble=str(error), submitted=True)
        return RedirectResponse(f"/experiments/{receipt.experiment.id}", status_code=303)


def _page(
    *, text: str, mode: str, form: SubmitForm = EMPTY, preview: Preview | None = None, trouble: str | None = None,
    faults: Sequence[ShownFault] = (), submitted: bool = False, refused: bool = False, nonce: str = "",
) -> Response:  # fmt: skip
    """`submitted`: this very page was, in vain; `refused`: it was once, and what was in the way is listed until it is
    gone."""
    nothing = mode == "yaml" and not text.strip()
    missing = preview.missing if preview else ()
    return page(
        "experiments/new.html",
        status=422 if submitted else 200,
        form=form,
        preview=preview,
        kind=KINDS[preview.kind] if preview and preview.kind else None,
        trouble=trouble,
        faults=faults,
        nothing=nothing,
        submitted=submitted,
        summarized=(submitted or refused) and bool(faults or missing or trouble or nothing),
        text=text,
        mode=mode,
        nonce=nonce or secrets.token_hex(8),
        fields=FIELDS,
        shapes=SHAPES,
        precisions=PRECISIONS,
        optimizers=catalog.CATALOG,
        model_choices=[(name, name) for name in presets.names()],
        optimizer_choices=[(entry.name, entry.title) for entry in catalog.CATALOG],
        datasets=data_catalog.DATASETS,
        tokenizers=data_catalog.TOKENIZERS,
        methods=[(name, description.removeprefix("a ").capitalize()) for name, description in METHODS.items()],
        templates=tuple(KINDS),
    )


def _count(text: str | None, default: int) -> int:
    """Return a small number of an address."""
    return min(max(int(text), 1), MOST_SEEDS) if text and text.isdecimal() and len(text) < 6 else default
