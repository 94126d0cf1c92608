"""Import paths that other people's code has go on leading to the same things."""

from importlib import import_module

import pytest

import optim

FORMER = (
    ("optim.adapm:AdaPM", "optim.adapm.adapm:AdaPM"),
    ("optim.adapm:AdaPMMini", "optim.adapm.adapm:AdaPMMini"),
    ("optim.blocks:BlockPlan", "optim.plan:BlockPlan"),
    ("optim.blocks:FirstMoment", "optim.plan:FirstMoment"),
    ("optim.build:build", "optim.builder:build"),
    ("optim.entries:Need", "optim.catalog:Need"),
    ("optim.entries:OptimizerEntry", "optim.catalog:OptimizerEntry"),
    ("optim.entries:Option", "optim.catalog:Option"),
    ("optim.modes:result_weights", "optim.train_eval_weights:result_weights"),
    ("optim.rules:Rule", "optim.plan:Rule"),
)


def _found(path: str) -> object:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


@pytest.mark.parametrize(("former", "present"), FORMER)
def test_a_former_path_leads_to_the_same(former: str, present: str):
    assert _found(former) is _found(present)


def test_every_public_name_leads_to_its_object():
    for name in optim.__all__:
        assert getattr(optim, name).__module__.startswith("optim."), name


def test_a_name_that_is_not_public_is_refused():
    with pytest.raises(AttributeError, match="module 'optim' has no attribute 'Rolls'"):
        optim.Rolls  # noqa: B018  # looking it up is what fails
