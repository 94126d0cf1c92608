"""The comparison's table: every figure with its unit and kind, 120 columns, readable in a plain log; as text, too."""

import io

import pytest
from rich.console import Console

from api.cli.answer_tables import comparison_table
from orchestrator.jobs import Outcome
from orchestrator.records import (
    CandidatePair,
    CandidateRow,
    Conclusion,
    Difference,
    Instability,
    Interval,
    OpenInterval,
    TimeToTarget,
)
from tests.factories.comparison import made_comparison


def row(candidate: str, **changes: object) -> CandidateRow:
    update = {
        "candidate": candidate,
        "title": candidate,
        "best_lr": 0.004,
        "val_loss": Interval(mean=2.33712, low=2.30, high=2.37424, n=3),
        "difference": Difference(mean=-0.0123, low=-0.0456, high=0.021, n=3, p_value=0.4),
        "instability": None,
        "time_to_target": None,
        "optimizer_state_bytes": 460_000,
        "peak_memory_bytes": 612_345_678,
        "peak_memory_kind": "tensors",
        "step_seconds": 0.0843,
        "optimizer_seconds": 0.0031,
        "device_hours": 0.0234,
        "verdict": f"{candidate} is undecided.",
        "conclusion": Conclusion.UNDECIDED,
        "outcomes": {Outcome.FINISHED: 6},
    }
    return made_comparison().rows[0].model_copy(update=update | changes)


BASELINE = row("adamw", is_baseline=True, difference=None, optimizer_state_bytes=6_690_000)


def text_of(
    *rows: CandidateRow,
    name: str = "a comparison",
    complete: bool = True,
    width: int = 120,
    pairs: tuple[CandidatePair, ...] = (),
) -> str:
    update = {"name": name, "complete": complete, "rows": rows, "notes": ("Two seeds are few.",), "pairs": pairs}
    comparison = made_comparison().model_copy(update=update)
    stream = io.StringIO()
    Console(file=stream, width=width, highlight=False, markup=False).print(comparison_table(comparison))
    return stream.getvalue()


def test_every_figure_stands_there_with_its_unit_and_kind():
    lines = text_of(row("adapm-mini"), BASELINE).splitlines()
    table = [" ".join(line.split()) for line in lines]
    assert table[4:6] == [
        "adapm-mini 0.004 2.3371 ± 0.0371 −0.0123 p = 0.4 460 kB — 612 MB 84.3 ms 1 min 24 s 6 finished",
        "n = 3 [−0.0456, +0.0210] 6.9 % tensors (3.10 ms)",
    ]
    assert "baseline 6.69 MB" in table[6]
    assert any(line.endswith(row("adapm-mini").verdict) for line in table)


def test_unstable_runs_stand_beside_the_loss_with_their_interval() -> None:
    lost = Instability(lost=2, runs=10, low=0.0252, high=0.5561, p_value=0.5)
    lines = [" ".join(line.split()) for line in text_of(row("adapm", instability=lost), BASELINE).splitlines()]
    assert "2 of 10" in lines[4] and "3–56 %" in lines[5]
    assert "p = 0.5" in lines[6] and "against" in lines[7] and "baseline" in lines[8], "of what it is the p-value"
    none_lost = Instability(lost=0, runs=5, low=0.0, high=0.5218, p_value=1.0)
    assert "p = 1" not in text_of(row("adapm", instability=none_lost), BASELINE)


def test_all_pairs_are_told_but_for_those_that_the_rows_tell() -> None:
    pairs = tuple(
        CandidatePair(
            candidate="adapm",
            other=baseline,
            title="AdaPM",
            other_title=baseline,
            difference=None,
            conclusion=Conclusion.UNDECIDED,
            verdict=f"No difference to {baseline} shown.",
        )
        for baseline in ("adamw", "lion")
    )
    text = text_of(row("adapm"), BASELINE, pairs=pairs)
    assert "difference to lion" in text and "difference to adamw" not in text


def test_names_cannot_colour_or_move_the_terminal():
    text = text_of(row("[red]x\x1b[2J"), name="\x9b2J[bold]y")
    assert "\x1b" not in text
    assert "\x9b" not in text
    assert "[red]x?[2J" in text
    assert "?2J[bold]y" in text


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_a_narrow_console_leaves_columns_out_and_squeezes_none(width: int):
    """The widest words that cells may have; names and what became of the runs stand whole, or not at all."""
    instability = Instability(lost=0, runs=5, low=0.0, high=0.5218, p_value=1.0)
    fast = OpenInterval(mean=18.85, low=13.64, high=21.44, n=5)
    reached = TimeToTarget(reached=5, n=5, steps=None, tokens=None, device_hours=None, speed_up=fast)
    mini = row("adapm-mini", instability=instability, time_to_target=reached, edge_of_grid=True)
    text = text_of(mini, row("adamw", is_baseline=True, difference=None, instability=instability), width=width)
    table = text[: text.index("is undecided")].splitlines()[:-1]
    assert all(len(line) <= width for line in table)
    assert any(line.startswith("adapm-mini ") for line in table)
    is_narrow = any("not shown in this narrow terminal" in line for line in table)
    assert is_narrow == (width < 120)
    assert any(line.rstrip().endswith("6 finished") for line in table) == (not is_narrow)


def test_a_comparison_prints_as_a_table_of_its_candidates() -> None:
    comparison = made_comparison()
    head, *lines = str(comparison).splitlines()
    assert head.split()[:2] == ["candidate", "lr"]
    assert [line.split()[0] for line in lines] == [row.candidate for row in comparison.rows]
    better, baseline = lines
    assert "-0.0505 [-0.0614, -0.0396]  better" in better
    assert "2.3010 ± 0.0025" in baseline and "–" in baseline
    assert max(map(len, (head, *lines))) < 200
