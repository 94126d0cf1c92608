"""Colours: one fixed hue per optimizer on every page and figure, in a light and a dark variant.

The hues have a contrast of 3:1 on our backgrounds and differ in lightness, too: with deuteranopia or protanopia any two
are 14 apart in CIELAB. Where optimizers share a hue, dash and marker distinguish them.
"""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

ThemeName = Literal["light", "dark"]


@dataclass(frozen=True, kw_only=True)
class Theme:
    """The neutral colours of figures; static/app.css takes the same ones from `stylesheet()`."""

    background: str
    surface: str
    ink: str
    muted: str
    line: str


THEMES: dict[ThemeName, Theme] = {
    "light": Theme(background="#f6f7f9", surface="#ffffff", ink="#14181f", muted="#5a6372", line="#e4e7ec"),
    "dark": Theme(background="#0d0f13", surface="#15181e", ink="#e9ebef", muted="#98a2b0", line="#282d37"),
}

HUES: dict[str, tuple[str, str]] = {
    "slate": ("#566070", "#a9b3c1"),
    "blue": ("#0067b5", "#4ba9f5"),
    "vermillion": ("#c44f00", "#ff8c4d"),
    "green": ("#1a735b", "#2d8779"),
    "purple": ("#462e5c", "#eb3178"),
    "amber": ("#c38569", "#f6f148"),
    "violet": ("#8e78fc", "#6b7ab1"),
    "teal": ("#1298a9", "#92fcff"),
    "red": ("#ae0338", "#dc4a36"),
    "moss": ("#024203", "#d3f5ba"),
}
"""Name → (on light, on dark)."""

NEUTRALS: dict[str, tuple[str, str]] = {
    "parameters": ("#b9c1cd", "#4a5363"),
    "gradients": ("#d9dee6", "#333b48"),
    "activations": ("#98a2b1", "#5d687a"),
    "other": ("#e9ecf1", "#262c36"),
}
"""The colours of training's own memory, in the order of HUES: greys of no optimizer, with different patterns as
well."""

DASHES = ("solid", "dash", "dot", "dashdot")
NUMBERED_HUES = ("blue", "vermillion", "green", "purple", "amber", "teal", "violet", "red", "moss", "slate")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "pentagon", "star", "hexagon")


@dataclass(frozen=True, kw_only=True)
class Style:
    """The look of a candidate everywhere."""

    hue: str
    dash: str = "solid"
    symbol: str = "circle"

    def colour(self, theme: ThemeName) -> str:
        """Return the hue on that theme's background."""
        light, dark = HUES[self.hue]
        return light if theme == "light" else dark


KNOWN: dict[str, Style] = {
    "adamw": Style(hue="slate", symbol="circle"),
    "adamw-8bit": Style(hue="slate", dash="dash", symbol="pentagon"),
    "adamw-4bit": Style(hue="slate", dash="dot", symbol="star"),
    "adapm": Style(hue="blue", symbol="diamond"),
    "adapm-mini": Style(hue="vermillion", symbol="square"),
    "adam-mini": Style(hue="green", symbol="triangle-up"),
    "adafactor": Style(hue="purple", symbol="cross"),
    "galore": Style(hue="amber", symbol="pentagon"),
    "muon": Style(hue="violet", symbol="star"),
    "apollo": Style(hue="teal", symbol="hexagon"),
    "lion": Style(hue="red", symbol="triangle-up"),
    "soap": Style(hue="moss", symbol="square"),
    # Relatives share a hue and differ in dash and marker.
    "came": Style(hue="purple", dash="dash", symbol="square"),
    "sm3": Style(hue="purple", dash="dot", symbol="circle"),
    "golore": Style(hue="amber", dash="dash", symbol="star"),
    "fira": Style(hue="amber", dash="dot", symbol="hexagon"),
    "shampoo": Style(hue="violet", dash="dot", symbol="pentagon"),
    "apollo-mini": Style(hue="teal", dash="dash", symbol="pentagon"),
    "scale": Style(hue="teal", dash="dot", symbol="diamond"),
    "mars": Style(hue="red", dash="dash", symbol="circle"),
    "signsgd": Style(hue="red", dash="dashdot", symbol="diamond"),
    "normuon": Style(hue="violet", dash="dashdot", symbol="circle"),
    "ademamix": Style(hue="green", dash="dash", symbol="square"),
    "adopt": Style(hue="green", dash="dot", symbol="circle"),
    "schedule-free-adamw": Style(hue="red", dash="dot", symbol="cross"),
    "sgd": Style(hue="slate", dash="dot", symbol="square"),
    "nesterov": Style(hue="slate", dash="dash", symbol="diamond"),
    "asgd": Style(hue="slate", dash="dashdot", symbol="triangle-up"),
}
"""The baseline is neutral, so that what is compared with it stands out; the field's main methods have a hue each."""


def style(optimizer: str) -> Style:
    """Return the fixed style of an optimizer; unlisted ones get theirs from a hash of the name, the same on every
    page."""
    if optimizer in KNOWN:
        return KNOWN[optimizer]
    number = zlib.crc32(optimizer.encode())
    hues = tuple(hue for hue in HUES if hue != "slate")
    return Style(
        hue=hues[number % len(hues)],
        dash=DASHES[1 + number // 7 % (len(DASHES) - 1)],
        symbol=SYMBOLS[number // 31 % len(SYMBOLS)],
    )


def styles(candidates: Iterable[tuple[str, str]]) -> dict[str, Style]:
    """Return styles by candidate name, from (candidate, optimizer) pairs; a second candidate of an optimizer is
    dashed."""
    counts: dict[str, int] = {}
    chosen: dict[str, Style] = {}
    for candidate, optimizer in candidates:
        nth = counts.get(optimizer, 0)
        counts[optimizer] = nth + 1
        chosen[candidate] = variant(style(optimizer), nth)
    return chosen


def variant(base: Style, nth: int) -> Style:
    """Return the same hue for the nth relative, from 0 on: another dash and another mark."""
    dash = DASHES[(DASHES.index(base.dash) + nth) % len(DASHES)]
    symbol = SYMBOLS[(SYMBOLS.index(base.symbol) + nth) % len(SYMBOLS)]
    return replace(base, dash=dash, symbol=symbol)


def numbered_style(index: int, hues: Sequence[str] = NUMBERED_HUES) -> Style:
    """Return the look number `index`, for lines without an optimizer; looks repeat after twice the number of hues."""
    dash = DASHES[index // len(hues) % len(DASHES)]
    return Style(hue=hues[index % len(hues)], dash=dash, symbol=SYMBOLS[index % len(SYMBOLS)])


def stylesheet() -> str:
    """Return the same colours as CSS: neutrals as custom properties of the root, hues as classes `hue-…` that set
    `--hue`."""
    light, dark = THEMES["light"], THEMES["dark"]
    neutrals = "".join(
        f"--{name}:light-dark({getattr(light, name)},{getattr(dark, name)});"
        for name in ("background", "surface", "ink", "muted", "line")
    )
    hues = "".join(f".hue-{name}{{--hue:light-dark({pair[0]},{pair[1]})}}\n" for name, pair in HUES.items())
    return f":root{{{neutrals}}}\n{hues}"


def external_styles(candidates: Sequence[str]) -> dict[str, Style]:
    """Return a look for each candidate: an optimizer's own where it has the name of one, else a hue that none of these
    has."""
    optimizers_by_candidate = {name: name.lower() for name in candidates if name.lower() in KNOWN}
    looks = styles(optimizers_by_candidate.items())
    free = [hue for hue in NUMBERED_HUES if hue not in {look.hue for look in looks.values()}] or NUMBERED_HUES
    other_names = (name for name in candidates if name not in optimizers_by_candidate)
    return looks | {name: numbered_style(index, free) for index, name in enumerate(other_names)}
