"""Theorem 1's problem: its samples have the moments that it promises, and its risk is exact."""

import numpy as np
import pytest
import torch

from worker.spec.task import RegressionTask
from worker.tasks.regression import LinearProblem, normals

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
