"""Averaged weights: what they are, and that training never sees them."""

import pytest
import torch
from torch import nn

from tests.factories.reporters import reported
from tests.factories.specification import made_spec
from worker.records.result import Point
from worker.run import Folders
from worker.spec.run import RunSpec
from worker.training.averaging import WeightAverage


def drawn(seed: int) -> nn.Module:
    """A small model with a tied and a frozen weight, in float64."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 3), nn.Linear(3, 4)).double()
    model[2].weight = model[0].weight
    model[1].bias.requires_grad = False
    return model


def averaged(steps: int = 12, decay: float | None = 0.8) -> RunSpec:
    spec = made_spec(steps=steps)
    return spec.model_copy(update={"workload": spec.workload.model_copy(update={"ema_decay": decay})})


def move(model: nn.Module, step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, dtype=weight.dtype, generator=generator))


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.9999])
def test_it_is_the_weighted_mean_of_the_weights_after_each_step(decay: float) -> None:
    """Against the sum as the docstring has it, over all steps; the weights before the first one have no part."""
    model = drawn(0)
    average, history = WeightAverage(model, decay), []
    for step in range(1, 8):
        move(model, step)
        average.update()
        history.append({name: weight.detach().clone() for name, weight in model.named_parameters()})
        shares = [(1 - decay) * decay ** (step - i) / (1 - decay**step) for i in range(1, step + 1)]
        assert sum(shares) == pytest.approx(1.0, rel=1e-11)
        for name, mean in average.state().items():
            expected = sum(share * weights[name] for share, weights in zip(shares, history, strict=True))
            torch.testing.assert_close(mean, expected, rtol=1e-10, atol=1e-12)


def test_the_weights_come_back_to_the_bit_even_where_the_evaluation_fails() -> None:
    """A tied weight is exchanged once, a frozen one never; the average stays what it was, too."""
    model = drawn(0)
    average = WeightAverage(model, 0.5)
    move(model, 1)
    average.update()
    move(model, 2)
    average.update()
    trained = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    means = {name: tensor.clone() for name, tensor in average.state().items()}
    assert set(means) == {"0.weight", "0.bias", "1.weight", "2.bias"}

    def evaluate() -> None:
        weights = model.state_dict()
        assert all(torch.equal(weights[name], mean) for name, mean in means.items())
        assert torch.equal(weights["2.weight"], means["0.weight"])
        assert not torch.equal(means["0.weight"], trained["0.weight"])
        assert torch.equal(weights["1.bias"], trained["1.bias"])
        raise RuntimeError("broke off")

    with pytest.raises(RuntimeError, match="broke off"), average.in_place():
        evaluate()

    assert all(torch.equal(tensor, trained[name]) for name, tensor in model.state_dict().items())
    assert all(torch.equal(tensor, means[name]) for name, tensor in average.state().items())


def points_of(spec: RunSpec, folders: Folders, name: str) -> list[Point]:
    run_folders = Folders(run_folder=folders.run_folder / name, dataset_folder=folders.dataset_folder)
    return reported(spec, run_folders)[0].points


def test_training_is_the_same_to_the_bit_and_validation_is_the_averages(folders: Folders) -> None:
    """An average so short that it is the last weights in float32 validates them; a longer one validates others."""
    plain, short, long = (
        points_of(averaged(decay=decay_rate), folders, str(decay_rate)) for decay_rate in (None, 1e-9, 0.8)
    )

    for points in (short, long):
        assert [(point.train_loss, point.grad_norm) for point in points] == [
            (point.train_loss, point.grad_norm) for point in plain
        ]
    assert [point.val_loss for point in short] == [point.val_loss for point in plain]
    assert long[0].val_loss == plain[0].val_loss, "nothing is averaged yet"
    later = [(point.val_loss, other.val_loss) for point, other in zip(long, plain, strict=True) if point.val_loss][1:]
    assert len(later) == 3
    assert all(loss != plain_loss for loss, plain_loss in later)
