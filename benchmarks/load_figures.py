"""Figures of a load: what was measured beside what is wanted, as a table and as JSON."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A line of the table."""

    path: str
    measured: float
    unit: str
    target: str = ""
    met: bool | None = None
    """None if there is no target."""
    note: str = ""


def percentile(values: Iterable[float], share: float) -> float:
    """The value that so many of them do not exceed; share in [0, 1]."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def show(figures: Sequence[Figure]) -> None:
    """The table."""
    print(f"{'path':<62}{'measured':>14} {'unit':<11}{'target':<22}{'':<5}note")
    for figure in figures:
        met = "" if figure.met is None else "yes" if figure.met else "NO"
        number = f"{figure.measured:,.0f}" if figure.measured >= 100 else f"{figure.measured:.3g}"
        print(f"{figure.path:<62}{number:>14} {figure.unit:<11}{figure.target:<22}{met:<5}{figure.note}")
