"""The power of a comparison before it is run, by the noise of earlier experiments of its workload."""

import math
from collections.abc import Iterable

from orchestrator.analysis.candidates import design_looks, loss_of
from orchestrator.analysis.comparison import evaluation_error
from orchestrator.analysis.power import chance_shown, chance_within, least_difference, least_seeds, level_of, paired_sd
from orchestrator.design import ComparisonDesign
from orchestrator.records import ExperimentRecord, ExperimentWithRuns, RunRecord
from orchestrator.specs.preview import DesignPower

NOISE_UNKNOWN = "the noise of this workload is not known before an experiment on it"


def design_power(design: ComparisonDesign, earlier: Iterable[ExperimentWithRuns] = ()) -> DesignPower | str:
    """Return the power of the comparison, or the reason why it is unknown. `earlier`: experiments with their runs of
    its workload."""
    noise = paired_sd(_judged_losses(experiment, runs) for experiment, runs in earlier)
    if noise is None:
        return NOISE_UNKNOWN
    sd, experiments = noise
    level, error, margin = level_of(design.comparisons), evaluation_error(design.validation_tokens), design.margin
    seeds = design.replicates if design.replicates > 1 else len(design.seeds)
    sd /= math.sqrt(len(design.seeds) / seeds)  # of the means that replicates are compared by
    if looks := design_looks(design, design.comparisons):
        level = looks[seeds].level
    return DesignPower(
        paired_sd=sd,
        experiments=experiments,
        seeds=seeds,
        comparisons=design.comparisons,
        detectable_difference=least_difference(seeds, sd, level, error),
        margin=margin,
        seeds_for_difference=margin and least_seeds(lambda n: chance_shown(margin, n, sd, level, error)),
        seeds_for_margin=margin and least_seeds(lambda n: chance_within(margin, n, sd, level, error)),
        evaluation_error=error,
        loss_unit=design.loss_unit,
    )


def _judged_losses(experiment: ExperimentRecord, runs: Iterable[RunRecord]) -> list[dict[int, float]]:
    """Return the losses by seed of each candidate of an earlier experiment, at its judged setting: the one with the
    most seeds that count."""
    comparison = experiment.spec.comparison()
    seeds = {*comparison.seeds} if comparison is not None else set[int]()
    groups: dict[tuple[str, float], dict[int, float]] = {}
    for run in runs:
        if run.seed in seeds and (loss := loss_of(run)) is not None:
            groups.setdefault((run.candidate, run.lr), {})[run.seed] = loss
    best: dict[str, dict[int, float]] = {}
    for (candidate, _), losses in sorted(groups.items()):
        if len(losses) > len(best.get(candidate, {})):
            best[candidate] = losses
    return list(best.values())
