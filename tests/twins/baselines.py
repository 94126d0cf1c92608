"""The baselines as their papers write them: one weight matrix, explicit matrices, loops where there are words.

Each takes the start W (m × n), the gradients of all steps, and returns the last W. Slow on purpose.
"""

from collections.abc import Callable, Iterable
from math import exp, log, sqrt

import torch
from torch import Tensor

Gradients = Iterable[Tensor]


def adamw(W: Tensor, gradients: Gradients, lr: float, b1: float, b2: float, eps: float, wd: float) -> Tensor:
    """Kingma and Ba, algorithm 1, with Loshchilov and Hutter's decay."""
    m, v = torch.zeros_like(W), torch.zeros_like(W)
    for t, G in enumerate(gradients, start=1):
        m, v = b1 * m + (1 - b1) * G, b2 * v + (1 - b2) * G**2
        W = W - lr * (m / (1 - b1**t) / ((v / (1 - b2**t)).sqrt() + eps) + wd * W)
    return W


def sgd(W: Tensor, gradients: Gradients, lr: float, momentum: float, wd: float) -> Tensor:
    """Sutskever et al., with torch's reading of Nesterov: look ahead along the buffer."""
    buffer = torch.zeros_like(W)
    for G in gradients:
        buffer = momentum * buffer + G
        W = (1 - lr * wd) * W - lr * (G + momentum * buffer)
    return W


def accelerated_sgd(
    W: Tensor, gradient: Callable[[Tensor], Tensor], steps: int, delta: float, gamma: float, beta: float
) -> Tensor:
    """AdaPM's paper, algorithm 3, with the gradient at U; W and V are both kept."""
    V = W
    for _ in range(steps):
        U = W / (1 + beta) + beta / (1 + beta) * V
        G = gradient(U)
        W = U - delta * G
        V = beta * U + (1 - beta) * V - gamma * G
    return W


def adam_mini(
    W: Tensor, gradients: Gradients, groups: list[Tensor] | None, lr: float, b1: float, b2: float, eps: float, wd: float
) -> Tensor:
    """Adam-mini, algorithm 1: AdamW with mean(G * G) over each group (masks, bool; None: over nothing)."""
    m, v = torch.zeros_like(W), torch.zeros_like(W)
    for t, G in enumerate(gradients, start=1):
        squares = G**2
        for group in groups or []:
            squares[group] = squares[group].mean()
        m, v = b1 * m + (1 - b1) * G, b2 * v + (1 - b2) * squares
        W = W - lr * (m / (1 - b1**t) / ((v / (1 - b2**t)).sqrt() + eps) + wd * W)
    return W


def lion(W: Tensor, gradients: Gradients, lr: float, b1: float, b2: float, wd: float) -> Tensor:
    """Chen et al., algorithm 2."""
    m = torch.zeros_like(W)
    for G in gradients:
        W = W - lr * ((b1 * m + (1 - b1) * G).sign() + wd * W)
        m = b2 * m + (1 - b2) * G
    return W


def signum(W: Tensor, gradients: Gradients, lr: float, momentum: float, wd: float) -> Tensor:
    """Bernstein et al., algorithm 2, with decoupled decay."""
    m = torch.zeros_like(W)
    for G in gradients:
        m = momentum * m + (1 - momentum) * G
        W = W - lr * (m.sign() + wd * W)
    return W


def ademamix(
    W: Tensor,
    gradients: Gradients,
    warmup: int | None,
    lr: float,
    b1: float,
    b2: float,
    b3: float,
    alpha: float,
    eps: float,
    wd: float,
) -> Tensor:
    """Pagliardini et al., algorithm 1, with the schedulers of section 3, whose formulas end at the warm-up's end."""
    m, slow, v = torch.zeros_like(W), torch.zeros_like(W), torch.zeros_like(W)
    for t, G in enumerate(gradients, start=1):
        alpha_t, b3_t = alpha, b3
        if warmup is not None and t < warmup:
            alpha_t = t * alpha / warmup
            b3_t = exp(log(b1) * log(b3) / ((1 - t / warmup) * log(b3) + t / warmup * log(b1)))
        m, slow, v = b1 * m + (1 - b1) * G, b3_t * slow + (1 - b3_t) * G, b2 * v + (1 - b2) * G**2
        W = W - lr * ((m / (1 - b1**t) + alpha_t * slow) / ((v / (1 - b2**t)).sqrt() + eps) + wd * W)
    return W


def adopt(W: Tensor, gradients: Gradients, lr: float, b1: float, b2: float, eps: float, wd: float) -> Tensor:
    """Taniguchi et al., algorithm 2: gradients are counted from 0, which gives v alone."""
    m, v = torch.zeros_like(W), torch.zeros_like(W)
    for t, G in enumerate(gradients):
        if t == 0:
            v = G**2
            continue
        normalised = G / torch.maximum(v.sqrt(), torch.full_like(v, eps))
        m = b1 * m + (1 - b1) * torch.minimum(
            torch.maximum(normalised, torch.tensor(-(t**0.25))), torch.tensor(t**0.25)
        )
        W = W - lr * (m + wd * W)
        v = b2 * v + (1 - b2) * G**2
    return W


def factored(rows: Tensor, columns: Tensor) -> Tensor:
    """Adafactor's estimate of an m × n second moment from its row means (m) and column means (n)."""
    return torch.outer(rows, columns) / rows.mean()


def rms(X: Tensor) -> float:
    """Root mean square."""
    return float((X**2).mean().sqrt())


def adafactor(W: Tensor, gradients: Gradients, lr: float, b1: float, wd: float) -> Tensor:
    """Shazeer and Stern, algorithm 4, with momentum of the steps and a given relative step size."""
    rows, columns, m = torch.zeros_like(W[:, 0]), torch.zeros_like(W[0]), torch.zeros_like(W)
    for t, G in enumerate(gradients, start=1):
        b2 = 1 - t**-0.8
        squares = G**2 + 1e-30
        rows, columns = b2 * rows + (1 - b2) * squares.mean(1), b2 * columns + (1 - b2) * squares.mean(0)
        U = G / factored(rows, columns).sqrt()
        step = max(1e-3, rms(W)) * lr
        m = b1 * m + (1 - b1) * step * U / max(1.0, rms(U))
        W = (1 - step * wd) * W - m
    return W


def came(W: Tensor, gradients: Gradients, lr: float, b1: float, b2: float, b3: float, wd: float) -> Tensor:
    """Luo et al., algorithm 2."""
    m = torch.zeros_like(W)
    rows, columns = torch.zeros_like(W[:, 0]), torch.zeros_like(W[0])
    doubt_rows, doubt_columns = torch.zeros_like(rows), torch.zeros_like(columns)
    for G in gradients:
        squares = G**2 + 1e-30
        rows, columns = b2 * rows + (1 - b2) * squares.mean(1), b2 * columns + (1 - b2) * squares.mean(0)
        U = G / factored(rows, columns).sqrt()
        U = U / max(1.0, rms(U))
        m = b1 * m + (1 - b1) * U
        doubt = (U - m) ** 2 + 1e-16
        doubt_rows = b3 * doubt_rows + (1 - b3) * doubt.mean(1)
        doubt_columns = b3 * doubt_columns + (1 - b3) * doubt.mean(0)
        W = (1 - lr * wd) * W - lr * m / factored(doubt_rows, doubt_columns).sqrt()
    return W


def sm3(W: Tensor, gradients: Gradients, lr: float, momentum: float, wd: float) -> Tensor:
    """Anil et al., algorithm SM3-II, over rows and columns."""
    rows, columns, m = torch.zeros_like(W[:, 0]), torch.zeros_like(W[0]), torch.zeros_like(W)
    for G in gradients:
        v = torch.minimum(rows[:, None], columns[None, :]) + G**2
        rows, columns = v.amax(1), v.amax(0)
        m = momentum * m + (1 - momentum) * G / v.sqrt()
        W = (1 - lr * wd) * W - lr * m
    return W


def mars(W: Tensor, gradients: Gradients, lr: float, b1: float, b2: float, gamma: float, eps: float) -> Tensor:
    """Yuan et al., algorithm 2 (approximate), without decay; the gradient before the first is 0, as in their code."""
    m, v, last = torch.zeros_like(W), torch.zeros_like(W), torch.zeros_like(W)
    for t, G in enumerate(gradients, start=1):
        c = G + gamma * b1 / (1 - b1) * (G - last)
        c = c / max(1.0, float(c.norm()))
        m, v, last = b1 * m + (1 - b1) * c, b2 * v + (1 - b2) * c**2, G
        W = W - lr * m / (1 - b1**t) / ((v / (1 - b2**t)).sqrt() + eps)
    return W


def schedule_free_adamw(
    W: Tensor, gradient: Callable[[Tensor], Tensor], steps: int, lr: float, b1: float, b2: float, eps: float, wd: float
) -> Tensor:
    """Defazio et al., algorithm 1, at a constant rate: x is the mean of all z."""
    z, x, v = W, W, torch.zeros_like(W)
    for t in range(1, steps + 1):
        y = (1 - b1) * z + b1 * x
        G = gradient(y)
        v = b2 * v + (1 - b2) * G**2
        z = z - lr * (G / ((v / (1 - b2**t)).sqrt() + eps) + wd * y)
        x = (1 - 1 / t) * x + z / t
    return x


Projection = Callable[[Tensor, int], Tensor]
"""(m × n gradient with m < n, step from 1) → P, m × r."""


def projected_adamw(
    W: Tensor,
    gradients: Gradients,
    projection: Projection,
    gap: int,
    alpha: float,
    lr: float,
    b1: float,
    b2: float,
    eps: float,
    wd: float,
    *,
    turn_momentum: bool = False,
    outside: bool = False,
) -> Tensor:
    """GaLore (algorithm 2), GoLore (`turn_momentum`) and Fira (`outside`) for m < n, in the order of Fira's code: the
    1 - b^t terms come last, on the step size."""
    P = m = v = torch.zeros(0, dtype=W.dtype)
    last = 0.0
    for t, G in enumerate(gradients, start=1):
        if (t - 1) % gap == 0:
            old, P = P, projection(G, t)
            if t == 1:
                m = v = torch.zeros(P.shape[1], W.shape[1], dtype=W.dtype)
            elif turn_momentum:
                m = P.T @ old @ m
        R = P.T @ G
        m, v = b1 * m + (1 - b1) * R, b2 * v + (1 - b2) * R**2
        N, debias = m / (v.sqrt() + eps), sqrt(1 - b2**t) / (1 - b1**t)
        direction = alpha * P @ N
        if outside:
            S = torch.stack([(G - P @ R)[:, j] * N[:, j].norm() / R[:, j].norm() for j in range(W.shape[1])], dim=1)
            S, last = limited(S, last)
            direction = direction + S
        W = W - lr * (debias * direction + wd * W)
    return W


def limited(S: Tensor, last: float) -> tuple[Tensor, float]:
    """Fira's limiter: no more than 1.01 times the norm of the last one, from the second on."""
    norm = float(S.norm())
    if last and norm > 1.01 * last:
        return S / norm * 1.01 * last, 1.01 * last
    return S, norm


def apollo(
    W: Tensor,
    gradients: Gradients,
    projection: Projection,
    alpha: float,
    lr: float,
    b1: float,
    b2: float,
    eps: float,
    wd: float,
    *,
    mini: bool = False,
) -> Tensor:
    """Zhu et al., algorithm 1, for m < n, in the order of their code, as Fira's; `projection` gives P^T here."""
    last = 0.0
    m = v = torch.zeros(1, dtype=W.dtype)
    for t, G in enumerate(gradients, start=1):
        R = projection(G, t).T @ G
        m, v = b1 * m + (1 - b1) * R, b2 * v + (1 - b2) * R**2
        N, debias = m / (v.sqrt() + eps), sqrt(1 - b2**t) / (1 - b1**t)
        s = N.norm() / R.norm() if mini else torch.stack([N[:, j].norm() / R[:, j].norm() for j in range(W.shape[1])])
        S, last = limited(alpha * G * s, last)
        W = W - lr * (debias * S + wd * W)
    return W


def scale(W: Tensor, gradients: Gradients, lr: float, beta: float, output_axis: int, wd: float) -> Tensor:
    """Glentis et al., algorithm 1, with the root mean square of each output neuron; beta = 0 but in the last layer."""
    m = torch.zeros_like(W)
    for G in gradients:
        m = beta * m + (1 - beta) * G
        neurons = [neuron / rms(neuron) for neuron in m.unbind(output_axis)]
        W = W - lr * (torch.stack(neurons, dim=output_axis) + wd * W)
    return W


def shampoo(W: Tensor, gradients: Gradients, frequency: int, lr: float, b1: float, b2: float, wd: float) -> Tensor:
    """Gupta et al., algorithm 1, with means for sums, momentum, and Adam's norm for each step (Anil et al., 2020)."""
    L, R = torch.zeros(len(W), len(W), dtype=W.dtype), torch.zeros(len(W[0]), len(W[0]), dtype=W.dtype)
    A, B, m, v = torch.zeros_like(L), torch.zeros_like(R), torch.zeros_like(W), torch.zeros_like(W)
    for t, G in enumerate(gradients, start=1):
        L, R = b2 * L + (1 - b2) * G @ G.T, b2 * R + (1 - b2) * G.T @ G
        m, v = b1 * m + (1 - b1) * G, b2 * v + (1 - b2) * G**2
        if (t - 1) % frequency == 0:
            A, B = inverse_fourth_root(L), inverse_fourth_root(R)
        N = m / (1 - b1**t) / ((v / (1 - b2**t)).sqrt() + 1e-8)
        U = A @ m @ B
        W = W - lr * (U / U.norm() * N.norm() + wd * W)
    return W


def inverse_fourth_root(S: Tensor) -> Tensor:
    """Return the root by singular values, none of which is taken smaller than a millionth of the largest."""
    U, values, _ = torch.linalg.svd(S)
    root: Tensor = U @ torch.diag(values.clamp_min(1e-6 * values[0]) ** -0.25) @ U.T
    return root


def muon(
    W: Tensor, gradients: Gradients, lr: float, momentum: float, wd: float, adjust_lr: str = "match_rms_adamw"
) -> Tensor:
    """Jordan's Muon with Nesterov's momentum, W out × in, of Moonshot's size or his own; polar factors by the SVD."""
    buffer = torch.zeros_like(W)
    outputs, inputs = W.shape
    size = sqrt(max(1.0, outputs / inputs)) if adjust_lr == "original" else 0.2 * sqrt(max(outputs, inputs))
    for G in gradients:
        buffer = momentum * buffer + (1 - momentum) * G
        U, _, V = torch.linalg.svd((1 - momentum) * G + momentum * buffer, full_matrices=False)
        W = (1 - lr * wd) * W - lr * size * U @ V
    return W


def normuon(W: Tensor, gradients: Gradients, lr: float, momentum: float, b2: float, wd: float) -> Tensor:
    """Li et al., algorithm 1, with Nesterov's momentum as in their code, W out × in; polar factors by the SVD."""
    buffer, v = torch.zeros_like(W), torch.zeros_like(W[:, 0])
    for G in gradients:
        buffer = momentum * buffer + (1 - momentum) * G
        U, _, V = torch.linalg.svd((1 - momentum) * G + momentum * buffer, full_matrices=False)
        v = b2 * v + (1 - b2) * ((U @ V) ** 2).mean(1)
        alike = U @ V / v.sqrt()[:, None]
        W = (1 - lr * wd) * W - lr * 0.2 * sqrt(W.numel()) * alike / alike.norm()
    return W
