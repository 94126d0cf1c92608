"""`/new`: a form that becomes a comparison, or YAML of any kind of experiment; checked by the server as it is written.

    pairs of a form → `read_form` → `fields_of` → the fields of a specification, which `preview` judges

Every check posts the whole form and renders the whole page, as a browser without scripts would see it; the script only
takes over the parts that changed. So there is one judge and one template. Everything that is not in the form (tasks,
probes, execution, labels …) is written as YAML, on the same page.
"""

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse

from dashboards.render import missing_page, page, refused_page, visitor
from optim import catalog
from optim.catalog import OptimizerEntry, Scalar
from orchestrator.errors import ConflictError, NotFoundError, OrchestratorError
from orchestrator.kinds.registry import KINDS, validate_spec
from orchestrator.kinds.tuning_search import AXES, axes_in_words
from orchestrator.services.analysis import Analysis
from orchestrator.services.experiments import Experiments
from orchestrator.services.specifications import Specifications
from orchestrator.specs.faults import Fault
from orchestrator.specs.preview import Preview
from orchestrator.specs.text import SpecTextError, brief, example, parse, to_yaml
from worker.catalog import datasets as data_catalog
from worker.catalog import presets

MOST_FIELDS = 2_000
"""Of a form: every optimizer with every option is about 300."""
FRESH_SEEDS = 5
MOST_COUNTED = 256
Pairs = list[tuple[str, str]]
WORKLOAD: dict[str, tuple[str, ...]] = {
    "name": ("name",),
    "model": ("workload", "model"),
    "dataset": ("workload", "data", "dataset"),
    "tokenizer": ("workload", "data", "tokenizer"),
    "sequence": ("workload", "data", "sequence_length_tokens"),
    "steps": ("workload", "budget", "steps"),
    "batch": ("workload", "budget", "batch_sequences"),
    "shape": ("workload", "schedule", "shape"),
    "warmup": ("workload", "schedule", "warmup_steps"),
    "every": ("workload", "evaluation", "every_steps"),
    "held_out": ("workload", "evaluation", "sequences"),
    "precision": ("workload", "precision"),
    "seeds": ("seeds",),
    "baseline": ("baseline",),
    "cpus": ("resources", "cpus"),
    "gpus": ("resources", "gpus"),
    "priority": ("priority",),
}
"""Field of the form → its place in the specification."""
LISTS = frozenset({"seeds", "tuning_seeds"})
TEXTS = frozenset({"name", "model", "dataset", "tokenizer", "shape", "precision", "baseline", "method"})
"""Taken as they are, even where they look like a number."""

DEFAULTS: dict[str, str] = {
    "name": "New comparison", "model": "gpt2-nano", "dataset": "python-stdlib", "tokenizer": "byte", "sequence": "128",
    "steps": "150", "batch": "8", "shape": "cosine", "warmup": "15", "every": "50", "held_out": "128",
    "precision": "fp32",
    "seeds": "1, 2, 3, 4, 5", "baseline": "adamw", "cpus": "1", "gpus": "0", "priority": "0",
    "tuning_seeds": "1001, 1002, 1003", "extend_grid": "6", "method": "", "trials": "16", "first_seeds": "3",
    "seeds_per_look": "1",
}  # fmt: skip
"""A workload that trains in seconds on a CPU, and on which the suggested grids have their best rate inside."""
CHOSEN = ("adamw", "adapm", "adapm-mini")
METHODS = (
    ("", "Learning-rate grids"),
    ("random", "Random search"),
    ("coordinate", "Coordinate descent"),
)
TUNING = {"seeds": "tuning_seeds", "extend_grid": "extend_grid", "method": "method", "trials": "trials"}
SEQUENTIAL = {"first_seeds": "first_seeds", "seeds_per_look": "seeds_per_look"}
"""Field of the specification → field of the form."""
SEARCHED = ("warmup", "beta2", "weight_decay")
"""Beside the rate, which is always searched."""
GRID = (0.5, 1.0, 2.0)
"""Factors around a learning rate: the smallest grid whose best rate can be interior."""
NARROW = 256
"""Hidden size below which a model is one of our own small ones, which train for some hundred steps."""
NARROW_RATE = 4e-3
"""The centre for optimizers whose steps have Adam's size on such a model: on gpt2-nano over 150 steps AdamW, AdaPM and
AdaPM-mini are best within half and twice of it. The catalog's is for models from 100 M parameters on."""

WHOLE = re.compile(r"[+-]?\d{1,18}")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")
LIST = re.compile(r"[\s,;]+")


@dataclass(frozen=True, kw_only=True)
class SubmitForm:
    """What the form says: every field as text, and which boxes are ticked."""

    values: Mapping[str, str]
    chosen: frozenset[str]
    """Optimizers that are candidates."""
    tuning: bool
    searched: frozenset[str] = frozenset(SEARCHED)
    """Hyperparameters that are searched, where a method is chosen."""
    sequential: bool = False

    def searches(self) -> bool:
        """Whether more than the rate is tuned."""
        return self.tuning and bool(self.value("method"))

    def value(self, name: str) -> str:
        """The text of a field; its default where nothing was sent."""
        return self.values.get(name, DEFAULTS.get(name, ""))

    def rates(self, entry: OptimizerEntry) -> str:
        """The learning rates of an optimizer as text; empty are those that are suggested."""
        return self.values.get(f"rates:{entry.name}", "")

    def suggested_rates(self, entry: OptimizerEntry) -> str:
        """Those that are taken where none are written, by the model that is chosen: of a search its middle."""
        grid = suggested_grid(entry, self.value("model"))
        return LIST.split(grid)[len(GRID) // 2] if self.searches() else grid

    def option(self, entry: OptimizerEntry, name: str) -> str:
        """An option's text; empty is its default."""
        return self.values.get(f"option:{entry.name}:{name}", "")

    def shows(self, entry: OptimizerEntry) -> bool:
        """Whether the form lists an optimizer: candidates always, others once they are looked for."""
        return entry.name in self.chosen or self._finds(entry)

    def search_summary(self) -> str:
        """How many optimizers beside the candidates are found; empty where nothing is looked for."""
        found = sum(self._finds(entry) for entry in catalog.CATALOG if entry.name not in self.chosen)
        return f"{found} found" if self.value("find") else ""

    def _finds(self, entry: OptimizerEntry) -> bool:
        words = self.value("find").lower().split()
        return bool(words) and all(word in searched_words(entry) for word in words)

    def changed_options(self, entry: OptimizerEntry) -> int:
        """How many options differ from their defaults."""
        return sum(bool(self.option(entry, option.name)) for option in entry.options)


EMPTY = SubmitForm(values={}, chosen=frozenset(CHOSEN), tuning=True)
"""The form as it is first shown."""


def searched_words(entry: OptimizerEntry) -> str:
    """The text in which an optimizer is looked for, in small letters."""
    return f"{entry.name} {entry.title} {entry.summary} {entry.paper}".lower()


async def read_form_pairs(request: Request) -> Pairs:
    """The fields of a form that was posted; nothing where it is none."""
    text = (await request.body()).decode("utf-8", "replace")
    try:
        return parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        return []


def submit_pages(experiments: Experiments, specifications: Specifications, analysis: Analysis) -> APIRouter:
    """The routes of `/new`."""
    router = APIRouter(include_in_schema=False)
    found = SubmitPages(experiments, specifications, analysis)
    router.get("/new")(found.ask)
    router.post("/new")(found.answer)
    return router


class SubmitPages:
    """What answers."""

    def __init__(self, experiments: Experiments, specifications: Specifications, analysis: Analysis) -> None:
        self._experiments, self._specifications, self._analysis = experiments, specifications, analysis

    def ask(self, request: Request) -> Response:
        """The form, empty or as a copy of an experiment."""
        query = request.query_params
        if (copied := query.get("from")) is not None:
            return self._copy(copied)
        if (sweep := query.get("best_of")) is not None:
            return self._best_of(sweep, _count(query.get("trials"), 1), _count(query.get("seeds"), FRESH_SEEDS))
        if query.get("template") in KINDS:
            return self._yaml(example(query["template"]), asked=False)
        if query.get("as") == "yaml":
            return self._yaml("", asked=False)
        return self._form(EMPTY, asked=False)

    def answer(self, pairs: Annotated[Pairs, Depends(read_form_pairs)]) -> Response:
        """What was asked of the form: `check` it, `submit` it, or write it as `yaml`."""
        sent = dict(pairs)
        action, nonce = sent.get("action", "check"), sent.get("nonce", "")
        if "yaml" in sent and action != "yaml":
            return self._yaml(sent["yaml"], asked=True, submit=action == "submit", nonce=nonce)
        form = read_form(pairs)
        if action == "yaml":
            return self._yaml(to_yaml(fields_of(form)), asked=True)
        return self._form(form, asked=True, submit=action == "submit", nonce=nonce)

    def _form(self, form: SubmitForm, *, asked: bool, submit: bool = False, nonce: str = "") -> Response:
        fields = fields_of(form)
        found = self._specifications.preview(fields)
        if submit and found.is_acceptable():
            return self._submit(fields, nonce, found)
        by_field, others = field_faults(found.faults, form)
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
        if submit and found.is_acceptable():
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

    def _best_of(self, sweep_id: str, trials: int, seeds: int) -> Response:
        """A comparison of the best trials of a sweep over fresh seeds, to be changed and submitted."""
        try:
            spec = self._analysis.sweep_comparison(sweep_id, seeds, best=trials)
        except NotFoundError as error:
            return missing_page(str(error))
        except ConflictError as error:
            return refused_page(409, "No comparison of these trials", str(error))
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
    *, text: str, mode: str, form: SubmitForm = EMPTY, preview: Preview | None = None, trouble: str | None = None,
    faults: dict[str, list[str]] | None = None, others: Sequence[Any] = (), asked: bool, refused: bool = False,
    nonce: str = "",
) -> Response:  # fmt: skip
    return page(
        "experiments/new.html",
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
        methods=METHODS,
        searched_words=searched_words,
        templates=tuple(KINDS),
        search_axes=[(axis, axes_in_words([axis])) for axis in AXES if axis != "lr"],
    )


def _count(text: str | None, default: int) -> int:
    """A small number of an address."""
    return min(max(int(text), 1), MOST_COUNTED) if text and text.isdecimal() and len(text) < 6 else default


def suggested_grid(entry: OptimizerEntry, model: str) -> str:
    """The learning rates that are suggested for a model: a centre, half of it and twice as much."""
    is_narrow = model in presets.names() and presets.preset(model).hidden_size < NARROW
    is_adams = entry.learning_rate == catalog.entry("adamw").learning_rate
    centre = NARROW_RATE if is_narrow and is_adams else entry.learning_rate
    return ", ".join(f"{factor * centre:g}" for factor in GRID)


def read_form(pairs: Iterable[tuple[str, str]]) -> SubmitForm:
    """The form as a browser sends it; unknown names do nothing."""
    sent = [(name, value.strip()) for name, value in pairs]
    return SubmitForm(
        values=dict(sent),
        chosen=frozenset(value for name, value in sent if name == "use"),
        tuning=any(name == "tuning" for name, _ in sent),
        searched=frozenset(value for name, value in sent if name == "search"),
        sequential=any(name == "sequential" for name, _ in sent),
    )


def fields_of(form: SubmitForm) -> dict[str, Any]:
    """The specification that a form stands for, unchecked: what is no number stays text, for its fault to name."""
    fields: dict[str, Any] = {}
    for name, place in WORKLOAD.items():
        text = form.value(name)
        if text or name in ("name", "model"):
            _put(fields, place, _parse_field(name, text))
    fields["candidates"] = [_candidate(form, entry) for entry in chosen_entries(form)]
    if form.tuning:
        unused = {"extend_grid"} if form.searches() else {"method", "trials"}
        fields["tuning"] = _parse_fields(form, {name: TUNING[name] for name in TUNING if name not in unused})
        if form.searches():
            fields["tuning"]["search"] = [axis for axis in AXES if axis == "lr" or axis in form.searched]
    if form.sequential:
        fields["sequential"] = _parse_fields(form, SEQUENTIAL)
    return fields


def _parse_fields(form: SubmitForm, names: Mapping[str, str]) -> dict[str, Any]:
    """Those that are not empty; `names`: field of the specification → field of the form."""
    return {name: _parse_field(field, text) for name, field in names.items() if (text := form.value(field))}


def chosen_entries(form: SubmitForm) -> list[OptimizerEntry]:
    """The ticked optimizers, in the order of the catalog."""
    return [entry for entry in catalog.CATALOG if entry.name in form.chosen]


def field_faults(faults: Iterable[Fault], form: SubmitForm) -> tuple[dict[str, list[str]], list[Fault]]:
    """(field of the form → what is wrong with it, faults that belong to no field)."""
    places = {"/" + "/".join(place): name for name, place in WORKLOAD.items()}
    places |= {f"/tuning/{name}": field for name, field in TUNING.items()}
    places |= {f"/sequential/{name}": field for name, field in SEQUENTIAL.items()}
    for number, entry in enumerate(chosen_entries(form)):
        places[f"/candidates/{number}/learning_rates"] = f"rates:{entry.name}"
        for option in entry.options:
            places[f"/candidates/{number}/options/{option.name}"] = f"option:{entry.name}:{option.name}"
    by_field: dict[str, list[str]] = {}
    others: list[Fault] = []
    for fault in faults:
        # A fault in an item of a list stands at the field that holds the list.
        name = places.get(fault.pointer) or places.get(fault.pointer.rpartition("/")[0])
        if name is None:
            others.append(fault)
        else:
            by_field.setdefault(name, []).append(fault.allowed)
    return by_field, others


def _candidate(form: SubmitForm, entry: OptimizerEntry) -> dict[str, Any]:
    candidate: dict[str, Any] = {
        "optimizer": entry.name,
        "learning_rates": _list(form.rates(entry) or form.suggested_rates(entry)),
    }
    options = {
        option.name: _option(option.kind, form.option(entry, option.name))
        for option in entry.options
        if form.option(entry, option.name)
    }
    return candidate | ({"options": options} if options else {})


def _option(kind: str, text: str) -> Scalar:
    if text == "null":
        return None
    if kind == "bool":
        return {"true": True, "false": False}.get(text, text)
    return text if kind == "choice" else _number(text)


def _parse_field(name: str, text: str) -> Any:
    if name in LISTS:
        return _list(text)
    return text if name in TEXTS else _number(text)


def _list(text: str) -> list[Scalar]:
    """Numbers between commas or blanks; learning rates are numbers with a point, whatever they look like."""
    return [_number(item) for item in LIST.split(text) if item]


def _number(text: str) -> int | float | str:
    if WHOLE.fullmatch(text):
        return int(text)
    return float(text) if NUMBER.fullmatch(text) else text


def _put(fields: dict[str, Any], place: tuple[str, ...], value: Any) -> None:
    for name in place[:-1]:
        fields = fields.setdefault(name, {})
    fields[place[-1]] = value
