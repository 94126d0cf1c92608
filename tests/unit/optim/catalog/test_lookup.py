"""The catalog: typed options with bounds, faults in words, and suggestions for an unknown name."""

from importlib import import_module

import pytest

from optim.catalog import CATALOG, Option, entry, names
from optim.errors import UnknownOptimizerError
from optim.nearest import nearest, unknown

RATE = Option(name="rate", kind="float", default=0.5, meaning="", minimum=0.0, maximum=1.0, exclusive_maximum=True)
COUNT = Option(name="count", kind="int", default=1, meaning="", minimum=1)
SWITCH = Option(name="switch", kind="bool", default=True, meaning="")
WORD = Option(name="word", kind="choice", default=None, meaning="", choices=("a", "b"), nullable=True)


@pytest.mark.parametrize(
    ("option", "values"),
    [(RATE, [0, 0.0, 0.999]), (COUNT, [1, 10**9]), (SWITCH, [True, False]), (WORD, ["a", "b", None])],
)
def test_values_within_the_bounds_have_no_fault(option, values):
    assert [option.fault(value) for value in values] == [None] * len(values)


@pytest.mark.parametrize(
    ("option", "values", "fault"),
    [
        (RATE, [-0.1, 1, 1.0, "0.5", True, None, float("nan"), float("inf")], "must be a number in [0, 1)"),
        (COUNT, [0, 1.0, 1.5, True, "1", None, 10**400], "must be a whole number in [1, inf)"),
        (SWITCH, [0, 1, "true", None], "must be true or false"),
        (WORD, ["c", "", 1, True], "must be one of a, b or null"),
    ],
)
def test_any_other_value_is_told_what_is_allowed(option, values, fault):
    assert [option.fault(value) for value in values] == [fault] * len(values)


def test_the_names_are_the_entries_and_are_unique():
    assert names()[:4] == ("adamw", "adapm", "adapm-mini", "adam-mini")
    assert len(set(names())) == len(names()) == len(CATALOG)
    assert [entry(name).name for name in names()] == list(names())


def test_an_unknown_name_is_refused():
    with pytest.raises(UnknownOptimizerError, match="unknown optimizer 'adagrad'; known: adamw"):
        entry("adagrad")


@pytest.mark.parametrize("entry", CATALOG, ids=names())
def test_an_entry_is_whole(entry):
    module, _, attribute = entry.factory.partition(":")
    assert callable(getattr(import_module(module, "optim"), attribute))
    assert entry.learning_rate > 0
    assert entry.title
    assert entry.summary.endswith(".")
    assert entry.paper
    assert entry.licence.split(" ")[0] in {"Apache-2.0", "BSD-3-Clause", "MIT"}
    assert all(option.meaning for option in entry.options)
    assert entry.option("weight_decay") is not None, "every optimizer decays alike"
    assert list(entry.faults(entry.defaults())) == []


def test_the_defaults_of_adapm_are_the_papers_where_it_has_them():
    defaults = entry("adapm").defaults()
    paper = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "rank_ratio": 0.05}
    additions = {"refresh_interval": 100, "clip": 1.0, "bias_correction": True, "momentum_free_lr_scale": 0.75}
    assert {name: defaults[name] for name in {**paper, **additions}} == {**paper, **additions}
    assert entry("adapm-mini").defaults() == defaults


def test_faults_name_unknown_options_and_bad_values():
    faults = dict(entry("adamw").faults({"beta1": 2, "momentum": 0.9, "eps": 1e-6}))
    assert faults == {
        "beta1": "must be a number in [0, 1)",
        "momentum": "unknown option of adamw; known: beta1, beta2, eps, weight_decay",
    }


@pytest.mark.parametrize(
    ("written", "meant"),
    [("adamm", "adamw"), ("AdaPM", "adapm"), ("Adam-Mini", "adam-mini"), ("zzz", None), ("", None), (3, None)],
)
def test_the_nearest_name_whatever_its_case(written: object, meant: str | None):
    assert nearest(written, names()) == meant


def test_known_names_follow():
    assert unknown("model", "gpt", ("gpt2", "llama")) == "unknown model 'gpt'; did you mean gpt2? Known: gpt2, llama"
    assert unknown("model", "x", ("gpt2", "llama")) == "unknown model 'x'; known: gpt2, llama"
