"""Parameter groups as nanoGPT and Hugging Face make them: with names, or without but of a model that is there."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from optim.adapm import AdaPM, AdaPMMini
from optim.baselines.adam_mini import AdamMini
from optim.errors import UnplacedWeightsError
from optim.plan.placement import plan_blocks
from tests.factories.nanogpt import NanoGPT
from worker.checks.tiny_models import tiny_gpt2, tiny_llama, train

LR = 3e-3


def by_decay(model: nn.Module) -> list[dict[str, Any]]:
    """Matrices decay by 0.3, vectors not, and these at half the rate; with names."""
    named = [(name, value) for name, value in model.named_parameters() if value.requires_grad]
    return [
        {"params": [(name, value) for name, value in named if value.ndim > 1], "weight_decay": 0.3},
        {"params": ((name, value) for name, value in named if value.ndim <= 1), "weight_decay": 0.0, "lr": LR / 2},
    ]


def same(model: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize(("cls", "heads"), [(AdaPM, None), (AdaPMMini, 4), (AdamMini, 4)])
def test_a_model_trains_by_its_names_as_by_its_modules(cls: type[AdaPM], heads: int | None):
    named, planned = tiny_llama(), tiny_llama()
    train(named, cls(named.named_parameters(), LR, heads=heads), range(3))
    train(planned, cls.for_model(planned, LR), range(3))
    assert same(named, planned)


def test_groups_with_names_have_options_of_their_own():
    named, planned = tiny_gpt2(), tiny_gpt2()
    optimizer = AdaPM(by_decay(named), LR)
    assert [(group["lr"], group["weight_decay"]) for group in optimizer.param_groups] == [(LR, 0.3), (LR / 2, 0.0)]
    train(named, optimizer, range(3))
    train(planned, AdaPM(by_decay(planned), LR, plan=plan_blocks(planned)), range(3))
    assert same(named, planned)


def test_groups_without_names_find_them_in_the_model():
    torch.manual_seed(0)
    model = NanoGPT()
    groups = model.groups(weight_decay=0.3)
    for optimizer in (AdaPM.for_model(model, LR, params=groups), AdaPM(groups, LR, model=model)):
        assert [len(group["params"]) for group in optimizer.param_groups] == [10, 5]
        assert [group["weight_decay"] for group in optimizer.param_groups] == [0.3, 0.0]
        assert {name for group in optimizer.param_groups for name in group["param_names"]} == set(
            plan_blocks(model).parameter_blocks
        )


def test_groups_of_another_model_are_refused():
    with pytest.raises(ValueError, match=r"parameters of shape \(64, 32\), .* are not the model's"):
        AdaPM.for_model(tiny_gpt2(), LR, params=tiny_gpt2().parameters())
    with pytest.raises(ValueError, match=r"parameters of shape \(64, 32\), .* are not the model's"):
        AdaPM(tiny_gpt2().named_parameters(), LR, model=tiny_gpt2())


@pytest.mark.parametrize("params", [torch.zeros(2, 2), [{"params": {torch.zeros(2)}}]])
def test_what_is_no_list_is_refused_as_by_torch(params: Any):
    with pytest.raises(TypeError, match="give a list"):
        AdaPM(params, LR)


def test_a_group_may_be_empty_and_one_parameter_be_a_group():
    weight = nn.Parameter(torch.zeros(4))
    groups: list[dict[str, Any]] = [{"params": []}, {"params": weight}]
    optimizer = AdaPM.for_model(nn.ParameterList([weight]), LR, params=groups)
    assert [group["param_names"] for group in optimizer.param_groups] == [[], ["0"]]
    weight.grad = torch.ones(4)
    optimizer.step()
    assert (weight < 0).all()


def test_parameters_added_late_are_planned_by_names_and_the_others_keep_their_blocks():
    model, whole = tiny_gpt2(), tiny_gpt2()
    named = dict(model.named_parameters())
    late = {name: named.pop(name) for name in list(named) if ".h.1." in name}
    optimizer = AdaPM(named.items(), LR)
    first_plan = optimizer.plan
    optimizer.add_param_group({"params": late.items()})
    assert optimizer.plan.blocks[: len(first_plan)] == first_plan.blocks
    assert optimizer.plan.parameter_blocks == plan_blocks(model).parameter_blocks
    train(model, optimizer, range(2))
    train(whole, AdaPM.for_model(whole, LR), range(2))
    for weight, other in zip(model.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(weight, other)  # blocks of two groups are never in one batch: rounding differs


def test_a_bad_group_added_late_leaves_groups_and_plan_as_they_were():
    optimizer = AdaPM(tiny_gpt2().named_parameters(), LR, unknown="error")
    plan = optimizer.plan
    with pytest.raises(UnplacedWeightsError, match=r"places stranger \(2, 2\)"):
        optimizer.add_param_group({"params": [("stranger", nn.Parameter(torch.zeros(2, 2)))]})
    assert len(optimizer.param_groups) == 1
    assert optimizer.plan == plan


def test_frozen_parameters_are_planned_when_they_thaw():
    model, whole = tiny_gpt2(), tiny_gpt2()
    weight = model.get_parameter("transformer.h.0.attn.c_attn.weight").requires_grad_(False)
    optimizer = AdaPM(model.named_parameters(), LR)
    start = weight.detach().clone()
    train(model, optimizer, range(2))
    assert torch.equal(weight, start)
    assert weight not in optimizer.state
    weight.requires_grad_(True)
    train(model, optimizer, range(2, 3))
    assert not torch.equal(weight, start)
    assert optimizer.plan.parameter_blocks == AdaPM.for_model(whole, LR).plan.parameter_blocks


@pytest.mark.parametrize("cls", [AdaPM, AdaPMMini])
def test_for_model_looks_at_the_model_again_when_layers_thaw(cls: type[AdaPM]):
    """Layer by layer, as fine-tuning does; no number of heads is asked for."""
    model = tiny_gpt2()
    late = {name: value.requires_grad_(False) for name, value in model.named_parameters() if ".h.1." in name}
    optimizer = cls.for_model(model, LR)
    train(model, optimizer, range(2))
    for value in late.values():
        value.requires_grad_(True)
    optimizer.add_param_group({"params": late.items(), "lr": LR / 2})
    originals = {name: value.detach().clone() for name, value in late.items()}
    train(model, optimizer, range(2, 4))
    assert not any(torch.equal(value, originals[name]) for name, value in late.items())
    assert optimizer.plan.parameter_blocks == cls.for_model(model, LR).plan.parameter_blocks


def test_with_a_plan_that_lacks_them_they_are_refused_when_they_thaw():
    model = tiny_gpt2()
    weight = model.get_parameter("transformer.h.0.attn.c_attn.weight").requires_grad_(False)
    optimizer = AdaPM(model.named_parameters(), LR, plan=plan_blocks(model))
    weight.requires_grad_(True)
    with pytest.raises(ValueError, match=r"c_attn\.weight is not in the block plan; .* before freezing any"):
        train(model, optimizer, range(1))


def test_a_plan_and_what_would_make_one_are_not_both_taken():
    model = tiny_gpt2()
    with pytest.raises(ValueError, match="heads, rank_ratio, state_dtype, unknown and rules make a plan"):
        AdaPM(model.named_parameters(), LR, plan=plan_blocks(model), rank_ratio=0.5)


def test_a_dictionary_and_parameters_without_names_are_refused_in_words():
    model = tiny_gpt2()
    with pytest.raises(TypeError, match="are a dict"):
        AdaPM(dict(model.named_parameters()), LR)  # type: ignore[arg-type]  # what the test is about
    with pytest.raises(ValueError, match=r"named_parameters\(\), or groups of .*optimizer_cls_and_kwargs.*torchtune"):
        AdaPM(model.parameters(), LR)


def test_betas_that_a_schedule_sets_to_one_are_refused_before_any_weight_moves():
    model = tiny_gpt2()
    optimizer = AdaPM(model, LR)
    optimizer.param_groups[0]["betas"] = (1.0, 0.95)
    with pytest.raises(ValueError, match="Invalid betas"):
        train(model, optimizer, range(1))


def test_a_state_loads_by_its_names_in_any_order():
    model = tiny_gpt2()
    optimizer = AdaPM(model, LR)
    train(model, optimizer, range(2))
    turned = AdaPM(list(model.named_parameters())[::-1], LR)
    turned.load_state_dict(optimizer.state_dict())
    for parameter in model.parameters():
        for key, value in optimizer.state[parameter].items():
            assert torch.equal(value, turned.state[parameter][key])


def test_a_state_of_other_parameters_is_refused_by_their_names():
    model = tiny_gpt2()
    late = [(name, value) for name, value in model.named_parameters() if ".h.0." in name]
    for _, value in late:
        value.requires_grad_(False)
    partial_optimizer = AdaPM(model, LR)
    for _, value in late:
        value.requires_grad_(True)
    whole = AdaPM(model, LR)
    with pytest.raises(ValueError, match=r"nothing for transformer\.h\.0\..* and 6 more.*add_param_group"):
        whole.load_state_dict(partial_optimizer.state_dict())
    with pytest.raises(ValueError, match=r"has transformer\.h\.0\..*does not train"):
        partial_optimizer.load_state_dict(whole.state_dict())
    partial_optimizer.add_param_group({"params": late})
    with pytest.raises(ValueError, match="groups of"):
        partial_optimizer.load_state_dict(whole.state_dict())


def test_hooks_see_a_state_once_and_before_it_is_read():
    model = tiny_gpt2()
    optimizer = AdaPM(model, LR)
    states: list[object] = []

    def unpack(_: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        states.append(state)
        saved: dict[str, Any] = state["saved"]
        return saved

    optimizer.register_load_state_dict_pre_hook(unpack)
    optimizer.load_state_dict({"saved": optimizer.state_dict()})
    assert len(states) == 1


def test_parameters_that_got_no_gradient_are_named():
    model = tiny_gpt2()
    optimizer = AdaPM(model.named_parameters(), LR)
    assert optimizer.names_without_gradient() == [name for name, _ in model.named_parameters()]
    train(model, optimizer, range(1))
    assert optimizer.names_without_gradient() == []
    optimizer.add_param_group({"params": [("transformer.idle.bias", nn.Parameter(torch.zeros(4)))]})
    assert optimizer.names_without_gradient() == ["transformer.idle.bias"]


@pytest.mark.parametrize("cls", [AdaPM, AdaPMMini])
def test_state_that_is_replaced_through_data_is_the_state(cls: type[AdaPM]):
    """As offloading does it: the tensor stays, and another memory is put under it."""
    replaced, loaded = tiny_llama(), tiny_llama()
    first, second = cls.for_model(replaced, LR), cls.for_model(loaded, LR)
    train(replaced, first, range(3))
    train(loaded, second, range(3))
    for state in first.state.values():
        state["exp_avg_sq"].data = 2.0 * state["exp_avg_sq"]
    saved = second.state_dict()
    for state in saved["state"].values():
        state["exp_avg_sq"] = 2.0 * state["exp_avg_sq"]
    second.load_state_dict(saved)
    train(replaced, first, range(3, 5))
    train(loaded, second, range(3, 5))
    assert same(replaced, loaded)
    for our_state, second_state in zip(first.state.values(), second.state.values(), strict=True):
        assert torch.equal(our_state["exp_avg_sq"], second_state["exp_avg_sq"]), "and it is what moves on"


def test_a_counter_that_is_set_counts_for_its_parameter_alone():
    model = tiny_gpt2()
    optimizer = AdaPM(model, LR)
    train(model, optimizer, range(2))
    weight = model.get_parameter("transformer.h.0.mlp.c_fc.weight")
    optimizer.state[weight]["step"].fill_(10.0)
    twin_model = copy.deepcopy(model)
    twin = AdaPM(twin_model, LR)
    twin.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for module, stepper in ((model, optimizer), (twin_model, twin)):
        train(module, stepper, range(2))
    assert optimizer.state[weight]["step"] == 12
    assert same(model, twin_model)


def test_decay_asked_for_of_vectors_alone_is_refused():
    model = tiny_gpt2()
    vectors = [(name, value) for name, value in model.named_parameters() if value.ndim == 1]
    with pytest.raises(ValueError, match=r"weight_decay=0\.2 and has vectors alone .* give it weight_decay=0"):
        AdaPM([{"params": vectors, "weight_decay": 0.2}], LR)
    assert AdaPM(vectors, LR).param_groups[0]["weight_decay"] == 0.1  # the default, which moves matrices alone
