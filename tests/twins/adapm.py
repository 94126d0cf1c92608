"""AdaPM as the paper writes it: Algorithm 1 with m_t and r_t as explicit matrices, and loops where it has words.

Read it beside the paper; it is slow on purpose. `optim/adapm/adapm.py` must give the same weights.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

import torch
from torch import Tensor

Argmin = Callable[[Tensor, Tensor, Tensor, int], tuple[Tensor, Tensor]]
"""(m_t, L_{t-1}, R_{t-1}, t) → L_t, R_t."""


@dataclass(kw_only=True)
class LiteralMatrix:
    """An m × n weight matrix under Algorithm 1 (low rank), or under its momentum-free or full-momentum variant."""

    W: Tensor
    lr: float
    argmin: Argmin | None
    """Line 5. None for a block without low-rank momentum."""
    rank: int = 1
    full_momentum: bool = False
    groups: list[Tensor] | None = None
    """Adam-mini: masks (m × n, bool), one for each shared second moment. None for Adam's."""
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1
    clip: float = 1.0
    bias_correction: bool = True
    keep: Callable[[Tensor, bool], Tensor] | None = None
    """The reduction of carried state, of v if so asked, when it is kept in fewer digits; None for all."""
    t: int = 0
    L: Tensor = field(init=False)
    R: Tensor = field(init=False)
    v: Tensor = field(init=False)
    m: Tensor = field(init=False)

    def __post_init__(self) -> None:
        rows, columns = self.W.shape
        self.L = torch.zeros(rows, self.rank, dtype=self.W.dtype)  # line 1
        self.R = torch.zeros(self.rank, columns, dtype=self.W.dtype)
        self.v = torch.zeros_like(self.W)
        self.m = torch.zeros_like(self.W)

    def step(self, G: Tensor) -> None:
        """Lines 3 to 9, for the gradient G (m × n)."""
        self.t += 1
        momentum = self._momentum(G)
        self.v = self.beta2 * self.v + (1 - self.beta2) * self._squares(G)  # line 7
        update = momentum / (self.v.sqrt() + self.eps)
        bound = inf if self.full_momentum else self.clip
        self.W = self.W - self.lr * (update.clamp(-bound, bound) + self.weight_decay * self.W)  # line 9
        if self.keep:
            self.m = self.keep(self.m, False)
            self.v = self.keep(self.v, True) if self.groups is None else self.v

    def _momentum(self, G: Tensor) -> Tensor:
        if self.full_momentum:
            self.m = self.beta1 * self.m + (1 - self.beta1) * G
            return self.m
        if self.argmin is None:
            return G
        m = (1 - self.beta1) * G + self.beta1 * self.L @ self.R  # line 4
        self.L, self.R = self.argmin(m, self.L, self.R, self.t)  # line 5
        if self.keep:
            self.L, self.R = self.keep(self.L, False), self.keep(self.R, False)
        if not self.bias_correction:
            return self.L @ self.R
        residual = self.L @ self.R - m  # line 6
        return m - self.beta1 * residual / (1 - self.beta1)  # line 8

    def _squares(self, G: Tensor) -> Tensor:
        squares = G * G
        if self.groups is None:
            return squares
        shared = torch.zeros_like(squares)
        for group in self.groups:
            shared[group] = squares[group].mean()
        return shared


def exact(rank: int) -> Argmin:
    """Line 5 to the letter, by the singular value decomposition."""

    def argmin(m: Tensor, L: Tensor, R: Tensor, t: int) -> tuple[Tensor, Tensor]:
        U, S, V = torch.linalg.svd(m, full_matrices=False)
        return U[:, :rank], torch.diag(S[:rank]) @ V[:rank]

    return argmin


def subspace_iteration(
    iterations: int, interval: int, sketch: Callable[[int], Tensor], *, spare: Tensor | None = None
) -> Argmin:
    """Line 5 by subspace iteration from R_{t-1}; from a sketch at the first step and every `interval` steps.

    Rows of R_{t-1} that are no longer than 1e-3 of the longest, or zero as `gram_schmidt` leaves them, start from the
    step's sketch; between those steps from `spare`, if that is given.
    """

    def argmin(m: Tensor, L: Tensor, R: Tensor, t: int) -> tuple[Tensor, Tensor]:
        fresh = t == 1 or (interval and t % interval == 1)
        R = sketch(t) if fresh else R
        drawn_rows = sketch(t) if fresh or spare is None else spare
        for _ in range(iterations):
            longest = max(torch.linalg.norm(row) for row in R)
            weak = [torch.linalg.norm(row) <= 1e-3 * longest for row in R]
            start = torch.stack([drawn if w else row for w, row, drawn in zip(weak, R, drawn_rows, strict=True)])
            Q = gram_schmidt(m @ start.T)
            R = Q.T @ m
        return Q, R

    return argmin


def gram_schmidt(columns: Tensor) -> Tensor:
    """Each column less what those before it have of it, at length 1; zero where that is 1e-3 of it or less."""
    basis: list[Tensor] = []
    for column in columns.T:
        remainder = column
        for _ in range(2):  # once more for what rounding leaves
            for q in basis:
                remainder = remainder - q * (q @ remainder)
        negligible = torch.linalg.norm(remainder) <= 1e-3 * torch.linalg.norm(column)
        basis.append(torch.zeros_like(remainder) if negligible else remainder / torch.linalg.norm(remainder))
    return torch.stack(basis, dim=1)


def on_transposed(argmin: Argmin) -> Argmin:
    """The same for a matrix stored inputs × outputs: iterate on its transpose, from L_{t-1}^T, its input side."""

    def turned(m: Tensor, L: Tensor, R: Tensor, t: int) -> tuple[Tensor, Tensor]:
        left, right = argmin(m.T, R.T, L.T, t)
        return right.T, left.T

    return turned


def head_groups(shape: tuple[int, int], output_axis: int, head_size: int) -> list[Tensor]:
    """Masks of Adam-mini's groups: `head_size` neighbouring rows (output axis 0) or columns (1) each."""
    masks = []
    for start in range(0, shape[output_axis], head_size):
        mask = torch.zeros(shape, dtype=torch.bool)
        mask.narrow(output_axis, start, head_size).fill_(True)
        masks.append(mask)
    return masks
