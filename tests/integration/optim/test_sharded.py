"""AdaPM on parameters that processes share: two, three and four of them end where one does, exchange what the formula
says, and go on from each other's checkpoints.

Every process takes the whole batch, so that the mean of the gradients is that of one process but for rounding.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils._python_dispatch import TorchDispatchMode

from optim.adapm import AdaPM, AdaPMMini
from optim.errors import ShardedParametersError
from optim.plan.blocks import FirstMoment
from tests.factories.process_group import exit_codes, started
from worker.distributed.process_group import ProcessGroup
from worker.families import load_transformers

STEPS = 6
SAVED_AT = 3  # two steps that refresh come after it, one of them among those of RESUMED
VOCABULARY = 61  # no number of processes here divides it

# eps above what float32 leaves of GPT-2's key biases, whose gradient is zero: else the step makes noise of full size.
FSDP_AND_TP = "FSDP2 and tensor parallelism"
OPTIONS: dict[str, Any] = {"lr": 3e-3, "rank_ratio": 0.1, "refresh_interval": 4, "eps": 1e-6}


def model_of(family: str, dtype: torch.dtype = torch.float64) -> nn.Module:
    """d = 32; grouped queries but for GPT-2, whose matrices are in × out. Phi-3's are fused, out × in."""
    load_transformers()
    from transformers.models.gpt2 import configuration_gpt2, modeling_gpt2
    from transformers.models.llama import configuration_llama, modeling_llama
    from transformers.models.mixtral import configuration_mixtral, modeling_mixtral
    from transformers.models.phi3 import configuration_phi3, modeling_phi3

    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 9 if family == "llama" else 40,  # of 9 rows, the fourth process has none
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 0,
    }
    torch.manual_seed(0)
    model: nn.Module
    if family == "gpt2":
        named: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32}
        named |= {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0}
        model = modeling_gpt2.GPT2LMHeadModel(configuration_gpt2.GPT2Config(vocab_size=VOCABULARY, **named))
    elif family == "phi3":
        model = modeling_phi3.Phi3ForCausalLM(configuration_phi3.Phi3Config(**sizes))
    elif family == "mixtral":
        model = modeling_mixtral.MixtralForCausalLM(
            configuration_mixtral.MixtralConfig(num_local_experts=3, num_experts_per_tok=2, **sizes)
        )
        model.set_experts_implementation("eager")  # grouped products have no float64
    else:
        model = modeling_llama.LlamaForCausalLM(configuration_llama.LlamaConfig(**sizes))
    return nn.Module.to(model, dtype)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range, shape: tuple[int, int] = (8, 16)) -> None:
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        tokens = torch.randint(0, VOCABULARY, shape, generator=generator)
        tokens[:, 1::2] = (tokens[:, ::2] * 3 + 1) % VOCABULARY
        optimizer.zero_grad()
        logits = model(tokens).logits
        nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()


def train_on_drawn_gradients(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    """The same gradients however the model is divided. Those of a forward pass in bfloat16 are not the same: processors
    with instructions for it (AMX) sum in another order where weights lie elsewhere in memory."""
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for value in model.parameters():
            gradient = (0.01 * torch.randn(value.shape, generator=generator)).to(value.dtype)
            if isinstance(value, DTensor):
                gradient = distribute_tensor(gradient, value.device_mesh, value.placements, src_data_rank=None)
            value.grad = gradient
        optimizer.step()


def split(model: nn.Module) -> nn.Module:
    """The model, sharded by FSDP2 in place."""
    from torch.distributed.fsdp import fully_shard

    fully_shard(model)
    return model


def split_in_two_by_tensor_parallelism(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Llama, with MLP matrices divided by outputs (gate, up) and by inputs (down)."""
    columns = {f"model.layers.0.mlp.{name}_proj": ColwiseParallel() for name in ("gate", "up")}
    return parallelize_module(model, mesh, {**columns, "model.layers.0.mlp.down_proj": RowwiseParallel()})


def meshes(size: int) -> dict[str, nn.Module]:
    """Models that are not sharded over one dimension alone: those of two processes, or of four."""
    from torch.distributed.fsdp import fully_shard

    if size == 2:
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        return {"tensor parallelism": split_in_two_by_tensor_parallelism(model_of("llama even"), mesh)}
    if size != 4:
        return {}
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "shard"))
    replicated = model_of("llama even")
    fully_shard(replicated, mesh=mesh)
    return {"HSDP": replicated, FSDP_AND_TP: split_both_ways(model_of("llama even"))}


def split_both_ways(model: nn.Module) -> nn.Module:
    """Llama on four processes: gate and up are divided twice by outputs, down by inputs and by outputs."""
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "shard"))
    fully_shard(split_in_two_by_tensor_parallelism(model, mesh["shard"]), mesh=mesh["data"])
    return model


def whole_weights(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: (value.full_tensor() if isinstance(value, DTensor) else value).detach().clone()
        for name, value in model.named_parameters()
    }


CASES: dict[str, tuple[str, type[AdaPM], torch.dtype]] = {
    "gpt2": ("gpt2", AdaPM, torch.float64),
    "gpt2 mini": ("gpt2", AdaPMMini, torch.float64),
    "gpt2 float32": ("gpt2", AdaPM, torch.float32),
    "llama": ("llama", AdaPM, torch.float64),
    "llama mini": ("llama", AdaPMMini, torch.float64),
    "llama mini float32": ("llama", AdaPMMini, torch.float32),
    "phi3": ("phi3", AdaPM, torch.float64),
    "phi3 mini": ("phi3", AdaPMMini, torch.float64),
    "mixtral mini": ("mixtral", AdaPMMini, torch.float64),
    "llama even mini": ("llama even", AdaPMMini, torch.float64),
    "llama of two tokens": ("llama", AdaPM, torch.float64),
    "gpt2 of two tokens float32": ("gpt2", AdaPM, torch.float32),
}
"""Gradients of two tokens have one direction, in some blocks two: fewer than the rank."""
ASKED: dict[int, tuple[str, ...]] = {
    1: ("phi3 mini",),
    2: ("gpt2 mini", "llama of two tokens"),
    3: tuple(CASES),
    4: ("llama mini float32", "phi3 mini", "gpt2 of two tokens float32"),
}
"""The questions by number of processes: three get all; with four, the last one has no row."""


RESUMED: dict[str, tuple[str, torch.dtype, dict[str, Any]]] = {
    "gpt2": ("gpt2", torch.float64, {}),
    "phi3": ("phi3", torch.float64, {}),
    "mixtral": ("mixtral", torch.float64, {}),
    FSDP_AND_TP: ("llama even", torch.float64, {}),
    "phi3 8-bit": ("phi3", torch.float64, {"state_dtype": torch.int8}),
    "phi3 copies": ("phi3", torch.bfloat16, {"master_weights": True}),
    "phi3 by chance": ("phi3", torch.bfloat16, {"bf16_stochastic_round": True}),
}
"""The trainings that four processes begin and save, and three continue, or one."""


def batch_of(case: str) -> tuple[int, int]:
    return (1, 2) if "two tokens" in case else (8, 16)


@cache
def one_process(case: str) -> dict[str, Tensor]:
    family, cls, dtype = CASES[case]
    model = model_of(family, dtype)
    train(model, cls.for_model(model, **OPTIONS), range(STEPS), batch_of(case))
    return whole_weights(model)


class CountedElements(TorchDispatchMode):
    """Counts the all-reduces within and the elements that they sum."""

    elements: list[int]

    def __init__(self) -> None:
        super().__init__()
        self.elements = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            assert "allreduce" in str(func)
            self.elements.append(sum(tensor.numel() for tensor in args[0]))
        return func(*args, **(kwargs or {}))


def exchanged(model: nn.Module, optimizer: AdaPM) -> list[int]:
    """Elements of each all-reduce of a step."""
    optimizer.zero_grad()
    model(torch.zeros((1, 8), dtype=torch.long)).logits.square().mean().backward()
    counted = CountedElements()
    with counted:
        optimizer.step()
    return counted.elements


def checkpoint(folder: Path, model: nn.Module, optimizer: AdaPM, act: Callable[..., object]) -> dict[str, Any]:
    """Save or load model and optimizer as torch's distributed checkpoints do."""
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    weights, state = get_state_dict(model, optimizer)
    state_dicts = {"weights": weights, "state": state}
    act(state_dicts, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    return state_dicts


def trained_by_zero_redundancy(group: ProcessGroup) -> dict[str, Tensor]:
    """Whole weights whose states the processes have between them, saved and loaded on the way."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    def sharing_states(model: nn.Module) -> ZeroRedundancyOptimizer:
        def mini(params: Any, **options: Any) -> AdaPMMini:
            return AdaPMMini.for_model(model, params=params, **options)

        factory: Any = mini  # typed a class, and called alone
        return ZeroRedundancyOptimizer(model.parameters(), optimizer_class=factory, **OPTIONS)

    model, resumed = model_of("llama even"), model_of("llama even")
    optimizer = sharing_states(model)
    train(model, optimizer, range(SAVED_AT))
    optimizer.consolidate_state_dict(to=0)
    saved = [optimizer.state_dict() if group.rank == 0 else None]
    torch.distributed.broadcast_object_list(saved, src=0)
    assert saved[0] is not None
    resumed.load_state_dict(model.state_dict())
    optimizer = sharing_states(resumed)
    optimizer.load_state_dict(saved[0])
    train(resumed, optimizer, range(SAVED_AT, STEPS))
    return whole_weights(resumed)


def refusals() -> list[str]:
    """Return the refusals of a dimension that is divided twice, unevenly, and with two blocks in it; and of 8-bit
    rows."""
    mesh = init_device_mesh("cpu", (2, 2))
    messages = []
    for family, name in (("llama", "up_proj"), ("phi3", "gate_up_proj")):
        model = model_of(family)
        module = model.get_submodule(f"model.layers.0.mlp.{name}")
        whole = module.get_parameter("weight").detach()
        module.weight = nn.Parameter(distribute_tensor(whole, mesh, [Shard(0), Shard(0)]))
        with pytest.raises(ShardedParametersError) as refused:
            AdaPM.for_model(model, **OPTIONS)
        messages.append(str(refused.value))
    mesh = init_device_mesh("cpu", (4,))
    model = parallelize_module(model_of("llama even"), mesh, {"model.layers.0.mlp.down_proj": RowwiseParallel()})
    with pytest.raises(ShardedParametersError) as refused:
        AdaPM.for_model(model, state_dtype=torch.int8, **OPTIONS)
    return [*messages, str(refused.value)]


def one_rank(group: ProcessGroup, folder: Path, saved: Path) -> None:
    """Run the questions in each process."""
    from torch.distributed.checkpoint.state_dict_loader import load
    from torch.distributed.checkpoint.state_dict_saver import save

    torch.set_num_threads(1)
    results: dict[str, Any] = {"weights": {}, "exchanged": {}, "resumed": {}}
    for case in ASKED[group.size]:
        family, cls, dtype = CASES[case]
        model = split(model_of(family, dtype))
        optimizer = cls.for_model(model, **OPTIONS)
        train(model, optimizer, range(STEPS), batch_of(case))
        results["weights"][case] = whole_weights(model)
        results["exchanged"][case] = exchanged(model, optimizer)
    for case, (family, dtype, options) in RESUMED.items() if group.size != 2 else ():
        divide = split_both_ways if case == FSDP_AND_TP and group.size == 4 else split
        model = divide(model_of(family, dtype))
        optimizer = AdaPM.for_model(model, **OPTIONS, **options)
        go_on = train_on_drawn_gradients if dtype is torch.bfloat16 else train
        if group.size == 4:
            go_on(model, optimizer, range(SAVED_AT))
            checkpoint(saved / case, model, optimizer, save)
        else:
            checkpoint(saved / case, model, optimizer, load)
        go_on(model, optimizer, range(SAVED_AT, 2 * SAVED_AT))
        results["resumed"][case] = whole_weights(model)
    for name, model in meshes(group.size).items():
        optimizer = AdaPMMini.for_model(model, **OPTIONS)
        train(model, optimizer, range(STEPS))
        results["weights"][name] = whole_weights(model)
    if group.size == 4:
        results["refused"] = refusals()
    if group.size == 2:
        results["weights"]["ZeRO 1"] = trained_by_zero_redundancy(group)
    try:
        AdaPM.for_model(split(model_of("llama")), solver="svd", **OPTIONS)
    except ShardedParametersError as error:
        results["svd"] = str(error)
    torch.save(results, folder / f"{group.size}-{group.rank}.pt")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Any]]]:
    """Return the results of each process of each group; the group of four first, whose checkpoints the others load."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "saved").mkdir()
    results: dict[int, list[dict[str, Any]]] = {}
    for size in (4, 3, 2, 1):
        assert (
            exit_codes(started(one_rank, folder / f"group-{size}", folder, folder / "saved", size=size)) == [0] * size
        )
        results[size] = [torch.load(folder / f"{size}-{rank}.pt", weights_only=True) for rank in range(size)]
    return results


def distance(weights: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    assert set(weights) == set(other)
    return max(float((weights[name] - other[name]).abs().max()) for name in weights)


@pytest.mark.parametrize(("size", "case"), [(size, case) for size, cases in ASKED.items() for case in cases])
def test_processes_that_share_a_model_end_where_one_ends_alone(found, size, case):
    tolerance = 1e-12 if CASES[case][2] is torch.float64 else 1e-5
    for rank in found[size]:
        assert distance(rank["weights"][case], one_process(case)) < tolerance
    start = whole_weights(model_of(CASES[case][0], CASES[case][2]))
    assert distance(start, one_process(case)) > 0.01  # they went somewhere


@pytest.mark.parametrize(("size", "name"), [(2, "tensor parallelism"), (2, "ZeRO 1"), (4, "HSDP"), (4, FSDP_AND_TP)])
def test_other_meshes_end_there_too(found, size, name):
    for rank in found[size]:
        assert distance(rank["weights"][name], one_process("llama even mini")) < 1e-12


def test_ranges_that_a_process_does_not_hold_in_one_piece_are_refused(found):
    for rank in found[4]:
        uneven, fused, rows = rank["refused"]
        assert "multiple of both" in uneven
        assert "model.layers.0.mlp.gate_up_proj.weight:gate" in fused and "one dimension" in fused
        assert "model.layers.0.mlp.down_proj.weight" in rows and "state_dtype=torch.bfloat16" in rows


def outputs_formula(model: nn.Module) -> list[int]:
    """Return the sums of blocks that are divided by outputs: two Gram matrices and R."""
    blocks = [block for block in AdaPM.for_model(model, **OPTIONS).plan if block.first_moment is FirstMoment.LOW_RANK]
    grams = sum(block.rank**2 for block in blocks)
    return [grams, grams, sum(block.rank * block.shape[1] for block in blocks)]


def inputs_formula(model: nn.Module) -> list[int]:
    """Return the sums of blocks that are divided by inputs: the lengths of R's rows, and X."""
    blocks = [block for block in AdaPM.for_model(model, **OPTIONS).plan if block.first_moment is FirstMoment.LOW_RANK]
    return [sum(block.rank for block in blocks), sum(block.rank * block.shape[1] for block in blocks)]


def test_a_step_exchanges_what_the_formula_says(found):
    """Two Gram matrices and R for blocks divided by outputs, in three all-reduces however many blocks there are."""
    for rank in found[3]:
        assert rank["exchanged"]["llama"] == outputs_formula(model_of("llama"))
        assert rank["exchanged"]["phi3"] == outputs_formula(model_of("phi3"))
        assert rank["exchanged"]["gpt2"] == inputs_formula(model_of("gpt2"))


def test_second_moments_that_processes_have_in_common_are_one_further_exchange(found):
    for rank in found[3]:
        # Per head, of queries and keys: four and two heads.
        assert rank["exchanged"]["llama mini"] == [6, *outputs_formula(model_of("llama"))]
        assert rank["exchanged"]["gpt2 mini"][1:] == inputs_formula(model_of("gpt2"))


@pytest.mark.parametrize("case", RESUMED)
def test_a_checkpoint_of_four_processes_goes_on_in_any_number(found, case):
    """Weights in bfloat16 may round to their other neighbour where a float32 sum was made in another order."""
    family, dtype, options = RESUMED[case]
    model = model_of(family, dtype)
    go_on = train_on_drawn_gradients if dtype is torch.bfloat16 else train
    go_on(model, AdaPM.for_model(model, **OPTIONS, **options), range(2 * SAVED_AT))
    expected = whole_weights(model)
    for ranks in (found[size] for size in (4, 3, 1)):
        for weights in (rank["resumed"][case] for rank in ranks):
            if dtype is torch.float64:
                assert distance(weights, expected) < 1e-12
                continue
            masks = [weights[name] == value for name, value in expected.items()]
            assert float(torch.cat([mask.flatten() for mask in masks]).float().mean()) > 0.99


def test_the_exact_solver_says_that_it_needs_whole_matrices(found):
    assert "solver='svd'" in found[2][0]["svd"]
