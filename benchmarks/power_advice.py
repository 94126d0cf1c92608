"""Whether the seeds that `validate` advises are those that experiments need, through tuning and judging.

    OMP_NUM_THREADS=1 python -m benchmarks.power_advice --json benchmarks/results/power-advice.json

For each design: the advice for showing a difference of 0.01 nats, and for showing that there is none that large, as
`orchestrator.analysis.power` gives it where noise and width of the basins are known; and the least number of seeds with
which simulated experiments (`benchmarks.verdicts`) come to these verdicts in 80 % of the cases. Minutes on one core.
"""

import argparse
import json
import math
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.verdicts import FLAT, GAIN, PAIRED_SPREAD, STEEP, World, simulate, specification
from orchestrator.analysis.power import POWER, Design, least_seeds, openness

DESIGNS = (
    World(),
    World(candidates=5),
    World(tuning_seeds=5, candidates=3),
    World(basin="steep"),
    World(basin="steep", candidates=5),
)
CURVATURES = {"flat": FLAT, "steep": STEEP}


def advice(world: World) -> tuple[int | None, int | None]:
    """Seeds to show a difference, and to show that there is none."""
    rates = specification(world).candidates[0].learning_rates
    width = CURVATURES[world.basin] / math.log(2) ** 2
    design = Design(
        noise_sd=PAIRED_SPREAD,
        comparisons=world.candidates - 1,
        openness=openness(PAIRED_SPREAD, world.tuning_seeds, rates, width),
    )
    return least_seeds(lambda n: design.is_shown(GAIN, n)), least_seeds(lambda n: design.is_within(GAIN, n))


def needed(world: World, measure: str, advised: int, experiments: int) -> tuple[int | None, dict[int, float | None]]:
    """The least seeds, of those about the advice, with which a simulated share is large enough; and all shares."""
    shares = {
        seeds: simulate(replace(world, seeds=seeds), experiments).shares()[measure]
        for seeds in range(max(advised - 2, 2), advised + 3)
    }
    return next((seeds for seeds, share in shares.items() if share is not None and share >= POWER), None), shares


def main() -> None:
    """Advise, simulate, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=400, help="of two candidates; of more fewer")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    given = parser.parse_args()
    found = []
    for world in DESIGNS:
        for measure, advised in zip(("power", "as_good"), advice(world), strict=True):
            assert advised is not None
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
