"""Colours that everybody can tell apart, the same everywhere."""

import itertools
import math

import pytest

from dashboards.palette import HUES, KNOWN, NEUTRALS, THEMES, Style, style, styles
from optim.catalog import names

DEUTERANOPIA = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881))
PROTANOPIA = ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998))
"""Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB."""


def linear(colour: str) -> tuple[float, ...]:
    """Linear RGB of `#rrggbb`."""
    values = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    return tuple(v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values)


def contrast(first: str, other: str) -> float:
    """WCAG 2 contrast ratio."""
    weights = (0.2126, 0.7152, 0.0722)
    light, dark = sorted(
        (sum(w * v for w, v in zip(weights, linear(colour), strict=True)) for colour in (first, other)), reverse=True
    )
    return (light + 0.05) / (dark + 0.05)


def lab(rgb: tuple[float, ...]) -> tuple[float, float, float]:
    """CIELAB (D65) of linear RGB."""
    rows = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = (0.9505, 1.0, 1.089)
    xyz = [sum(c * max(0.0, v) for c, v in zip(row, rgb, strict=True)) for row in rows]
    f = [(v / w) ** (1 / 3) if v / w > 0.008856 else 7.787 * v / w + 16 / 116 for v, w in zip(xyz, white, strict=True)]
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


def seen(colour: str, matrix) -> tuple[float, ...]:
    """Linear RGB as somebody with that colour vision sees it."""
    rgb = linear(colour)
    return tuple(sum(m * v for m, v in zip(row, rgb, strict=True)) for row in matrix)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("hue", HUES)
def test_every_hue_stands_out_from_its_background(hue, theme):
    assert contrast(Style(hue=hue).colour(theme), THEMES[theme].surface) >= 3


@pytest.mark.parametrize(("theme", "place"), [("light", 0), ("dark", 1)])
def test_what_is_no_optimizer_looks_like_none(theme, place):
    for neutral, hue in itertools.product(NEUTRALS, HUES):
        first, other = lab(linear(NEUTRALS[neutral][place])), lab(linear(Style(hue=hue).colour(theme)))
        assert math.dist(first, other) >= 20, (neutral, hue)


@pytest.mark.parametrize("matrix", [DEUTERANOPIA, PROTANOPIA], ids=["deuteranopia", "protanopia"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_any_two_hues_differ_for_colour_blind_readers(theme, matrix):
    for pair in itertools.combinations(HUES, 2):
        first, other = (lab(seen(Style(hue=hue).colour(theme), matrix)) for hue in pair)
        assert math.dist(first, other) >= 14, pair


def test_every_optimizer_of_the_catalog_has_a_style_of_its_own():
    assert set(names()) <= set(KNOWN)
    assert len(set(KNOWN.values())) == len(KNOWN)


def test_an_unlisted_optimizer_keeps_its_style_and_is_never_plain_like_a_listed_one():
    assert style("sophia") == style("sophia")
    assert style("sophia").dash != "solid"
    assert style("sophia").hue != "slate"


def test_two_candidates_of_one_optimizer_share_the_hue_and_differ_in_dash_and_mark():
    chosen = styles([("rank 2 %", "adapm"), ("rank 5 %", "adapm"), ("adamw", "adamw")])
    first, second = chosen["rank 2 %"], chosen["rank 5 %"]
    assert first.hue == second.hue == "blue"
    assert first.dash != second.dash
    assert first.symbol != second.symbol
    assert chosen["adamw"] == style("adamw")
