"""A fitted law along the sizes that were trained and some beyond, for figures: the curve with its interval band.

A law of one variable is one curve. A law of both is one curve over the model sizes for each budget: for each number of
tokens, or of tokens per parameter, whichever the experiments have fewer of.
"""

from collections.abc import Callable, Sequence

import numpy as np

from orchestrator.fit_records import CurvePoint, Estimate, LawCurve, ScalingPoint
from orchestrator.scaling import Form

STEPS = 40
"""Points of a curve: on logarithmic axes it bends little."""
BEYOND = 2.0
"""How far a curve goes beyond the largest point, unless something farther is predicted."""
MOST_CURVES = 6

Predict = Callable[[int, int], Estimate]
"""The law's loss at parameters and tokens."""


def law_curves(
    form: Form,
    points: Sequence[ScalingPoint],
    targets: Sequence[tuple[int, int]],
    predict: Predict,
    tokens_at: Callable[[int], int],
) -> tuple[LawCurve, ...]:
    """The curves of a law through these points, as far as the (parameters, tokens) that are predicted. `tokens_at`: the
    tokens that a law of sizes alone means at a size."""
    if not points:
        return ()
    along_tokens = form.variables == (1,)
    axis = 1 if along_tokens else 0
    places = [(point.parameters, point.tokens)[axis] for point in points]
    highest = max(BEYOND * max(places), *(each[axis] for each in targets)) if targets else BEYOND * max(places)
    grid = [round(each) for each in np.geomspace(min(places), highest, STEPS)]
    largest = max(points, key=lambda point: (point.parameters, point.tokens))
    if along_tokens:
        return (_curve("", [(largest.parameters, each) for each in grid], predict),)
    if form.variables == (0,):
        return (_curve("", [(each, tokens_at(each)) for each in grid], predict),)
    return _by_budget(points, grid, predict)


def _by_budget(points: Sequence[ScalingPoint], grid: Sequence[int], predict: Predict) -> tuple[LawCurve, ...]:
    tokens = sorted({point.tokens for point in points})
    ratios = sorted({float(f"{point.tokens / point.parameters:.2g}") for point in points})
    if len(ratios) < len(tokens):
        curves = [
            _curve(f"{each:g} tokens per parameter", [(size, max(1, round(each * size))) for size in grid], predict)
            for each in ratios[:MOST_CURVES]
        ]
    else:
        curves = [_curve(f"{each:,} tokens", [(size, each) for size in grid], predict) for each in tokens[:MOST_CURVES]]
    return tuple(curves)


def _curve(label: str, places: Sequence[tuple[int, int]], predict: Predict) -> LawCurve:
    return LawCurve(
        label=label,
        points=tuple(
            CurvePoint(parameters=parameters, tokens=tokens, loss=predict(parameters, tokens))
            for parameters, tokens in places
        ),
    )
