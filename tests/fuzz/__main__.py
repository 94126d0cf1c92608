"""`python -m tests.fuzz`: fuzz a service at large, print the report, end with 1 where a fault was found."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fuzz.fuzzing import PHASES, SEED, fuzzed
from tests.fuzz.house import furnished


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--phases", default=",".join(PHASES))
    parser.add_argument("--examples", type=int, default=100, help="generated requests for each operation")
    parser.add_argument("--seconds", type=float, help="the whole ends after so long; it ends by itself without")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--only", help="a pattern of paths")
    parser.add_argument("--without", action="append", default=[], help="an operation without coverage; repeat it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, furnished(Path(folder)) as house:
        report = fuzzed(
            house,
            phases=options.phases.split(","),
            examples=options.examples,
            seed=options.seed,
            seconds=options.seconds,
            only=options.only,
            without=options.without,
            tell=lambda line: print(line, flush=True),
        )
    print("\n".join(report.lines()))
    return 1 if report.faults or report.broken else 0


if __name__ == "__main__":
    sys.exit(main())
