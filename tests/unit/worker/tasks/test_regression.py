"""The regression through the whole worker against the appendix' algorithms 3 and 4, written out; and its problem, whose
samples have the moments that it promises, and whose risk is exact."""

import math

import numpy as np
import pytest
import torch

from tests.factories.reporters import reported
from worker.records.result import Point, Verdict
from worker.run import Folders
from worker.spec.run import RunSpec
from worker.spec.task import RegressionTask
from worker.tasks.regression import LinearModel, LinearProblem, Regression, normals

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
    spec = spec_of(optimizer, options)

    reporter, result = reported(spec, folders)

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


TASK = RegressionTask(dimension=6, a=2.0, b=1.5, noise=0.3)


def test_the_spectrum_and_the_signal_are_the_papers() -> None:
    """Sigma_ii = i^-a and Sigma_ii (W*_i)^2 = i^-b."""
    problem, index = LinearProblem(TASK), torch.arange(1, 7, dtype=torch.float64)
    assert torch.allclose(problem.eigenvalues, index**-2.0)
    assert torch.allclose(problem.eigenvalues * problem.solution**2, index**-1.5)
    assert problem.excess_risk(torch.zeros(6)) == pytest.approx(float((index**-1.5).sum()))
    assert problem.excess_risk(problem.solution) == 0.0


def test_the_risk_is_what_many_samples_say() -> None:
    """E (<x, W> - y)^2 - noise^2 over 200,000 samples; the covariance of x is Sigma."""
    problem, weights = LinearProblem(TASK), torch.linspace(-1, 1, 6, dtype=torch.float64)
    inputs, outputs = problem.samples(seed=3, step=5, count=200_000)

    sampled = float((inputs @ weights - outputs).square().mean()) - 0.3**2
    assert problem.excess_risk(weights) == pytest.approx(sampled, rel=0.03)
    covariance = inputs.T @ inputs / len(inputs)
    assert torch.allclose(covariance, torch.diag(problem.eigenvalues), atol=0.01)


def test_a_sample_is_a_function_of_seed_and_step_for_ever() -> None:
    """Pinned, so that a figure of today can be repeated; standard normal, and different from step to step."""
    drawn = normals(1, 2, 5)
    assert drawn == pytest.approx(
        [1.488243349615061, 1.4251596432144176, -2.3102985557731444, -0.3632113906718434, 0.1708922842368165], rel=1e-12
    )
    assert not np.array_equal(normals(1, 3, 5), drawn)
    sample = normals(7, 0, 100_001)
    assert (sample.mean(), sample.std()) == (pytest.approx(0, abs=0.02), pytest.approx(1, abs=0.02))
    kurtosis = float((sample**4).mean())
    assert kurtosis == pytest.approx(3, abs=0.1)


def test_another_problem_has_another_hash() -> None:
    hashes = {LinearProblem(TASK.model_copy(update=change)).data_hash for change in ({}, {"a": 2.5}, {"noise": 0.0})}
    assert len(hashes) == 3
