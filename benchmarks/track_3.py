"""The records of modded-nanogpt's track 3 judged by the estimator of comparisons, as a table for `docs/track-3.md`:

python -m benchmarks.track_3 FOLDER [--commit HASH]

FOLDER is `records/track_3_optimization` of a checkout of github.com/KellerJordan/modded-nanogpt. A record is a number
of steps after which GPT-2 124M is below 3.28 nats on FineWeb; each folder of logs holds its seeds. Logs are read by the
product's own reader (`adapm-bench import log`). Of two records the later one's losses are compared with the earlier
one's *at equal steps*: what a step is worth, in nats, is measured from two sets of the board's own runs, and its error
joins the interval. Seeds pair nothing here, so runs are paired in the order of their logs, as many as both have. Only
steps and losses are kept.
"""

import argparse
import math
import re
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from api.imports.source import ReadRequest, SourceRun
from api.imports.text_log import read
from benchmarks.result_file import write_result
from orchestrator.analysis.estimator import JudgedRuns, conclude, paired_difference
from orchestrator.analysis.statistics import mean_interval

ROW: Final = re.compile(r"\| (\d+) \| (\d+)(\(!\))? \| ([\d.]+) \(n=(\d+)\).*?\[log\]\(results/(\S+?)\)")
"""Number, steps, whether it was a record, mean loss, seeds, log."""
METRICS: Final = ("val_ema_loss", "val_loss")
"""A record that evaluates an average of its weights is judged by that."""
TARGET: Final = 3.28
ADAMW_STEPS, TUNED_ADAMW_STEPS = 5625, 4950
"""Of the board's result 2, and of the pull request 353 (n = 10, mean 3.2776, sd 0.0025), whose logs are not there."""
RATE_LOGS: Final = (("1bd8db7a-f3a3-4195-856d-cab7e0816443", 3325), ("478c0427-06ce-4952-bc0a-7e2dfaea29b6", 3125))
"""The same optimizer trained 200 steps less: what a step is worth."""
MOST_ROUNDING: Final = 0.0002
"""Nats between the board's mean and that of the logs."""
BOARD_TEST: Final = 0.004
"""What the board asks of (difference at equal steps) / √(1/n₁ + 1/n₂)."""


@dataclass(frozen=True, kw_only=True)
class Record:
    number: int
    steps: int
    is_record: bool
    board_mean: float
    board_seeds: int
    losses: tuple[float, ...]
    """At its steps, of each log that has them."""


@dataclass(frozen=True, kw_only=True)
class StepWorth:
    """What a step of training is worth, in nats."""

    mean: float
    sem: float


def final_losses(runs: Sequence[SourceRun], steps: int) -> tuple[float, ...]:
    """The losses at that step, of the runs that evaluated there."""
    losses = []
    for run in runs:
        points = [point.metrics for session in run.sessions for point in session if point.step == steps]
        metrics: Mapping[str, float] = {name: value for point in points for name, value in point.items()}
        losses += [metrics[name] for name in METRICS if name in metrics][:1]
    return tuple(losses)


def read_records(folder: Path) -> tuple[list[Record], StepWorth, int]:
    """The board's records with their losses, what a step is worth, and the number of runs read."""
    runs = list(read(ReadRequest(places=[str(folder / "results")], pattern="modded-nanogpt")))
    records = []
    for line in (folder / "README.md").read_text(encoding="utf-8").splitlines():
        if match := ROW.match(line):
            number, steps, mark, mean, seeds, log = match.groups()
            own = _runs_of(runs, log)
            records.append(
                Record(
                    number=int(number), steps=int(steps), is_record=mark is not None, board_mean=float(mean),
                    board_seeds=int(seeds), losses=final_losses(own, int(steps)),
                )
            )  # fmt: skip
    long, short = (final_losses(_runs_of(runs, f"{name}.txt"), steps) for name, steps in RATE_LOGS)
    steps = RATE_LOGS[0][1] - RATE_LOGS[1][1]
    sem = math.hypot(*(statistics.stdev(losses) / math.sqrt(len(losses)) for losses in (long, short)))
    worth = StepWorth(mean=(statistics.mean(short) - statistics.mean(long)) / steps, sem=sem / steps)
    return records, worth, len(runs)


def _runs_of(runs: Sequence[SourceRun], log: str) -> list[SourceRun]:
    """Those of the log's folder; of a log beside the folders, its own alone."""
    path = PurePosixPath("results") / log
    name = str(path.with_suffix("") if path.parent.name == "results" else path.parent).removeprefix(
        "" if path.parent.name == "results" else "results/"
    )
    return [run for run in runs if f"{run.name}/".startswith(f"{name}/")]


def judge(record: Record, before: Record, worth: StepWorth, comparisons: int) -> dict[str, Any]:
    """The record against the one before it, at equal steps."""
    saved = before.steps - record.steps
    losses = dict(enumerate(record.losses))
    baseline = {i: loss + worth.mean * saved for i, loss in enumerate(before.losses)}
    difference = paired_difference(losses, baseline, comparisons=comparisons, evaluation_error=abs(saved) * worth.sem)
    statistic = statistics.mean(baseline.values()) - statistics.mean(losses.values())
    statistic /= math.sqrt(1 / len(losses) + 1 / len(baseline))
    both = losses.keys() & baseline.keys()
    verdict = conclude(difference, JudgedRuns(losses=losses, ended=both), JudgedRuns(losses=baseline, ended=both))
    return {
        "before": before.number, "steps_saved": saved, "pairs": len(both),
        "mean": difference and difference.mean, "low": difference and difference.low,
        "high": difference and difference.high, "verdict": verdict, "board_passes": statistic >= BOARD_TEST,
    }  # fmt: skip


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown, one row a record."""
    lines = [
        "| record | steps | seeds | loss (95 %) | against | steps saved | loss at equal steps (95 %) | verdict "
        "| the board's test | steps below AdamW, tuned AdamW |",
        "|--:|--:|--:|---|--:|--:|---|---|---|--:|",
    ]  # fmt: skip
    for row in rows:
        loss = f"{row['mean']:.4f}" + (f" ({row['low']:.4f} to {row['high']:.4f})" if row["low"] is not None else "")
        judged = row["judged"]
        if judged is None:
            against, saved, effect, verdict, mark = "–", "–", "–", "–", "–"
        else:
            against, saved, verdict = f"{judged['before']}", f"{judged['steps_saved']}", judged["verdict"]
            effect = f"{judged['mean']:+.4f}"
            if judged["low"] is not None:
                effect += f" ({judged['low']:+.4f} to {judged['high']:+.4f})"
            mark = "passes" if judged["board_passes"] else "does not pass"
        gaps = f"{ADAMW_STEPS - row['steps']:,}, {TUNED_ADAMW_STEPS - row['steps']:,}"
        lines.append(
            f"| {row['number']} | {row['steps']:,} | {row['seeds']} | {loss} | {against} | {saved} | {effect} "
            f"| {verdict} | {mark} | {gaps} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--commit", help="of the checkout")
    arguments = parser.parse_args()
    began = time.perf_counter()
    records, worth, runs = read_records(arguments.folder)
    seconds = time.perf_counter() - began
    history = [record for record in records if record.is_record]
    rows: list[dict[str, Any]] = []
    for record in records:
        earlier = [other for other in history if other.number < record.number]
        interval = mean_interval(record.losses)
        judged = judge(record, earlier[-1], worth, len(history) - 1) if record.is_record and earlier else None
        rows.append({
            "number": record.number, "steps": record.steps, "is_record": record.is_record,
            "seeds": len(record.losses), "board_mean": record.board_mean, "board_seeds": record.board_seeds,
            "losses": record.losses, "mean": statistics.mean(record.losses),
            "low": interval.low if interval else None, "high": interval.high if interval else None, "judged": judged,
        })  # fmt: skip
    write_result(
        Path("benchmarks/results/track-3.json"),
        "track_3",
        {
            "source": f"github.com/KellerJordan/modded-nanogpt, commit {arguments.commit}",
            "runs": runs, "seconds_to_read": seconds, "nats_for_100_steps": 100 * worth.mean,
            "standard_error": 100 * worth.sem, "records": rows,
        },
    )  # fmt: skip
    print(table([row for row in rows if row["is_record"]]))
    print(f"\n{runs} runs read in {seconds:.1f} s")
    print(f"100 steps are worth {100 * worth.mean:.5f} nats, standard error {100 * worth.sem:.5f}")
    differing = [row["number"] for row in rows if abs(row["mean"] - row["board_mean"]) > MOST_ROUNDING]
    print(f"means that differ from the board's by more than {MOST_ROUNDING}: {differing or 'none'}")


if __name__ == "__main__":
    main()
