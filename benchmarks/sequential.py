"""Verdicts of comparisons that add seeds while one is open: how often they are wrong, and how many runs they save.

    OMP_NUM_THREADS=1 python -m benchmarks.sequential --json benchmarks/results/sequential.json

The worlds are those of `benchmarks/verdicts.py`: optimizers whose true losses are known, tuned on seeds of their own
and judged on others; or with one rate each, which is the best one. Each experiment is made twice with the same losses:
with all seeds at once, and sequentially, where `added_runs` plans what follows after each look as the store does.
Printed, for both, of experiments with equal candidates (`/0`), and with such that are better by 0.01 and 0.02 nats
(`/1`, `/2`): the share in which any of the equal ones was called better or worse, the intervals that hold the
true difference, the judged runs and all runs of an experiment, the share of equal ones called as good within 0.01
nats or of better ones that were found, and why candidates got no more seeds.

`--fixed 5 7` tries smaller numbers of seeds at once beside: how many it takes to find as much as the sequential design.

At the end the stored studies are gone through anew: their judged losses, seed by seed, at one rate each.
"""

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.result_file import write_result
from benchmarks.verdicts import GAIN, NAMES, Optimizer, Runs, World, ended_run, optimizers, record, specification
from orchestrator.analysis.comparison import added_runs, compare
from orchestrator.kinds.comparison import ComparisonSpec, Sequential
from orchestrator.kinds.tuning import TuningRun
from orchestrator.records import CandidateRow, RunRecord
from orchestrator.studies.evidence import read_rows
from tests.factories.comparison import experiment_record, run_record

PUBLISHED = Path(__file__).parents[1] / "orchestrator/studies/published"


class RememberedRuns:
    """Losses of one experiment's runs, the same whenever they are asked for."""

    def __init__(self, world: World, random: np.random.Generator) -> None:
        self._runs = Runs(world, random)
        self._known: dict[tuple[int, float, int], float | None] = {}

    def loss(self, place: int, optimizer: Optimizer, rate: float, seed: int) -> float | None:
        """How a run of the candidate at that place ends; None where it diverges."""
        key = place, rate, seed
        if key not in self._known:
            self._known[key] = self._runs.loss(optimizer, rate, seed)
        return self._known[key]


@dataclass(kw_only=True)
class Tally:
    """What became of one design's experiments in one world."""

    experiments: int = 0
    false: int = 0
    right: dict[str, list[int]] = field(default_factory=dict)
    """Kind of candidate → found, of so many."""
    judged: int = 0
    runs: int = 0
    experiments_of_all: int = 0
    held: list[int] = field(default_factory=lambda: [0, 0])
    """Intervals that hold the true difference, of so many."""
    statuses: dict[str, int] = field(default_factory=dict)

    def shares(self) -> dict[str, float | None]:
        """The figures of the table."""
        found: dict[str, float | None] = {
            "false_verdicts": round(self.false / max(self.experiments, 1), 4),
            "coverage": round(self.held[0] / max(self.held[1], 1), 4),
            "judged_runs": round(self.judged / max(self.experiments_of_all, 1), 2),
            "runs": round(self.runs / max(self.experiments_of_all, 1), 2),
        }
        found |= {kind: round(count / of, 4) for kind, (count, of) in self.right.items()}
        return found | {f"stopped_{status}": float(count) for status, count in self.statuses.items()}


def conducted(
    spec: ComparisonSpec, truths: Sequence[Optimizer], runs: RememberedRuns, template: RunRecord
) -> list[RunRecord]:
    """All runs of one experiment, planned as the store plans them."""
    records: list[RunRecord] = []

    def train(place: int, rate: float, seed: int) -> TuningRun:
        trial = ended_run(rate, seed, runs.loss(place, truths[place], rate, seed))
        records.append(record(template, len(records), NAMES[place], trial))
        return trial

    for place, candidate in enumerate(spec.candidates):
        trials: list[TuningRun] = []
        first = spec.tuning.seeds if spec.tuning else spec.first_seeds()
        pending = tuple((rate, seed) for seed in first for rate in candidate.learning_rates)
        while pending:
            trials += [train(place, rate, seed) for rate, seed in pending]
            seeds = spec.first_seeds()
            pending = spec.tuning.next_pairs(candidate.learning_rates, seeds, trials) if spec.tuning else ()
    while added := added_runs(experiment_record(spec, len(records)), records):
        for run in added:
            train(NAMES.index(run.candidate), run.spec.optimizer.lr, run.spec.seed)
    return records


def count(tally: Tally, spec: ComparisonSpec, records: Sequence[RunRecord], shifts: Sequence[float]) -> None:
    """Add one experiment to the tally."""
    rows = {row.candidate: row for row in compare(experiment_record(spec, len(records)), records).rows}
    others: list[tuple[CandidateRow, float]] = [
        (rows[name], shift) for name, shift in zip(NAMES, shifts, strict=False)
    ][1:]
    tally.experiments_of_all += 1
    tally.runs += len(records)
    tally.judged += sum(run.seed in spec.seeds for run in records)
    equal = [row.conclusion.value for row, shift in others if not shift]
    if len(equal) == len(others):
        tally.experiments += 1
        tally.false += any(word in ("better", "worse") for word in equal)
    for row, shift in others:
        kind, right = ("as_good", "as_good") if not shift else (f"power_{-shift / GAIN:g}", "better")
        hits = tally.right.setdefault(kind, [0, 0])
        hits[0] += row.conclusion.value == right
        hits[1] += 1
        low, high = (-math.inf, math.inf) if row.difference is None else row.difference.bounds()
        if (low, high) != (-math.inf, math.inf):
            tally.held[0] += low <= shift <= high
            tally.held[1] += 1
        if row.seeds_used is not None:
            status = row.seeds_used.status.value
            tally.statuses[status] = tally.statuses.get(status, 0) + 1


def simulate(world: World, experiments: int, fixed: Sequence[int], seed: int = 0) -> dict[str, Tally]:
    """So many experiments each of equal candidates, and of candidates that are better by 0.01 and 0.02 nats; a tally
    for each design: sequential, all seeds at once, and the smaller numbers of seeds at once in `fixed`."""
    whole = specification(world)
    designs = {"sequential": whole.model_copy(update={"sequential": Sequential()}), "fixed": whole}
    designs |= {f"fixed-{n}": whole.model_copy(update={"seeds": whole.seeds[:n]}) for n in fixed if n < world.seeds}
    template = run_record(whole.first_runs()[0], 0, 1.0)
    tallies = {f"{name}/{gain:g}": Tally() for name in designs for gain in (0, 1, 2)}
    for gain in (0, 1, 2):
        shifts = [0.0, *[-gain * GAIN] * (world.candidates - 1)]
        random = np.random.default_rng([seed, gain, *world.name().encode(), world.candidates, world.seeds])
        for _ in range(experiments):
            truths, runs = optimizers(world, shifts, random), RememberedRuns(world, random)
            for name, spec in designs.items():
                count(tallies[f"{name}/{gain:g}"], spec, conducted(spec, truths, runs, template), shifts)
    return tallies


def replay() -> Iterator[dict[str, object]]:
    """The parts of the stored studies whose candidates all have three judged seeds and more: at once, and sequentially
    with the first look at three of five seeds, or at two of three."""
    for file in sorted(PUBLISHED.glob("*.json")):
        for part in json.loads(file.read_text()).get("parts", ()):
            rates = {each["candidate"]: each.get("best_lr") for each in part["candidates"]}
            losses: dict[str, dict[int, float]] = {}
            runs = read_rows(part["runs"])
            assert isinstance(runs, list)
            for run in runs:
                if run["seed"] and run.get("loss") is not None and rates.get(run["candidate"]) == run["lr"]:
                    losses.setdefault(run["candidate"], {})[run["seed"]] = run["loss"]
            seeds = sorted(set.intersection(*map(set, losses.values()))) if losses else []
            if len(losses) < 2 or losses.keys() != rates.keys() or len(seeds) < 3:
                continue
            baseline = next(each["candidate"] for each in part["candidates"] if each.get("is_baseline"))
            names = [baseline, *(name for name in losses if name != baseline)]
            whole = specification(World(rates=1, tuning_seeds=0, candidates=2))
            whole = whole.model_copy(
                update={
                    "candidates": tuple(whole.candidates[0].model_copy(update={"label": name}) for name in names),
                    "seeds": tuple(seeds),
                }
            )
            first = 3 if len(seeds) > 3 else 2
            looked_at = whole.model_copy(update={"sequential": Sequential(first_seeds=first)})
            found: dict[str, object] = {"study": file.stem, "part": part["name"], "seeds": len(seeds)}
            for design, spec in (("fixed", whole), ("sequential", looked_at)):
                records: list[RunRecord] = []
                planned = spec.first_runs()
                while planned:
                    begun = len(records)
                    records += [
                        run_record(each, begun + place, losses[each.candidate][each.spec.seed])
                        for place, each in enumerate(planned)
                    ]
                    planned = added_runs(experiment_record(spec, len(records)), records)
                rows = compare(experiment_record(spec, len(records)), records).rows
                words = {row.candidate: row.conclusion.value for row in rows if not row.is_baseline}
                found |= {f"{design}_runs": len(records), f"{design}_conclusions": words}
            yield found


def worlds() -> Iterator[World]:
    """What the table has."""
    usual = World(rates=1, tuning_seeds=0, basin="flat")
    for candidates in (2, 4, 10):
        for seeds in (5, 7, 10):
            yield replace(usual, candidates=candidates, seeds=seeds)
    for noise in ("t3", "log-normal"):
        for seeds in (5, 10):
            yield replace(usual, noise=noise, seeds=seeds)
    tuned = World(seeds=10)
    for basin in ("flat", "steep", "mixed"):
        yield replace(tuned, basin=basin)
    yield replace(tuned, seeds=5)
    yield replace(tuned, basin="mixed", candidates=4)
    yield replace(tuned, noise="t3")
    for share in (0.15, 0.3):
        yield replace(tuned, spikes="all", spike_share=share)
    yield replace(tuned, spikes="one")


def main() -> None:
    """Simulate, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=200, help="of each kind in each world")
    parser.add_argument("--fixed", type=int, nargs="*", default=[], help="smaller numbers of seeds at once")
    parser.add_argument("--candidates", type=int, help="only the worlds with so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the result here")
    given = parser.parse_args()
    begun, found = perf_counter(), []
    for world in worlds():
        if given.candidates not in (None, world.candidates):
            continue
        experiments = max(given.experiments * 2 // world.candidates, 20)
        tallies = simulate(world, experiments, given.fixed, given.seed)
        phase = f"{world.tuning_seeds} tuning seeds × {world.rates} rates" if world.tuning_seeds else "one rate"
        print(f"{world.name()}, {phase}, {world.candidates} candidates, {world.seeds} seeds", flush=True)
        for name, tally in tallies.items():
            if not tally.experiments_of_all:
                continue
            shares = tally.shares()
            found.append(asdict(world) | {"design": name, "experiments": tally.experiments_of_all} | shares)
            print(f"    {name:14}" + "  ".join(f"{key} {value:g}" for key, value in shares.items()), flush=True)
    replayed = list(replay())
    for part in replayed:
        print(f"{part['study']}, {part['part']}: {part['fixed_runs']} → {part['sequential_runs']} runs")
        print(f"    {part['fixed_conclusions']} → {part['sequential_conclusions']}")
    print(f"{perf_counter() - begun:.0f} s")
    if given.json:
        write_result(given.json, "sequential", {"worlds": found, "studies": replayed})


if __name__ == "__main__":
    main()
