"""The records of modded-nanogpt's track 3 judged by the estimator of comparisons, as a table for `docs/track-3.md`:

python -m benchmarks.track_3 FOLDER [--commit HASH]

FOLDER is `records/track_3_optimization` of a checkout of github.com/KellerJordan/modded-nanogpt. A record is a number
of steps after which GPT-2 124M is below 3.28 nats on FineWeb; each folder of logs holds its seeds. Logs are read by the
product's own reader (`adapm-bench import log`). Of two records the later one's losses are compared with the earlier
one's *at equal steps*: what a step is worth, in nats, is measured from two sets of the board's own runs, and its error
joins the interval. Seeds pair nothing between records, so the interval is Welch's (B. L. Welch, Biometrika 34, 1947),
not the paired one of comparisons. Only steps and losses are kept.
"""

import argparse
import math
import re
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from api.imports.source import ReadRequest, SourceRun
from api.imports.text_log import read
from benchmarks.result_file import write_result
from orchestrator.analysis.statistics import mean_interval, normal_quantile, t_quantile
from orchestrator.records import SIGNIFICANCE

ROW: Final = re.compile(r"\| (\d+) \| (\d+)(\(!\))? \| ([\d.]+) \(n=(\d+)\).*?\[log\]\(results/(\S+?)\)")
"""Number, steps, whether it was a record, mean loss, seeds, log."""
METRICS: Final = ("val_ema_loss", "val_loss")
"""A record that evaluates an average of its weights is judged by that."""
WORTH_LOGS: Final = (("1bd8db7a-f3a3-4195-856d-cab7e0816443", 3325), ("478c0427-06ce-4952-bc0a-7e2dfaea29b6", 3125))
"""The same optimizer trained 200 steps less: what a step is worth."""
MOST_ROUNDING: Final = 0.0002
"""Nats between the board's mean and that of the logs."""
BOARD_TEST: Final = 0.004
"""The board's threshold of (difference at equal steps) / √(1/n₁ + 1/n₂)."""
BOARD_WORTH: Final = 0.0045 / 100
"""The board's value of a step, in nats."""


@dataclass(frozen=True, kw_only=True)
class Record:
    number: int
    steps: int
    is_record: bool
    board_mean: float
    board_seeds: int
    losses: tuple[float, ...]
    """The losses at its steps, of each log that has them."""


@dataclass(frozen=True, kw_only=True)
class StepWorth:
    """The value of a step of training, in nats."""

    mean: float
    sem: float
    losses: Sequence[Sequence[float]]
    """The losses of the longer and the shorter training."""


def final_losses(runs: Sequence[SourceRun], steps: int) -> tuple[float, ...]:
    """The losses at that step, of the runs that evaluated there; of copies of a log, whole or in part, one counts."""
    curves = [dict(_curve(run)) for run in runs]
    curves = sorted((curve for curve in curves if steps in curve), key=len, reverse=True)
    distinct_curves: list[dict[int, float]] = []
    for curve in curves:
        if not any(curve.items() <= other.items() for other in distinct_curves):
            distinct_curves.append(curve)
    return tuple(curve[steps] for curve in distinct_curves)


def _curve(run: SourceRun) -> Iterator[tuple[int, float]]:
    """Steps and losses, of the average of the weights where the run evaluates one."""
    points = [point for session in run.sessions for point in session]
    for metric in METRICS:
        pairs = [(point.step, point.metrics[metric]) for point in points if metric in point.metrics]
        if pairs:
            yield from pairs
            return


def read_records(folder: Path) -> tuple[list[Record], StepWorth, int]:
    """The board's records with their losses, what a step is worth, and the number of runs read."""
    runs = list(read(ReadRequest(places=[str(folder / "results")], pattern="modded-nanogpt")))
    records = []
    for line in (folder / "README.md").read_text(encoding="utf-8").splitlines():
        if match := ROW.match(line):
            number, steps, mark, mean, seeds, log = match.groups()
            entry_runs = _runs_of(runs, log)
            records.append(
                Record(
                    number=int(number), steps=int(steps), is_record=mark is not None, board_mean=float(mean),
                    board_seeds=int(seeds), losses=final_losses(entry_runs, int(steps)),
                )
            )  # fmt: skip
    long, short = (final_losses(_runs_of(runs, f"{name}.txt"), steps) for name, steps in WORTH_LOGS)
    steps = WORTH_LOGS[0][1] - WORTH_LOGS[1][1]
    sem = math.hypot(*(statistics.stdev(losses) / math.sqrt(len(losses)) for losses in (long, short)))
    worth = (statistics.mean(short) - statistics.mean(long)) / steps
    return records, StepWorth(mean=worth, sem=sem / steps, losses=(long, short)), len(runs)


def _runs_of(runs: Sequence[SourceRun], log: str) -> list[SourceRun]:
    """Return the runs of the log's folder; of a log beside the folders, its own alone."""
    path = PurePosixPath("results") / log
    name = str(path.with_suffix("") if path.parent.name == "results" else path.parent).removeprefix(
        "" if path.parent.name == "results" else "results/"
    )
    return [run for run in runs if f"{run.name}/".startswith(f"{name}/")]


def judge(record: Record, before: Record, worth: StepWorth, comparisons: int) -> dict[str, Any]:
    """The record against the one before it, at equal steps: simultaneous 95 % interval and verdict."""
    saved = before.steps - record.steps
    samples = record.losses, before.losses
    means = [statistics.mean(losses) for losses in samples]
    mean = means[0] - means[1] - worth.mean * saved
    judged: dict[str, Any] = {"before": before.number, "steps_saved": saved, "mean": mean, "low": None, "high": None}
    by_board = (means[1] + BOARD_WORTH * saved - means[0]) / math.sqrt(sum(1 / len(losses) for losses in samples))
    judged |= {"board_passes": by_board >= BOARD_TEST, "verdict": "one seed"}
    if min(map(len, samples)) < 2:
        return judged
    parts = [statistics.variance(losses) / len(losses) for losses in samples]
    degrees = sum(parts) ** 2 / sum(part**2 / (len(losses) - 1) for part, losses in zip(parts, samples, strict=True))
    tail = SIGNIFICANCE / comparisons / 2
    half = math.hypot(
        t_quantile(degrees, 1 - tail) * math.sqrt(sum(parts)), normal_quantile(1 - tail) * worth.sem * saved
    )
    verdict = "better" if mean + half < 0 else "worse" if mean - half > 0 else "undecided"
    return judged | {"low": mean - half, "high": mean + half, "verdict": verdict}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown, one row a record."""
    lines = [
        "| record | steps | logs | loss (95 %) | difference to the record above at equal steps (simultaneous 95 %) "
        "| verdict | the board's test |",
        "|--:|--:|--:|---|---|---|---|",
    ]  # fmt: skip
    for row in rows:
        loss = f"{row['mean']:.4f}" + (f" ({row['low']:.4f} to {row['high']:.4f})" if row["low"] is not None else "")
        judged = row["judged"]
        if judged is None:
            effect, verdict, mark = "–", "–", "–"
        else:
            effect, verdict = f"{judged['mean']:+.4f}", judged["verdict"]
            if judged["low"] is not None:
                effect += f" ({judged['low']:+.4f} to {judged['high']:+.4f})"
            mark = "passes" if judged["board_passes"] else "fails"
        lines.append(
            f"| {row['number']} | {row['steps']:,} | {row['seeds']} | {loss} | {effect} | {verdict} | {mark} |"
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
            "standard_error": 100 * worth.sem, "losses_of_worth": worth.losses, "records": rows,
        },
    )  # fmt: skip
    print(table([row for row in rows if row["is_record"]]))
    print(f"\n{runs} runs read in {seconds:.1f} s")
    print(f"100 steps are worth {100 * worth.mean:.5f} nats, standard error {100 * worth.sem:.5f}")
    differing = [row["number"] for row in rows if abs(row["mean"] - row["board_mean"]) > MOST_ROUNDING]
    print(f"means that differ from the board's by more than {MOST_ROUNDING}: {differing or 'none'}")


if __name__ == "__main__":
    main()
