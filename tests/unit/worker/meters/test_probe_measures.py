"""Measures of a matrix by probes, against matrices with known answers."""

import pytest
import torch

from worker.meters.probes import residual, sparsity, spectrum, truncate_rank


def made(energies: list[float], rows: int, columns: int) -> torch.Tensor:
    """A matrix with those squared singular values."""
    draw = torch.Generator().manual_seed(0)
    left = torch.linalg.qr(torch.randn(rows, len(energies), generator=draw))[0]
    right = torch.linalg.qr(torch.randn(columns, len(energies), generator=draw))[0]
    matrix: torch.Tensor = left @ torch.diag(torch.tensor(energies).sqrt()) @ right.T
    return matrix


def test_rows_and_columns_near_zero_are_counted_against_the_largest() -> None:
    gradient = torch.zeros(4, 5)
    gradient[0] = 1.0
    gradient[1, 0] = 0.02
    figures = sparsity(gradient, near_zero=0.01)
    assert figures == {"rows_near_zero": 0.75, "columns_near_zero": 0.0, "norm": pytest.approx(5.0004**0.5)}
    assert sparsity(gradient, near_zero=0.001)["rows_near_zero"] == 0.5
    assert sparsity(torch.zeros(2, 2), 0.01) == {"rows_near_zero": 1.0, "columns_near_zero": 1.0, "norm": 0.0}


@pytest.mark.parametrize(("rows", "columns"), [(100, 130), (130, 100)])
def test_the_spectrum_is_that_of_the_singular_values(rows: int, columns: int) -> None:
    """100 singular values: one holds half of the energy, four a quarter, the rest what is left."""
    matrix = made([0.5] + [0.25 / 4] * 4 + [0.25 / 95] * 95, rows, columns)
    figures = spectrum(matrix)
    assert figures["energy_top_1_percent"] == pytest.approx(0.5, rel=1e-4)
    assert figures["energy_top_5_percent"] == pytest.approx(0.75, rel=1e-4)
    assert figures["energy_top_50_percent"] == pytest.approx(0.75 + 45 * 0.25 / 95, rel=1e-4)
    exact = torch.linalg.svdvals(matrix).square()
    assert figures["energy_top_20_percent"] == pytest.approx(float(exact[:20].sum() / exact.sum()), rel=1e-4)
    assert set(spectrum(torch.zeros(3, 4)).values()) == {0.0}


@pytest.mark.parametrize(("rows", "columns"), [(20, 30), (30, 20)])
def test_truncation_is_the_best_low_rank_approximation(rows: int, columns: int) -> None:
    matrix = made([4.0, 2.0, 1.0, 0.5], rows, columns)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    expected = left[:, :2] @ torch.diag(values[:2]) @ right[:2]
    torch.testing.assert_close(truncate_rank(matrix, 2), expected, rtol=1e-4, atol=1e-5)


def test_a_residual_is_told_by_its_share_and_its_quantiles() -> None:
    residue = torch.arange(-50.0, 51.0).reshape(1, -1)
    figures = residual(residue, 2 * residue)
    assert figures["relative_norm"] == pytest.approx(0.5)
    assert [figures[f"quantile_{percent}"] for percent in (5, 50, 95)] == [3.0, 25.0, 48.0]
    assert residual(torch.zeros(2, 2), torch.zeros(2, 2))["relative_norm"] == 0.0


def test_quantiles_of_a_huge_matrix_are_taken_over_a_part_of_it() -> None:
    """torch's own quantile refuses more than 16 million elements."""
    huge = torch.rand(5_000, 4_000, generator=torch.Generator().manual_seed(0))
    assert residual(huge, huge)["quantile_75"] == pytest.approx(0.75, abs=0.01)
