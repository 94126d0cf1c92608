"""The smallest design that can decide a claim: from the noise of earlier runs, and before anything is trained."""

import random
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from api.cli import main
from api.cli.studies.claims import design_claim, smallest_design
from api.client.client import Client
from orchestrator.analysis.design import design_power
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.records import ExperimentWithRuns
from orchestrator.specs.preview import DesignPower, Preview
from orchestrator.studies.claim_file import ClaimDesign, ClaimError, ClaimSpec, claim_path, read_claim
from orchestrator.studies.evidence import StudyScale
from tests.factories.comparison import records

TINY = StudyScale.TINY
TEXT = """
name: lion-of-ours
title: Lion
question: Does Lion end as low as SGD?
claim: It ends no higher.
source: nobody
candidates:
  - {optimizer: sgd, learning_rates: [0.01]}
  - {optimizer: asgd, learning_rates: [0.01]}
baseline: sgd
expect:
  - {candidate: asgd, quantity: loss_difference, at_most: 0.0, expected: -0.1}
scales:
  tiny:
    workload:
      task: {kind: regression, dimension: 20}
      budget: {steps: 20}
"""


class Known:
    """A service that knows the noise of these runs."""

    def __init__(self, *earlier: ExperimentWithRuns) -> None:
        self.earlier, self.asked = earlier, 0

    def validate(self, spec: ComparisonSpec) -> Preview:
        """The power alone, by the product's own analysis."""
        self.asked += 1
        power = design_power(spec, self.earlier)
        known = power if isinstance(power, DesignPower) else None
        return Preview(power=known, power_unknown=power if isinstance(power, str) else None)


def claimed(tmp_path: Path, old: str = "lion-of-ours", new: str = "lion-of-ours") -> ClaimSpec:
    path = tmp_path / "claim.yaml"
    assert old in TEXT
    path.write_text(TEXT.replace(old, new))
    return read_claim(path)


def known(claim: ClaimSpec, spread: float) -> Client:
    """One earlier experiment of the workload, with paired differences that vary by so much."""
    chance = random.Random(1)
    spec = claim.replace_design(TINY, ClaimDesign(seeds=30)).study().plans[TINY].parts[0].spec
    assert isinstance(spec, ComparisonSpec)
    at_once = spec.model_copy(update={"tuning": None})
    return cast(Client, Known(records(at_once, lambda candidate, lr, seed: 2.5 + chance.gauss(0, spread / 2**0.5))))


def test_less_noise_needs_fewer_seeds(tmp_path: Path) -> None:
    claim = claimed(tmp_path)
    few, why = smallest_design(known(claim, 0.02), claim, TINY)
    assert few == ClaimDesign(seeds=3)
    more, why = smallest_design(known(claim, 0.06), claim, TINY)
    assert more.seeds > few.seeds
    assert "asgd's difference of -0.1 is at most 0, by the noise of 1 earlier experiment" in why
    assert more.sequential is None
    margin, _ = smallest_design(
        known(claim, 0.06), claimed(tmp_path, "at_most: 0.0, expected: -0.1", "at_most: 0.1"), TINY
    )
    assert margin.seeds > few.seeds


def test_a_claim_that_no_number_of_seeds_decides_is_refused_before_it_is_run(tmp_path: Path) -> None:
    for expected, needed in (("-0.0035", r"\d+"), ("-0.0002", "more than a thousand")):
        claim = claimed(tmp_path, "-0.1", expected)
        with pytest.raises(ClaimError, match=f"takes {needed} seeds, and a claim has 64 at most"):
            smallest_design(known(claim, 0.012), claim, TINY)


def test_without_any_noise_known_five_seeds_tell_it(tmp_path: Path) -> None:
    design, why = smallest_design(cast(Client, Known()), claimed(tmp_path), TINY)
    assert design == ClaimDesign() and "these seeds will tell it" in why
    bytes_alone = claimed(tmp_path, "loss_difference, at_most: 0.0, expected: -0.1", "state_share, at_most: 9.0")
    assert smallest_design(cast(Any, None), bytes_alone, TINY)[0] == ClaimDesign(seeds=1)


def test_a_design_is_chosen_once(tmp_path: Path) -> None:
    """What was chosen before the first run stays, whatever is known of the noise later."""
    claim, folder = claimed(tmp_path), tmp_path / "studies"
    first, _ = design_claim(known(claim, 0.02), claim, TINY, folder)
    again, _ = design_claim(known(claim, 0.12), claim, TINY, folder)
    assert first == again == read_claim(claim_path(folder, claim.name))
    with pytest.raises(ClaimError, match="was registered with 3 seeds"):
        design_claim(known(claim, 0.02), claim.replace_design(TINY, ClaimDesign(seeds=30)), TINY, folder)
    fresh = claimed(tmp_path, "source: nobody", "source: nobody\nfirst_seed: 50")
    assert fresh.study().plans[TINY].parts[0].spec.seeds == (50, 51, 52, 53, 54)
    with pytest.raises(ClaimError, match="another claim of that name"):
        design_claim(known(claim, 0.02), claimed(tmp_path, "expected: -0.1", "expected: -0.2"), TINY, folder)


def test_a_claims_file_is_shown_and_one_with_faults_is_refused(tmp_path: Path) -> None:
    def cli(*words: object) -> Any:
        return CliRunner().invoke(main, ["study", *map(str, words), "--data", str(tmp_path)], catch_exceptions=False)

    claimed(tmp_path)
    assert "Claim (nobody): It ends no higher." in cli("show", tmp_path / "claim.yaml").stdout
    claimed(tmp_path, "lion-of-ours", "solver")
    refused = cli("show", tmp_path / "claim.yaml")
    assert refused.exit_code == 2 and "comes with this version is called solver" in refused.stderr
    refused = cli("run", tmp_path / "nowhere.yaml")
    assert refused.exit_code == 2 and "cannot be read" in refused.stderr


def test_two_bounds_need_more_seeds_than_one(tmp_path: Path) -> None:
    """With the seeds that keep an interval below 0.06 with 80 %, it lies between -0.06 and 0.06 less often."""
    old = "at_most: 0.0, expected: -0.1"
    one, two = (claimed(tmp_path, old, new) for new in ("at_most: 0.06", "at_least: -0.06, at_most: 0.06"))
    of_one, _ = smallest_design(known(one, 0.12), one, TINY)
    of_two, _ = smallest_design(known(two, 0.12), two, TINY)
    assert of_one.seeds < of_two.seeds
