"""What a comparison can show before it is run, by the noise of earlier experiments of its workload."""

import math
from collections.abc import Iterable

from orchestrator.analysis.candidates import looks_of, loss_of
from orchestrator.analysis.comparison import evaluation_error
from orchestrator.analysis.power import chance_shown, chance_within, least_difference, least_seeds, level_of, paired_sd
from orchestrator.kinds.comparison import ComparisonSpec, TunedExperiment
from orchestrator.records import ExperimentRecord, ExperimentWithRuns, RunRecord
from orchestrator.specs.preview import DesignPower

NOISE_UNKNOWN = "no earlier experiment trained two candidates on two seeds of this workload, which would tell its noise"


def design_power(spec: ComparisonSpec, earlier: Iterable[ExperimentWithRuns] = ()) -> DesignPower | str:
    """What the comparison can show, or why nobody knows."""
    known = paired_sd(
        _judged_losses(experiment, [run for run in runs if run.spec and run.spec.workload == spec.workload])
        for experiment, runs in earlier
    )
    if known is None:
        return NOISE_UNKNOWN
    sd, experiments = known
    level, error, margin = level_of(spec.comparison_count()), evaluation_error(spec.workload), spec.equivalence()
    seeds = spec.replicates() if spec.replicates() > 1 else len(spec.seeds)
    sd /= math.sqrt(len(spec.seeds) / seeds)  # of the means that replicates are compared by
    if looks := looks_of(spec, spec.comparison_count()):
        level = looks[seeds].level
    return DesignPower(
        paired_sd=sd,
        experiments=experiments,
        seeds=seeds,
        comparisons=spec.comparison_count(),
        detectable_difference=least_difference(seeds, sd, level, error),
        margin=margin,
        seeds_for_difference=margin and least_seeds(lambda n: chance_shown(margin, n, sd, level, error)),
        seeds_for_margin=margin and least_seeds(lambda n: chance_within(margin, n, sd, level, error)),
        evaluation_error=error,
        loss_unit=spec.workload.task.loss_unit,
    )


def few_tuning_seeds(spec: ComparisonSpec) -> str | None:
    """A sentence where tuning has so few seeds beside the judging ones that its luck would rival their noise."""
    needed = round(len(spec.seeds) / 3)
    if spec.tuning is None or len(spec.tuning.seeds) >= needed:
        return None
    return (
        f"{len(spec.tuning.seeds)} tuning seeds for {len(spec.seeds)} judging ones: the luck of tuning would rival the "
        f"noise of judging. Use {needed} tuning seeds or more."
    )


def _judged_losses(experiment: ExperimentRecord, runs: Iterable[RunRecord]) -> list[dict[int, float]]:
    """Of each candidate of an earlier experiment, the losses by seed at the setting that was judged: the one with the
    most seeds that count."""
    spec = experiment.spec
    seeds = {*spec.seeds} if isinstance(spec, TunedExperiment) else set[int]()
    groups: dict[tuple[str, float], dict[int, float]] = {}
    for run in runs:
        if run.seed in seeds and (loss := loss_of(run)) is not None:
            groups.setdefault((run.candidate, run.lr), {})[run.seed] = loss
    best: dict[str, dict[int, float]] = {}
    for (candidate, _), losses in sorted(groups.items()):
        if len(losses) > len(best.get(candidate, {})):
            best[candidate] = losses
    return list(best.values())
