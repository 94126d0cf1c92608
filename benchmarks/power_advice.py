"""Whether the seeds that `validate` advises are those that experiments need, through tuning and judging.

    OMP_NUM_THREADS=1 python -m benchmarks.power_advice --json benchmarks/results/power-advice.json

For each design: the advice for showing a difference of 0.01 nats, and for showing that there is none that large, as
`orchestrator.analysis.power` works it out were noise and width of the basins known; and the least number of seeds with
which simulated experiments (`benchmarks.verdicts`) come to these verdicts in 80 % of the cases. With `--stores` the
advice that `validate` gives, from one, three and ten simulated earlier experiments, and how often so many seeds show
the difference. With `--search`, of designs that search more than the rate (`benchmarks.searched_verdicts`): the advice
for showing a difference, by what 20 earlier searches left open, and by what each of them alone did. Minutes on one
core.
"""

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from benchmarks import searched_verdicts as searched
from benchmarks.verdicts import (
    FLAT,
    GAIN,
    LOSS,
    NAMES,
    PAIRED_SPREAD,
    STEEP,
    Runs,
    World,
    conducted,
    optimizers,
    simulate,
    specification,
)
from orchestrator.analysis.comparison import compare
from orchestrator.analysis.power import (
    MOST_SEEDS,
    POWER,
    FixedDesign,
    Opening,
    design_power,
    least_seeds,
    openings_of,
    openness,
    openness_of_search,
    openness_of_untuned,
)
from orchestrator.records import Conclusion, ExperimentWithRuns
from orchestrator.specs.preview import DesignPower
from tests.factories.comparison import experiment_record, run_record

DESIGNS = (
    World(),
    World(candidates=5),
    World(tuning_seeds=5, candidates=3),
    World(basin="steep"),
    World(basin="steep", candidates=5),
    World(tuning_seeds=0),
    World(basin="steep", tuning_seeds=0),
    World(spikes="all", spike_share=0.05),
)
FEW_AND_MANY = (5, 10, 20, 40)
"""Seeds that are tried where none are advised."""
CURVATURES = {"flat": FLAT, "steep": STEEP}
SEARCHES: tuple[tuple[searched.World, float], ...] = (
    (searched.World(axes=2, trials=8, optima="alike"), 0.012),
    (searched.World(axes=2, trials=8, optima="near"), 0.03),
    (searched.World(axes=3, trials=16, optima="near"), 0.025),
    (searched.World(axes=6, trials=24, optima="near"), 0.03),
    (searched.World(axes=3, trials=16, optima="near", sensitivities=(0.05, 1.0)), 0.05),
    (searched.World(axes=2, trials=8, optima="near", method="coordinate"), 0.025),
    (searched.World(axes=6, trials=24, optima="near", method="coordinate"), 0.035),
)
"""Designs that search more than the rate, and the difference that is to be shown."""
EARLIER = 20
"""Searches that tell what one leaves open."""
STORED = (World(), World(basin="steep"))
"""Designs whose advice is taken from simulated stores, of which each holds so many experiments:"""
EARLIER_EXPERIMENTS = (1, 3, 10)
SEEDS = (3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 30)
"""Simulated; the chance with others lies between."""


def advice(world: World) -> tuple[int | None, int | None]:
    """Seeds to show a difference, and to show that there is none."""
    spec = specification(world)
    width = CURVATURES[world.basin] / math.log(2) ** 2
    rates, comparisons = spec.candidates[0].learning_rates, spec.comparison_count()
    design = FixedDesign(
        noise_sd=PAIRED_SPREAD,
        comparisons=comparisons,
        openness=openness(PAIRED_SPREAD, spec.tuning, rates, width, spec.least_open(), comparisons)
        if spec.tuning
        else openness_of_untuned(PAIRED_SPREAD, rates, width, comparisons),
        spike_shares=(world.spike_share, world.spike_share) if world.spikes else (0.0, 0.0),
    )
    return (
        least_seeds(lambda n: design.is_shown(GAIN, n), design),
        least_seeds(lambda n: design.is_within(GAIN, n), design),
    )


def needed(
    world: World, measure: str, advised: int | None, experiments: int
) -> tuple[int | None, dict[int, float | None]]:
    """The least seeds, of those about the advice, with which a simulated share is large enough; and all shares."""
    shares = {
        seeds: simulate(replace(world, seeds=seeds), experiments).shares()[measure]
        for seeds in (range(max(advised - 2, 2), advised + 3) if advised else FEW_AND_MANY)
    }
    return next((seeds for seeds, share in shares.items() if share is not None and share >= POWER), None), shares


def openings(world: searched.World, count: int) -> list[Opening]:
    """What so many earlier searches left open."""
    random = np.random.default_rng(0)
    found = []
    for number in range(count):
        spec, records, _ = searched.conducted(world, number, 0.0, random)
        found += openings_of(experiment_record(spec, len(records), "e"), records)
    return found


def design_of_search(known: Sequence[Opening]) -> FixedDesign:
    """What earlier searches tell of the next one."""
    return FixedDesign(noise_sd=PAIRED_SPREAD, openness=openness_of_search(known))


def advice_on_search(gain: float, design: FixedDesign) -> int | None:
    """Seeds to show a difference."""
    return least_seeds(lambda n: design.is_shown(gain, n))


def needed_by_search(world: searched.World, gain: float, experiments: int) -> tuple[int | None, dict[int, float]]:
    """The least seeds with which so many simulated searches show it in 80 % of the cases; and all shares."""
    shares: dict[int, float] = {}
    for seeds in range(2, 21):
        shares[seeds] = searched.simulate(replace(world, seeds=seeds), experiments, gain, 1)["decided"]
        if shares[seeds] >= POWER:
            return seeds, shares
    return None, shares


def search_advice(experiments: int) -> Iterator[dict[str, object]]:
    """Advise and simulate each design that searches more than the rate; print."""
    for world, gain in SEARCHES:
        known = openings(world, EARLIER)
        design = design_of_search(known)
        advised = advice_on_search(gain, design)
        of_one = [advice_on_search(gain, design_of_search([each])) for each in known]
        least, shares = needed_by_search(world, gain, experiments)
        expected = {seeds: round(design.is_shown(gain, seeds), 4) for seeds in shares}
        print(
            f"{world.method}, {world.axes} axes, {world.trials} trials, {world.optima}, {world.sensitivities}, "
            f"{gain:g}: advised {advised}, by one search {of_one}, needed {least}; seeds: expected, simulated "
            f"{', '.join(f'{n}: {expected[n]:.2f} {share:.2f}' for n, share in shares.items())}",
            flush=True,
        )
        yield asdict(world) | {
            "gain": gain, "advised": advised, "of_one": of_one, "needed": least, "expected": expected, "shares": shares,
        }  # fmt: skip


def earlier_experiments(world: World, count: int, random: np.random.Generator) -> list[ExperimentWithRuns]:
    """So many ended comparisons of equal candidates, each tuned and judged on the world's seeds."""
    spec = specification(world)
    found: list[ExperimentWithRuns] = []
    for number in range(count):
        template = run_record(spec.first_runs()[0], 0, LOSS, f"e{number}")
        truths = optimizers(world, [0.0] * world.candidates, random)
        records = conducted(spec, truths, Runs(world, random), template)
        found.append((experiment_record(spec, len(records), f"e{number}"), records))
    return found


def chance_of_showing(world: World, experiments: int) -> float:
    """The share of so many experiments that call the second candidate better, which is by `GAIN`."""
    spec, random, shown = specification(world), np.random.default_rng(world.seeds), 0
    template = run_record(spec.first_runs()[0], 0, LOSS, "e")
    for _ in range(experiments):
        truths = optimizers(world, [0.0, -GAIN, *[0.0] * (world.candidates - 2)], random)
        records = conducted(spec, truths, Runs(world, random), template)
        rows = compare(experiment_record(spec, len(records), "e"), records).rows
        shown += next(row for row in rows if row.candidate == NAMES[1]).conclusion is Conclusion.BETTER
    return shown / experiments


def advice_of_stores(stores: int, experiments: int) -> Iterator[dict[str, object]]:
    """What `validate` advises from simulated stores, and how often that shows the difference; print."""
    for world in STORED:
        chances = [chance_of_showing(replace(world, seeds=seeds), experiments) for seeds in SEEDS]
        needed = next(seeds for seeds, chance in zip(SEEDS, chances, strict=True) if chance >= POWER)
        for count in EARLIER_EXPERIMENTS:
            advised: list[int] = []
            ranges: list[bool] = []
            for number in range(stores):
                earlier = earlier_experiments(world, count, np.random.default_rng([number, count]))
                told = design_power(specification(world), earlier)
                assert isinstance(told, DesignPower)
                advised.append(told.seeds_for_difference or MOST_SEEDS)
                if told.least_noise is not None and told.most_noise is not None:
                    low, high = (of.seeds_for_difference or MOST_SEEDS for of in (told.least_noise, told.most_noise))
                    ranges.append(low <= needed <= high)
            shown = np.interp(advised, SEEDS, chances)
            low, middle, high = np.quantile(advised, (0.1, 0.5, 0.9)).tolist()
            print(
                f"{world.name()}, {world.candidates} candidates, {count} earlier: advised {middle:g} ({low:g} to "
                f"{high:g}), needed {needed}; shown in {shown.mean():.0%} ({np.quantile(shown, 0.1):.0%} to "
                f"{np.quantile(shown, 0.9):.0%}); {sum(ranges)} of {len(ranges)} ranges hold {needed}",
                flush=True,
            )
            yield asdict(world) | {
                "earlier": count, "advised": sorted(advised), "needed": needed,
                "shown": [round(float(each), 4) for each in sorted(shown)],
                "ranges": len(ranges), "ranges_that_hold": sum(ranges),
                "chances": dict(zip(SEEDS, chances, strict=True)),
            }  # fmt: skip


def main() -> None:
    """Advise, simulate, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=400, help="of two candidates; of more fewer")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    parser.add_argument("--search", action="store_true", help="only the designs that search more than the rate")
    parser.add_argument("--stores", type=int, help="only what validate advises, from so many stores of each kind")
    given = parser.parse_args()
    found: list[dict[str, object]] = [*search_advice(given.experiments)] if given.search else []
    if given.stores:
        found += advice_of_stores(given.stores, given.experiments)
    for world in () if given.search or given.stores else DESIGNS:
        for measure, advised in zip(("power", "as_good"), advice(world), strict=True):
            # Half as many experiments tell of power, each of one candidate; of equality each candidate tells.
            experiments = given.experiments * (2 if measure == "power" else 1) * 2 // world.candidates
            least, shares = needed(world, measure, advised, max(experiments, 200 if measure == "power" else 100))
            found.append(asdict(world) | {"measure": measure, "advised": advised, "needed": least, "shares": shares})
            print(
                f"{world.name()}, {world.candidates} candidates, {world.tuning_seeds} tuning seeds, {measure}: "
                f"advised {advised}, needed {least} ({', '.join(f'{n}: {share}' for n, share in shares.items())})",
                flush=True,
            )
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
