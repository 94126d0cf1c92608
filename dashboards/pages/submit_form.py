"""The form of `/new` as data: what it says, the specification that it stands for, and the form of a specification.

    pairs of a form → `read_form` → `SubmitForm` ⇄ the fields of a specification, which `preview` judges

What the form has no place for (tasks, probes, execution, labels …) is written as YAML, on the same page.
"""

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from optim import catalog
from optim.catalog import OptimizerEntry, Option, Scalar
from orchestrator.kinds.tuning import SEARCHES, TRIALS, TUNING_SEEDS
from orchestrator.tuning.ranges import AXES
from worker.catalog import presets

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
    "seeds": "1, 2, 3, 4, 5, 6, 7, 8, 9, 10", "baseline": "adamw", "cpus": "1", "gpus": "0", "priority": "0",
    "method": "line", "trials": str(TRIALS), "tuning_seeds": ", ".join(map(str, TUNING_SEEDS)), "replicates": "1",
    "first_seeds": "3", "seeds_per_look": "1",
}  # fmt: skip
"""A workload that trains in seconds on a CPU."""
CHOSEN = ("adamw", "adapm", "adapm-mini")
METHODS = (
    ("line", "Line search over the learning rate"),
    ("random", "Random search"),
    ("coordinate", "Coordinate descent"),
    ("grid", "The given learning rates"),
)
TUNING = {"method": "method", "trials": "trials", "seeds": "tuning_seeds", "replicates": "replicates"}
SEQUENTIAL = {"first_seeds": "first_seeds", "seeds_per_look": "seeds_per_look"}
"""Field of the specification → field of the form."""
LEFT = "left"
"""In the place of a candidate that the form cannot hold."""
SEARCHED = ("warmup", "beta2", "weight_decay")
"""Beside the rate, which is always searched."""
GRID = (0.5, 1.0, 2.0)
"""Factors around a learning rate: the smallest grid whose best rate can be interior."""
NARROW = 256
"""Hidden size below which a model is one of our own small ones, which train for some hundred steps."""
NARROW_RATE = 4e-3
"""For optimizers whose steps have Adam's size on such a model: on gpt2-nano over 150 steps AdamW, AdaPM and
AdaPM-mini are best within half and twice of it. The catalog's is for models from 100 M parameters on."""
TITLES: dict[str, str] = {
    "name": "Name", "model": "Model", "dataset": "Dataset", "tokenizer": "Tokenizer", "sequence": "Tokens per sequence",
    "steps": "Steps", "batch": "Sequences per step", "warmup": "Warm-up steps", "shape": "Schedule",
    "every": "Steps between validations", "held_out": "Held-out sequences", "precision": "Precision", "seeds": "Seeds",
    "baseline": "Baseline", "method": "Tuned by", "trials": "Trials of each candidate", "tuning_seeds": "Tuning seeds",
    "replicates": "Replicates", "first_seeds": "Seeds at the first look",
    "seeds_per_look": "Seeds for each further look", "cpus": "CPUs", "gpus": "GPUs", "priority": "Priority",
}  # fmt: skip
"""Field of the form → its label."""
SHAPES = (("cosine", "Cosine"), ("linear", "Linear"), ("wsd", "Constant, then down"), ("constant", "Constant"))
PRECISIONS = (("fp32", "fp32"), ("bf16", "bf16"))
OFFERED = frozenset(entry.name for entry in catalog.CATALOG)
CHOICES: dict[str, frozenset[str]] = {
    "model": frozenset(presets.names()),
    "shape": frozenset(name for name, _ in SHAPES),
    "precision": frozenset(name for name, _ in PRECISIONS),
    "baseline": OFFERED,
    "method": frozenset(name for name, _ in METHODS),
}
"""Field of the form that chooses → what it can say."""

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
    kept: tuple[str, ...] = ()
    """Optimizers that are or were candidates, in the order in which they became some: their rows stay."""

    def searches(self) -> bool:
        """Whether more than the rate is tuned."""
        return self.tuning and self.value("method") in SEARCHES

    def value(self, name: str) -> str:
        """The text of a field; its default where nothing was sent."""
        return self.values.get(name, DEFAULTS.get(name, ""))

    def rates(self, entry: OptimizerEntry) -> str:
        """The learning rates of an optimizer as text; empty are those that are suggested."""
        return self.values.get(f"rates:{entry.name}", "")

    def suggested_rates(self, entry: OptimizerEntry) -> str:
        """Those that are taken where none are written, by the model that is chosen: three of a grid, else one."""
        centre = suggested_rate(entry, self.value("model"))
        is_grid = self.tuning and self.value("method") == "grid"
        return ", ".join(f"{factor * centre:g}" for factor in (GRID if is_grid else (1.0,)))

    def option(self, entry: OptimizerEntry, name: str) -> str:
        """An option's text; empty is its default."""
        return self.values.get(f"option:{entry.name}:{name}", "")

    def shows(self, entry: OptimizerEntry) -> bool:
        """Whether the form lists an optimizer: what is or was a candidate always, others once they are looked for."""
        return entry.name in self.listed() or self._finds(entry)

    def listed(self) -> tuple[str, ...]:
        """The optimizers that are listed whatever is looked for, in the order in which they became candidates."""
        new = [entry.name for entry in catalog.CATALOG if entry.name in self.chosen and entry.name not in self.kept]
        return (*self.kept, *new)

    def search_summary(self) -> str:
        """How many optimizers beside those listed anyway are found; empty where nothing is looked for."""
        found = sum(self._finds(entry) for entry in catalog.CATALOG if entry.name not in self.listed())
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


def suggested_rate(entry: OptimizerEntry, model: str) -> float:
    """The learning rate that is suggested for a model."""
    is_narrow = model in presets.names() and presets.preset(model).hidden_size < NARROW
    is_adams = entry.learning_rate == catalog.entry("adamw").learning_rate
    return NARROW_RATE if is_narrow and is_adams else entry.learning_rate


def read_form(pairs: Iterable[tuple[str, str]]) -> SubmitForm:
    """The form as a browser sends it; unknown names do nothing."""
    sent = [(name, value.strip()) for name, value in pairs]
    return SubmitForm(
        values=dict(sent),
        chosen=frozenset(value for name, value in sent if name == "use"),
        tuning=any(name == "tuning" for name, _ in sent),
        searched=frozenset(value for name, value in sent if name == "search"),
        sequential=any(name == "sequential" for name, _ in sent),
        kept=tuple(dict.fromkeys(name for field, value in sent if field == "kept" for name in value.split())),
    )


def fields_of(form: SubmitForm) -> dict[str, Any]:
    """The specification that a form stands for, unchecked: what is not a number stays text, for its fault to name."""
    fields: dict[str, Any] = {}
    for name, path in WORKLOAD.items():
        text = form.value(name)
        if text or name in ("name", "model"):
            _put(fields, path, _parse_field(name, text))
    fields["workload"].setdefault("budget", {})  # not it, but its steps are missing
    fields["candidates"] = [_candidate(form, entry) for entry in chosen_entries(form)]
    if form.tuning:
        fields["tuning"] = _parse_fields(form, _tuning_fields(form.value("method")))
        if form.searches():
            fields["tuning"]["search"] = [axis for axis in AXES if axis == "lr" or axis in form.searched]
    if form.sequential:
        fields["sequential"] = _parse_fields(form, SEQUENTIAL)
    return fields


def _tuning_fields(method: str) -> dict[str, str]:
    """Those of `TUNING` that a method has: a grid's rates are its trials."""
    return {name: field for name, field in TUNING.items() if (name, method) != ("trials", "grid")}


def _parse_fields(form: SubmitForm, names: Mapping[str, str]) -> dict[str, Any]:
    """Those that are not empty; `names`: field of the specification → field of the form."""
    return {name: _parse_field(field, text) for name, field in names.items() if (text := form.value(field))}


def chosen_entries(form: SubmitForm) -> list[OptimizerEntry]:
    """The ticked optimizers, in the order in which they became candidates."""
    return [catalog.entry(name) for name in form.listed() if name in form.chosen & OFFERED]


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


def _put(fields: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        fields = fields.setdefault(name, {})
    fields[path[-1]] = value


def form_of(fields: Mapping[str, Any]) -> tuple[SubmitForm, tuple[str, ...]]:
    """The form that stands for the fields of a specification, and the places of what it cannot hold."""
    rest = copy.deepcopy(dict(fields))
    if rest.get("kind") == "comparison":
        del rest["kind"]
    values = {name: _take(rest, name, path) for name, path in WORKLOAD.items()}
    chosen = _take_candidates(rest, values)
    values["baseline"] = values["baseline"] or next(iter(chosen), "")
    is_tuned, is_sequential = isinstance(rest.get("tuning"), dict), isinstance(rest.get("sequential"), dict)
    searched: frozenset[str] = frozenset()
    if is_tuned:
        method = rest["tuning"].get("method", DEFAULTS["method"])
        for name, field in _tuning_fields(method).items():
            values[field] = _take(rest, field, ("tuning", name))
        axes = rest.get("tuning", {}).get("search")
        if (
            method in SEARCHES
            and isinstance(axes, list)
            and axes == ["lr", *(axis for axis in AXES[1:] if axis in axes)]
        ):
            searched = frozenset(axes) - {"lr"}
            del rest["tuning"]["search"]
    if is_sequential:
        values |= {field: _take(rest, field, ("sequential", name)) for name, field in SEQUENTIAL.items()}
    for name in ("tuning", "sequential"):
        if not rest.get(name, True):
            del rest[name]
    form = SubmitForm(
        values={name: text for name, text in values.items() if text or name not in CHOICES},
        chosen=frozenset(chosen), kept=tuple(chosen), tuning=is_tuned, searched=searched, sequential=is_sequential,
    )  # fmt: skip
    return form, tuple(_leaves(rest or None, ""))


def _take(rest: dict[str, Any], name: str, path: tuple[str, ...]) -> str:
    """Take out of `rest` what a field of the form can hold, as the field's text; what it cannot stays."""
    holders: list[Any] = [rest]
    for step in path[:-1]:
        holders.append(holders[-1].get(step))
        if not isinstance(holders[-1], dict):
            return ""
    value = holders[-1].get(path[-1])
    text = "" if value is None else _field_text(value)
    fits = text == text.strip() and _parse_field(name, text) == value and text in CHOICES.get(name, {text})
    if value is not None and not fits:
        return ""
    for holder, step in zip(reversed(holders), reversed(path), strict=True):
        if step in holder and holder[step] in (value, {}):
            del holder[step]
    return text


def _take_candidates(rest: dict[str, Any], values: dict[str, str]) -> list[str]:
    """The same for candidates: the names of the optimizers that become candidates, their rates and options."""
    chosen: list[str] = []
    if not isinstance(rest.get("candidates"), list):
        return chosen
    for number, candidate in enumerate(rest["candidates"]):
        name = candidate.get("optimizer") if isinstance(candidate, dict) else None
        if not isinstance(name, str) or name not in OFFERED or name in chosen:
            rest["candidates"][number] = LEFT
            continue
        chosen.append(name)
        del candidate["optimizer"]
        rates = candidate.get("learning_rates")
        text = _field_text(rates)
        if isinstance(rates, list) and _list(text) == rates:
            values[f"rates:{name}"] = text
            del candidate["learning_rates"]
        options = candidate.get("options")
        for option in catalog.entry(name).options if isinstance(options, dict) else ():
            if option.name in options and (text := _option_text(option, options[option.name])):
                values[f"option:{name}:{option.name}"] = text
                del options[option.name]
        if options == {}:
            del candidate["options"]
    if not any(rest["candidates"]):
        del rest["candidates"]
    return chosen


def _option_text(option: Option, value: Any) -> str:
    """The text of an option's field; empty where it has none for that value."""
    text = _field_text(value)
    known = {"bool": ("true", "false"), "choice": option.choices}.get(option.kind, (text,))
    is_same = _option(option.kind, text) == value and not isinstance(value, list | dict)
    return text if is_same and text in known else ""


def _field_text(value: Any) -> str:
    """A value as people write it into a field."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return ", ".join(map(_field_text, value)) if isinstance(value, list) else str(value)


def _leaves(value: Any, where: str) -> Iterator[str]:
    """The places of all that a value holds."""
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        value = {number: item for number, item in enumerate(value) if item != {}}
    if isinstance(value, dict) and value:
        for name, held in value.items():
            yield from _leaves(held, f"{where}/{name}")
    elif value is not None:
        yield where
