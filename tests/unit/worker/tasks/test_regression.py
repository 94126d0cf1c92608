"""The regression through the whole worker against the appendix' algorithms 3 and 4, written out."""

import math

import pytest
import torch

from tests.factories.reporters import MemoryReporter
from worker.records.result import Point, Verdict
from worker.run import Folders, run
from worker.spec.run import RunSpec
from worker.tasks.regression import LinearModel, LinearProblem, Regression

STEPS = 64


def spec_of(
    optimizer: str, options: dict[str, float] | None = None, *, lr: float = 0.1, batch: int = 1, steps: int = STEPS
) -> RunSpec:
    return RunSpec.model_validate(
        {
            "workload": {
                "task": {"kind": "regression", "dimension": 40, "a": 2.0, "b": 1.2},
                "budget": {"steps": steps, "batch_sequences": batch},
                "evaluation": {"every_steps": 8},
            },
            "optimizer": {"name": optimizer, "lr": lr, "options": options or {}},
            "seed": 5,
        }
    )


def problem_of(spec: RunSpec) -> LinearProblem:
    task = spec.workload.task
    assert task.kind == "regression"
    return LinearProblem(task)


def appendix(spec: RunSpec, beta: float) -> list[float]:
    """The excess risk after each step of accelerated SGD (beta = 1: of vanilla SGD), as the appendix prints it."""
    problem, T = problem_of(spec), spec.workload.budget.steps
    K = math.floor(T / math.log2(T))
    W = V = torch.zeros(problem.dimension, dtype=torch.float64)
    risks = [problem.excess_risk(W)]
    for t in range(T):
        phase = t // K + 1
        delta = spec.optimizer.lr / 4 ** (phase - 1)
        gamma = delta * beta ** (-1 + 1 / 2.0)
        x, y = problem.samples(spec.seed, t, 1)
        U = W / (1 + beta) + beta / (1 + beta) * V
        g = (x[0] @ U - y[0]) * x[0]
        W = U - delta * g
        V = beta * U + (1 - beta) * V - gamma * g
        risks.append(problem.excess_risk(W))
    return risks


def val_losses(points: list[Point]) -> dict[int, float]:
    return {point.step: point.val_loss for point in points if point.val_loss is not None}


@pytest.mark.parametrize(("optimizer", "beta"), [("sgd", 1.0), ("asgd", 1.0), ("asgd", 0.3), ("asgd", 0.05)])
def test_a_run_is_the_appendix_step_by_step(optimizer: str, beta: float, folders: Folders) -> None:
    """The validation loss is the excess risk of W, also for accelerated SGD, whose gradients are taken at U."""
    options = {"beta": beta, "spectral_decay": 2.0} if optimizer == "asgd" else {}
    spec, reporter = spec_of(optimizer, options), MemoryReporter()

    result = run(spec, reporter, folders)

    expected = appendix(spec, beta)
    loss_by_step = val_losses(reporter.points)
    assert sorted(loss_by_step) == list(range(0, STEPS + 1, 8))
    assert loss_by_step == {step: pytest.approx(expected[step], rel=1e-9) for step in loss_by_step}
    assert (result.verdict, result.tokens, result.parameters) == (Verdict.CONVERGED, STEPS, 40)
    assert "excess risk" in result.verdict_reason
    assert "nats" not in result.verdict_reason
    assert result.data_hash == problem_of(spec).data_hash
    assert result.parameter_bytes == 40 * 8


def test_a_batch_is_the_mean_over_its_samples_however_it_is_cut() -> None:
    """The shares of micro-batches and their gradients add up to the whole batch's."""
    spec = spec_of("sgd", batch=7)
    problem = problem_of(spec)
    task = Regression(LinearModel(problem.dimension), problem, spec)
    gradients: list[torch.Tensor | None] = []
    for size in (7, 3, 1):
        task.model.zero_grad()
        losses = [task.training_loss(piece) for piece in task.draw(4, size)]
        torch.stack(losses).sum().backward()
        gradients.append(task.model.get_parameter("weight").grad)
        x, y = problem.samples(5, 4, 7)
        assert torch.stack(losses).sum().item() == pytest.approx(
            float((x @ torch.zeros(40).double() - y).square().mean() / 2)
        )
    torch.testing.assert_close(gradients[1:], [gradients[0]] * 2)
