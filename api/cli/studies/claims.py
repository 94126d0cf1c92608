"""Claims as files at the command line: the smallest design that can decide one, chosen before anything is trained."""

from pathlib import Path

from api.client.client import Client
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.specs.preview import DesignPower
from orchestrator.studies.claim_file import (
    MOST_SEEDS,
    ClaimDesign,
    ClaimedBound,
    ClaimError,
    ClaimSpec,
    register_claim,
    registered_claim,
)
from orchestrator.studies.evidence import StudyScale
from worker.words import pluralize

FEWEST_SEEDS = 3
"""With two the interval is six times as wide as with many, and rests on one difference."""


MORE_SEEDS = 1.3
"""By which looks make up for what they cost in power, at most."""


def is_file(name: str) -> bool:
    """Whether a study is given as a file instead of by its name."""
    return name.endswith((".yaml", ".yml", ".json"))


def design_claim(client: Client, claim: ClaimSpec, scale: StudyScale, folder: Path) -> tuple[ClaimSpec, str]:
    """The claim with a design at that scale, as it is registered in `folder`, and why that one. Raises `ClaimError`."""
    registered = registered_claim(folder, claim)
    given, known = claim.scales[scale].design, registered.scales[scale].design
    if given is not None and known is not None and given != known:
        raise ClaimError(
            f"{claim.name} was registered with {pluralize(known.seeds, 'seed')} at the {scale.value} scale, before "
            "they were run; to ask again, give the claim another name and another first_seed"
        )
    design, why = given or known, "as the claim says"
    if design is None:
        design, why = smallest_design(client, claim, scale)
    claim = registered.replace_design(scale, design)
    register_claim(folder, claim)
    return claim, why


def smallest_design(client: Client, claim: ClaimSpec, scale: StudyScale) -> tuple[ClaimDesign, str]:
    """The least number of seeds that shows each claimed difference of losses with 80 %, if what is expected is so; by
    the noise that earlier experiments of the workload had. Raises `ClaimError` where no number allowed does."""
    if claim.is_counted():
        return ClaimDesign(seeds=1), "bytes of state are counted, which needs one run of each"
    if not any(each.is_of_losses() for each in claim.expect):
        return ClaimDesign(), "nothing says before how much a ratio of tokens varies"
    largest, why = FEWEST_SEEDS, ""
    for part in claim.study().plans[scale].parts:
        assert isinstance(part.spec, ComparisonSpec)
        for bound in (each for each in claim.expect if each.is_of_losses()):
            power = _power(client, part.spec.model_copy(update={"equivalence_margin": bound.gap()}))
            if isinstance(power, str):
                return ClaimDesign(), f"{power}; these seeds will tell it"
            seeds = _seeds(bound, power)
            if seeds is None or seeds > MOST_SEEDS:
                raise ClaimError(_undecidable_sentence(claim, scale, bound, power))
            if seeds >= largest:
                largest, why = seeds, _power_sentence(bound, power)
    fixed = ClaimDesign(seeds=max(largest, FEWEST_SEEDS))
    return fixed, why or "fewer are no basis for an interval"


def _seeds(bound: ClaimedBound, power: DesignPower) -> int | None:
    """The number of seeds that puts the interval within the bound (or both bounds) with a power of 80 %."""
    is_two_sided = bound.at_most is not None and bound.at_least is not None
    return power.seeds_for_margin if is_two_sided else power.seeds_for_difference


def _power(client: Client, spec: ComparisonSpec) -> DesignPower | str:
    found = client.validate(spec)
    return found.power or found.power_unknown or "nothing is known of the noise of this workload"


def _power_sentence(bound: ClaimedBound, power: DesignPower) -> str:
    return (
        f"they show with 80 % that {bound.candidate}'s difference of {bound.expected or 0:g}{power.loss_unit} is "
        f"{bound.words()}, by the noise of {pluralize(power.experiments, 'earlier experiment')} "
        f"(standard deviation {power.paired_sd:.3g}{power.loss_unit})"
    )


def _undecidable_sentence(claim: ClaimSpec, scale: StudyScale, bound: ClaimedBound, power: DesignPower) -> str:
    seeds = _seeds(bound, power)
    needed = "more than a thousand" if seeds is None else str(seeds)
    return (
        f"{claim.name} cannot be decided at the {scale.value} scale: that {bound.candidate}'s difference of "
        f"{bound.expected or 0:g}{power.loss_unit} is {bound.words()} takes {needed} seeds, and a claim has "
        f"{MOST_SEEDS} at most (standard deviation {power.paired_sd:.3g}{power.loss_unit}); claim a wider bound, "
        f"train longer, or give scales.{scale.value}.design in the file to run what may stay undecided"
    )
