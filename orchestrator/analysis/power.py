"""What a design can show before it is run, from the noise that earlier experiments of its workload had.

A verdict is read from an interval (`statistics.py`): n paired seeds at Bonferroni's level, the error of the validation
text, and what tuning leaves open of either learning rate. The first is a t-test's, so that the spread that the seeds
happen to show is averaged over its chi-square; the last is drawn: grids with the workload's noise, in basins as wide as
those of earlier experiments, go through the product's own tuning. What a search of more than the rate leaves open is
taken from earlier searches of the workload, over the same axes by the same method.

    runs of earlier comparisons of the workload ─► noise, width of the basins; of searches, what their intervals held
        ─► with n seeds: the least difference that is shown with 80 %
        ─► the least n that shows a difference as large as the margin, and that shows one of none to be within it
"""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import pairwise
from statistics import median

import numpy as np
from numpy.typing import NDArray

from orchestrator.analysis.candidates import summaries
from orchestrator.analysis.comparison import compare, comparison_spec, evaluation_error
from orchestrator.analysis.sequential import FUTILE, Array, chances_of_verdict, looks
from orchestrator.analysis.stability import spikes
from orchestrator.analysis.statistics import chi_square_quantile, normal_quantile, t_quantile
from orchestrator.kinds import basin
from orchestrator.kinds.comparison import ComparisonSpec, GridExperiment, Sequential
from orchestrator.kinds.registry import ExperimentSpec
from orchestrator.kinds.tuning import FIRST_FACTOR, Tuning, TuningRun, grid_of, tried_rates
from orchestrator.records import SIGNIFICANCE, Conclusion, ExperimentRecord, ExperimentWithRuns, RunRecord
from orchestrator.specs.preview import DesignPower, PowerAtNoise, PowerLimit
from worker.records.result import Verdict
from worker.spec.run import Workload

POWER = 0.8
"""The usual share of experiments in which a true difference should be shown."""
UNSURE = 1.5
"""Noise that may be more than so many times as large is hardly known: what its bounds would give is worked out, too."""
ONE_BY_ONE = 24
"""Up to so many seeds, each number is tried by itself."""
MOST_SEEDS = 1000
"""More seeds than that are no advice."""
GRIDS = 80
"""Drawn: more take longer, and tell power no better than anybody needs."""
LEFT_OUT = 400
"""Pairs with a spike that are counted at most."""
LEAST_SHARE = 1e-6
"""Rarer numbers of spikes do not matter."""
OTHERS = 4
"""Drawn grids that each one is held against."""
SEEDS_DRAWN = (2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 40)
"""Numbers of seeds that untuned grids are drawn with."""
STABLE = 1000
"""A loss of so many times its noise: none of it is a spike, which is at least 1 % of the loss."""
DRAWS = 80
"""Differences that `openness_of_search` draws at least."""
EXPERIMENTS = 1000
"""Drawn of a sequential design: the standard error of a power of 80 % is 1.3 points."""
LEAST_EXPERIMENTS = 300
"""Drawn of one with very many looks: 2.3 %."""
ANY_SEEDS = 10**6
"""As many as one likes."""
LARGEST = 1e9
"""A difference of so many times its noise is shown wherever any is."""
NODES = 160
"""Of the Gauss-Legendre rule over the quantiles of a spread: power to a part in a million."""

Shares = tuple[float, float]
Openness = Callable[[int], tuple[Array, Array, Array]]


def nothing_open(seeds: int) -> tuple[Array, Array, Array]:
    """The openness (`FixedDesign`) of a comparison that tunes nothing, with any number of seeds."""
    return np.zeros(1), np.zeros(1), np.zeros(1)


@dataclass(frozen=True, kw_only=True)
class Noise:
    """How much the paired differences of a workload's seeds vary."""

    paired_sd: float
    """Standard deviation of the difference of two candidates with the same seed, in the unit of the loss: as often too
    large as too small. The root of a mean square is too small more often (59 % with 4 degrees of freedom), and the
    seeds that it advises are too few."""
    degrees: int
    """Degrees of freedom of the estimate, which is itself uncertain by a factor of about 1 ± 1 / sqrt(2 · degrees)."""
    experiments: int

    def factor(self) -> float:
        """The truth is larger than so many times the estimate in 2.5 %."""
        return self._factor(SIGNIFICANCE / 2)

    def bounds(self) -> tuple[float, float]:
        """The 95 % interval of the truth, in the unit of the loss."""
        return self.paired_sd * self._factor(1 - SIGNIFICANCE / 2), self.paired_sd * self.factor()

    def _factor(self, share: float) -> float:
        return math.sqrt(chi_square_quantile(self.degrees, 0.5) / chi_square_quantile(self.degrees, share))


@dataclass(frozen=True, kw_only=True)
class EarlierCandidate:
    """What a candidate of an earlier experiment tells of noise and stability."""

    name: str
    losses: dict[int, float]
    """The final losses of its stable judged runs, by seed."""
    spiked: int = 0
    diverged: int = 0

    def runs(self) -> int:
        """Judged ones that ended with a verdict."""
        return len(self.losses) + self.spiked + self.diverged


@dataclass(frozen=True, kw_only=True)
class FixedDesign:
    """What decides how wide the interval of a difference is, but for the number of seeds."""

    noise_sd: float
    """Standard deviation of the difference of two candidates with the same seed."""
    comparisons: int = 1
    evaluation_error: float = 0.0
    openness: Openness = nothing_open
    """By the number of seeds that judge, of drawn pairs of grids: the regrets of candidate and baseline, infinite where
    a best rate stayed at an edge, and by how much the candidate's loss is higher at the rates that were found than at
    the best ones."""

    spike_shares: Shares = (0.0, 0.0)
    """Of the candidate's runs and of the baseline's: a pair with one is left out, and there is no verdict if more of
    them are the candidate's."""
    diverging_shares: Shares = (0.0, 0.0)
    """Of these runs: none may diverge."""

    def is_shown(self, difference: float, seeds: int) -> float:
        """The probability that a candidate that is better by so much is called better."""
        return self._chance(seeds, lambda half, of_candidate, of_baseline: (-np.inf, -half - of_baseline), -difference)

    def is_within(self, margin: float, seeds: int) -> float:
        """The probability that one that is equal is called as good."""
        return self._chance(
            seeds, lambda half, of_candidate, of_baseline: (half + of_candidate - margin, margin - half - of_baseline)
        )

    def without_instability(self) -> "FixedDesign":
        """The same, of runs that are all stable."""
        return replace(self, spike_shares=(0.0, 0.0), diverging_shares=(0.0, 0.0))

    def _chance(
        self,
        seeds: int,
        bounds: Callable[[Array, Array, Array], tuple[Array | float, Array | float]],
        mean: float = 0.0,
    ) -> float:
        """That the mean of so many differences lies between bounds, which the half width and the regrets give, and that
        runs are stable enough for a verdict."""
        found = 0.0
        for left_out, share in enumerate(self._shares_left_out(seeds).tolist()):
            if share > LEAST_SHARE:
                found += share * self._chance_of_stable(seeds - left_out, bounds, mean)
        return found

    def chance_of_stability(self, seeds: int) -> float:
        """The probability that runs are stable enough for a verdict, whatever it is."""
        return float(self._shares_left_out(seeds).sum())

    def _shares_left_out(self, seeds: int) -> Array:
        """How likely so many pairs (the place in the array) are left out for a spike, and there is a verdict: no run
        diverged, no more of the spikes were the candidate's, and half of the pairs and more had none."""
        if not any((*self.spike_shares, *self.diverging_shares)):
            return np.ones(1)
        from scipy.special import bdtr  # as below

        counts = np.arange(min((seeds - 1) // 2, LEFT_OUT) + 1)
        (mine, theirs), (here, there) = self.spike_shares, self.diverging_shares
        shares = np.diff(bdtr(counts, seeds, 1 - (1 - mine) * (1 - theirs)), prepend=0.0)
        own = bdtr(counts // 2, counts, mine / (mine + theirs)) if mine else np.ones(len(counts))
        return np.asarray(shares * own * ((1 - here) * (1 - there)) ** seeds)

    def _chance_of_stable(
        self,
        seeds: int,
        bounds: Callable[[Array, Array, Array], tuple[Array | float, Array | float]],
        mean: float,
    ) -> float:
        if seeds < 2:
            return 0.0
        from scipy.special import chdtri, ndtr  # a fifth of a second that only this asks for

        level, degrees = SIGNIFICANCE / self.comparisons / 2, seeds - 1
        nodes, weights = _gauss_legendre()
        spread = self.noise_sd * np.sqrt(chdtri(degrees, (1 - nodes) / 2) / degrees)[:, None]
        half = np.hypot(
            t_quantile(degrees, level) * spread / math.sqrt(seeds), normal_quantile(level) * self.evaluation_error
        )
        of_candidate, of_baseline, shift = self.openness(seeds)
        low, high = bounds(half, of_candidate, of_baseline)
        error = math.hypot(self.noise_sd / math.sqrt(seeds), self.evaluation_error)
        inside = ndtr((high - mean - shift) / error) - ndtr((low - mean - shift) / error)
        return float(weights @ np.maximum(inside, 0.0).mean(axis=1)) / 2


@cache
def _gauss_legendre() -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(NODES)


SPREAD_OF_LUCK = 0.3
"""The standard deviation of the difference that so many draws find, as a share of their luck (`luck_of_draws`);
`benchmarks/power_advice.py --search` simulates what advice that gives."""
NOISE_UNKNOWN = "no earlier experiment trained two candidates on two seeds of this workload, which would tell its noise"


def design_power(spec: ComparisonSpec, earlier: Iterable[ExperimentWithRuns] = ()) -> DesignPower | str:
    """What the comparison can show, by the noise of earlier experiments' runs that trained its workload, and by what
    searches like its own left open; or why nobody knows: it was never trained so. Of searches all runs are needed."""
    earlier = tuple(earlier)
    known = known_losses(spec.workload, earlier)
    found = noise([each.losses for each in of.candidates] for of in known)
    if found is None or found.paired_sd == 0:
        return NOISE_UNKNOWN
    compared = [of.candidates for of in known]
    spiking, diverging, unstable = _unstable_shares(compared, spec.baseline_name())
    width = curvature(run for of in known for run in of.runs)
    alike = [each for each in earlier if is_like(spec, each[0].spec)]
    openings_by_search = [openings_of(*each) for each in alike if each[0].counts.done()]
    openings = [opening for each in openings_by_search for opening in each]
    telling = sum(map(bool, openings_by_search))

    design = FixedDesign(
        noise_sd=found.paired_sd,
        comparisons=spec.comparison_count(),
        evaluation_error=evaluation_error(spec.workload),
        openness=_openness_of(spec, found.paired_sd, width, openings),
        spike_shares=spiking,
        diverging_shares=diverging,
    )
    margin = spec.equivalence()
    shown = _power_at(design, spec)
    limit = PowerLimit.SEEDS
    if margin is not None and None in (shown.seeds_for_margin, shown.seeds_for_difference):
        limit = limit_of(
            design, lambda of, n: of.is_shown(margin, n) if shown.seeds_for_margin else of.is_within(margin, n)
        )
    if (
        shown.detectable_difference is None
        and detectable_difference(design.without_instability(), len(spec.seeds)) is not None
    ):
        limit = PowerLimit.INSTABILITY
    bounds = [
        _power_at(_design_with_noise(design, each, spec), spec) for each in found.bounds() if found.factor() > UNSURE
    ]
    looked_at = _sequential_design(design, spec)
    left_open = [regret for regret in _regrets_of_kept_rates(spec).values() if regret is not None]
    if openings:
        left_open = [median(max(each.candidate, each.baseline) for each in openings)]
    return DesignPower(
        paired_sd=found.paired_sd,
        detectable_difference=shown.detectable_difference,
        seeds_for_margin=shown.seeds_for_margin,
        seeds_for_difference=shown.seeds_for_difference,
        seeds=len(spec.seeds),
        comparisons=design.comparisons,
        experiments=found.experiments,
        noise_factor=found.factor(),
        least_noise=bounds[0] if bounds else None,
        most_noise=bounds[1] if bounds else None,
        unfinished=not all(of.judged for of in known),
        unstable_share=unstable,
        expected_runs=None if looked_at is None else round(looked_at.expected_runs(len(spec.candidates))),
        most_runs=None if looked_at is None else looked_at.most * len(spec.candidates),
        margin=margin,
        limit=limit,
        searches=telling if spec.tuning and spec.tuning.search else None,
        searches_left_out=len(alike) - telling,
        left_open=max(left_open, default=None),
        out_of_reach=out_of_reach(spec),
        loss_unit=spec.workload.task.loss_unit,
    )


def _power_at(design: FixedDesign, spec: ComparisonSpec) -> PowerAtNoise:
    seeds, margin = len(spec.seeds), spec.equivalence()
    least = detectable_difference(design, seeds)
    if least is not None and (looked_at := _sequential_design(design, spec)) is not None:
        least = detectable_difference(looked_at, seeds)
    return PowerAtNoise(
        paired_sd=design.noise_sd,
        detectable_difference=least,
        seeds_for_margin=None if margin is None else least_seeds(lambda n: design.is_within(margin, n), design),
        seeds_for_difference=None if margin is None else least_seeds(lambda n: design.is_shown(margin, n), design),
    )


def _design_with_noise(design: FixedDesign, noise_sd: float, spec: ComparisonSpec) -> FixedDesign:
    """The same design with other noise. What its grids leave open grows as that does: so it is in a flat basin, and
    drawing them anew would take as long again."""
    times = noise_sd / design.noise_sd
    grids_are_drawn = spec.kept_rates is None and not (spec.tuning and spec.tuning.search)

    def scaled_openness(seeds: int) -> tuple[Array, Array, Array]:
        of_candidate, of_baseline, shift = design.openness(seeds)
        return times * of_candidate, times * of_baseline, times * shift

    return replace(design, noise_sd=noise_sd, openness=scaled_openness if grids_are_drawn else design.openness)


def _sequential_design(design: FixedDesign, spec: ComparisonSpec) -> "SequentialDesign | None":
    if spec.sequential is None or spec.tries_improvement():
        return None
    return SequentialDesign(design=design, sequential=spec.sequential, most=len(spec.seeds), margin=spec.equivalence())


def _openness_of(spec: ComparisonSpec, noise_sd: float, width: float, openings: Sequence["Opening"]) -> Openness:
    """What the comparison's tuning leaves open, or left open of the rates that it keeps; nothing where nobody knows."""
    if spec.kept_rates is not None:
        return openness_of_kept(_regrets_of_kept_rates(spec), spec.baseline_name())
    if spec.tuning is not None and spec.tuning.search:
        return openness_of_search(openings) if openings else nothing_open
    rates = min((each.learning_rates for each in spec.candidates), key=len)
    if len(rates) == 1 and not (spec.tuning and spec.tuning.extend_grid):
        return nothing_open
    if spec.tuning is None:
        return openness_of_untuned(noise_sd, rates, width, spec.comparison_count())
    return openness(noise_sd, spec.tuning, rates, width, spec.least_open(), spec.comparison_count())


def _regrets_of_kept_rates(spec: ComparisonSpec) -> Mapping[str, float | None]:
    return {} if spec.kept_rates is None else spec.kept_rates.regrets


def openness_of_kept(regrets: Mapping[str, float | None], baseline: str) -> Openness:
    """As `openness`, of rates that another comparison judged: its regrets are known, and the widest of the candidates'
    counts. A difference is shown whichever way it lies, so that the larger regret stands at the baseline's place; where
    one is open, only one way is left, and the known one stands there."""
    known = [regret for name, regret in regrets.items() if name != baseline and regret is not None]
    of_candidate, of_baseline = max(known, default=math.inf), regrets[baseline]
    less, more = sorted((of_candidate, math.inf if of_baseline is None else of_baseline))
    if more == math.inf:
        less, more = more, less
    found = np.full(1, less), np.full(1, more), np.zeros(1)
    return lambda seeds: found


def out_of_reach(spec: ComparisonSpec) -> dict[str, tuple[Conclusion, ...]]:
    """Candidate → the verdicts that no number of seeds reaches, for the comparison that chose its rate or the
    baseline's left open by any amount how much lower the loss at another one is."""
    regrets, found = _regrets_of_kept_rates(spec), {}
    baseline_is_open = bool(regrets) and regrets[spec.baseline_name()] is None
    for name, regret in regrets.items():
        lost = [Conclusion.BETTER] * baseline_is_open + [Conclusion.WORSE] * (regret is None)
        if name != spec.baseline_name() and lost:
            found[name] = (*lost, *([] if spec.equivalence() is None else [Conclusion.AS_GOOD]))
    return found


def is_like(spec: ComparisonSpec, earlier: ExperimentSpec) -> bool:
    """Whether an earlier experiment searched this one's workload as this one does, with as many trials."""
    return (
        isinstance(earlier, ComparisonSpec)
        and spec.tuning is not None
        and earlier.tuning is not None
        and earlier.workload == spec.workload
        and bool(spec.tuning.search)
        and {*earlier.tuning.search} == {*spec.tuning.search}
        and earlier.tuning.method == spec.tuning.method
        and earlier.tuning.trials == spec.tuning.trials
    )


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What a search left open of one difference."""

    candidate: float
    """Of the candidate: its loss may be lower by so much."""
    baseline: float
    spread: float
    """Standard deviation of the difference by the draws that there happened to be."""


def openings_of(experiment: ExperimentRecord, runs: Iterable[RunRecord]) -> list[Opening]:
    """Of each difference of an earlier search. Without those of a candidate, or the baseline, of which nobody knows how
    far it was missed."""
    runs, spec = tuple(runs), comparison_spec(experiment)
    unknown = {each.candidate.name() for each in summaries(spec, runs) if each.rate_is_open()}
    if spec.baseline_name() in unknown:
        return []
    return [
        Opening(
            candidate=of.regret,
            baseline=of.baseline_regret,
            spread=SPREAD_OF_LUCK * of.regret if spec.draws() else 0.0,
        )
        for row in compare(experiment, runs).rows
        if (of := row.difference) is not None and row.candidate not in unknown and not of.rate_is_open
    ]


def openness_of_search(openings: Sequence[Opening]) -> Openness:
    """As `openness`, of a search that leaves open what these did; a descent's judged settings are taken to differ in
    what they miss by as much as their limits differ."""
    candidate, baseline, spread = (
        np.resize(np.array([getattr(each, name) for each in openings]), max(DRAWS, len(openings)))
        for name in ("candidate", "baseline", "spread")
    )
    missed = spread * np.random.default_rng(0).standard_normal(spread.size)
    found = candidate, baseline, missed + float(np.mean(candidate - baseline))
    return lambda seeds: found


def _draw_optima(rates: Sequence[float], random: np.random.Generator) -> Iterator[float]:
    """The logarithms of `GRIDS` best rates, up to a step from the middle one of ascending rates; of one rate, up to the
    first step of its extension."""
    step = median([math.log(above / below) for below, above in pairwise(rates)] or [math.log(FIRST_FACTOR)])
    return (math.log(rates[len(rates) // 2]) + random.uniform(-step, step) for _ in range(GRIDS))


def _pairs_of_grids() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each grid's place `OTHERS` times, and whose it is held against."""
    one, shift = np.divmod(np.arange(GRIDS * OTHERS), OTHERS)
    return one, (one + 1 + shift) % GRIDS


@lru_cache(maxsize=64)
def openness(
    noise_sd: float,
    tuning: Tuning,
    rates: tuple[float, ...],
    width: float,
    least_open: float = basin.LEAST_OPEN,
    comparisons: int = 1,
) -> Openness:
    """What tuning leaves open of equal candidates (`FixedDesign.openness`). Their grids are drawn, and go the product's
    own way to the judged rate; each is held against `OTHERS` of the others. `width` is the basin's curvature by
    squared log lr, and its minimum lies up to a step from the middle rate. What a grid leaves open whose best rate
    stays at an edge is infinite."""
    random = np.random.default_rng(0)
    ordered = sorted(rates)
    optima = _draw_optima(ordered, random)
    sd, level, judging = noise_sd / math.sqrt(2), STABLE * noise_sd, (-1,)
    found: list[tuple[basin.Basin, float, float, int] | None] = []
    missed = np.zeros(GRIDS)
    for drawn, best in enumerate(optima):
        runs: list[TuningRun] = []
        pairs = tuple((lr, seed) for lr in ordered for seed in tuning.seeds)
        while pairs and pairs[0][1] not in judging:
            for lr, seed in pairs:
                loss = level + width * (math.log(lr) - best) ** 2 + sd * random.standard_normal()
                runs.append(TuningRun(lr=lr, seed=seed, ended=True, verdict=Verdict.CONVERGED, loss=loss))
            pairs = tuning.next_pairs(ordered, judging, runs, least_open=least_open)
        judged, grid = pairs[0][0], grid_of(runs)
        missed[drawn] = width * (math.log(judged) - best) ** 2
        about = basin.basin(grid, tried_rates(runs))
        found.append(None if about is None else (about, judged, *grid.variance(about.around)))
    spreads = random.random(GRIDS)
    one, other = _pairs_of_grids()

    @lru_cache(maxsize=64)
    def regrets_of(seeds: int) -> tuple[Array, Array, Array]:
        from scipy.special import chdtri  # as above

        degrees, level = max(seeds - 1, 1), SIGNIFICANCE / comparisons / 2
        judged_squares = sd**2 * chdtri(degrees, spreads)
        half_widths = t_quantile(degrees, level) * np.sqrt(2 * judged_squares / degrees / (degrees + 1))
        regrets = np.full(GRIDS, np.inf)
        for place, each in enumerate(found):
            if each is not None:
                about, judged, of_grid, of_grid_degrees = each
                all_degrees = of_grid_degrees + degrees
                pooled = (of_grid * of_grid_degrees + float(judged_squares[place])) / all_degrees
                quantile = t_quantile(all_degrees, level)
                regrets[place] = about.regret(pooled, judged).extension(float(half_widths[place]), quantile)
        return regrets[one], regrets[other], missed[one] - missed[other]

    return regrets_of


@lru_cache(maxsize=64)
def openness_of_untuned(noise_sd: float, rates: tuple[float, ...], width: float, comparisons: int = 1) -> Openness:
    """As `openness`, of a grid whose own seeds judge it: what they leave open of the best rate, and what the choice
    took off its loss. With some number of seeds it is about that with fewer: `SEEDS_DRAWN`."""

    @lru_cache(maxsize=len(SEEDS_DRAWN))
    def draw_grids(count: int) -> tuple[Array, Array, Array]:
        random = np.random.default_rng(0)
        ordered, level = sorted(rates), SIGNIFICANCE / comparisons / 2
        half_width = t_quantile(count - 1, level) * noise_sd / math.sqrt(count)
        regrets, gains, missed = np.full(GRIDS, np.inf), np.zeros(GRIDS), np.zeros(GRIDS)
        for drawn, best in enumerate(_draw_optima(ordered, random)):
            above = width * (np.log(ordered) - best) ** 2
            table = (
                STABLE * noise_sd + above[:, None] + random.normal(0, noise_sd / math.sqrt(2), (len(ordered), count))
            )
            grid = basin.grid({lr: dict(enumerate(row.tolist())) for lr, row in zip(ordered, table, strict=True)})
            chosen = int(table.mean(axis=1).argmin())
            fresh = [table[int((table.sum(axis=1) - table[:, seed]).argmin()), seed] for seed in range(count)]
            gains[drawn] = max(float(np.mean(fresh)) - float(table[chosen].mean()), 0.0)
            missed[drawn] = above[chosen]
            if (about := basin.basin(grid, ordered)) is not None:
                variance, degrees = grid.variance(about.around)
                left_open = about.regret(variance, ordered[chosen])
                regrets[drawn] = left_open.extension(half_width, t_quantile(degrees or count - 1, level))
        one, other = _pairs_of_grids()
        return regrets[one] + gains[other], regrets[other] + gains[one], missed[one] - missed[other]

    return lambda seeds: draw_grids(max(count for count in SEEDS_DRAWN if count <= max(seeds, SEEDS_DRAWN[0])))


def curvature(runs: Iterable[RunRecord]) -> float:
    """That of the basins of earlier candidates with one workload, in the middle; 0, as of a flat one, where there are
    none. Rates whose other options differ, as a search's do, are no grid."""
    tables: dict[tuple[str, ...], dict[float, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for run, loss in ((run, loss) for run, loss in _losses(runs) if math.isfinite(loss)):
        options = json.dumps(run.spec.optimizer.options, sort_keys=True) if run.spec else ""
        tables[run.experiment_id, run.candidate, options][run.lr][run.seed] = loss
    found = []
    for table in tables.values():
        most = max(map(len, table.values()), default=0)
        # The judged rate has other seeds than the grid.
        grids = [[seeds for seeds in table.values() if seeds.keys() == of.keys()] for of in table.values()]
        seeds = max(grids, key=len)[0].keys()
        rates = {lr: row for lr, row in table.items() if row.keys() == seeds}
        grid = basin.grid(rates)
        of = basin.basin(grid, list(rates)) if most else None
        if of is not None and len(of.around) == 3:
            bent = np.polyfit(np.log(of.around), [grid.means()[rate] for rate in of.around], 2)[0]
            found.append(max(float(bent), 0.0))
    return median(found) if found else 0.0


@dataclass(frozen=True, kw_only=True)
class EarlierExperiment:
    """What an experiment tells of a workload."""

    runs: Sequence[RunRecord]
    """Those with this workload."""
    candidates: Sequence[EarlierCandidate]
    judged: bool
    """Whether it has ended, and these are judged runs; else the best that tuning had found so far."""


def known_losses(workload: Workload, earlier: Iterable[ExperimentWithRuns]) -> list[EarlierExperiment]:
    """What the judged runs of ended experiments on this workload tell; where these tell no noise, what all runs do:
    before its grid has ended, the best rate of a candidate may be one at which losses hardly vary, or vary more."""
    found = [
        _earlier_experiment(experiment, of)
        for experiment, runs in earlier
        if (of := [run for run in runs if run.spec is not None and run.spec.workload == workload])
    ]
    ended = [of for of in found if of.judged]
    return found if noise([each.losses for each in of.candidates] for of in ended) is None else ended


def _earlier_experiment(experiment: ExperimentRecord, runs: Sequence[RunRecord]) -> EarlierExperiment:
    """Of candidates that were judged alone where there are any. Their runs are called spikes as `compare` calls them,
    by the spread of the grids that chose their rates; the candidate with the most stable ones takes the baseline's
    place."""
    spec = experiment.spec
    tuning_seeds = {*spec.tuning.seeds} if isinstance(spec, GridExperiment) and spec.tuning else set[int]()
    tables: dict[str, dict[float, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for run, loss in _losses(runs):
        tables[run.candidate][run.lr][run.seed] = loss
    losses = {name: _judged_losses(rates, tuning_seeds) for name, rates in tables.items()}
    judged = {name: each for name, each in losses.items() if each.judged} or losses
    spiked: dict[str, set[int]] = defaultdict(set)
    against = max(judged, key=lambda name: len(judged[name].losses), default="")
    for name, each in judged.items():
        one, other = each.spread, judged[against].spread
        if name != against and one is not None and other is not None:
            here, there = spikes(each.losses, judged[against].losses, math.hypot(one, other))
            spiked[name] |= here
            spiked[against] |= there
    return EarlierExperiment(
        runs=runs,
        candidates=[
            EarlierCandidate(
                name=name,
                losses={seed: loss for seed, loss in each.losses.items() if seed not in spiked[name]},
                spiked=len(spiked[name]),
                diverged=each.diverged,
            )
            for name, each in judged.items()
        ],
        judged=experiment.counts.done() and all(each.judged for each in judged.values()),
    )


def _unstable_shares(compared: Iterable[Iterable[EarlierCandidate]], baseline: str) -> tuple[Shares, Shares, float]:
    """Of judged runs, the shares that spiked and that diverged, of the others and of the baseline, and that of all
    which did either. Of whom nothing is known the share of all is taken."""
    candidates = [each for of_one in compared for each in of_one]
    sides = [[each for each in candidates if (each.name == baseline) == side] for side in (False, True)]

    def share(of: Sequence[EarlierCandidate], count: Callable[[EarlierCandidate], int]) -> float:
        runs = sum(each.runs() for each in of)
        return sum(map(count, of)) / runs if runs else share(candidates, count)

    spiking, diverging = (
        (share(sides[0], count), share(sides[1], count)) for count in (lambda of: of.spiked, lambda of: of.diverged)
    )
    return spiking, diverging, share(candidates, lambda of: of.spiked + of.diverged)


@dataclass(frozen=True, kw_only=True)
class _JudgedLosses:
    """A candidate's losses by seed at the rate that it was judged at."""

    losses: Mapping[int, float]
    diverged: int
    judged: bool
    """Whether they are of other seeds than those that tuned; else of the best rate so far."""
    spread: float | None
    """Of the stable runs which chose that rate; None where no others than the judged ones did."""


def _judged_losses(rates: Mapping[float, Mapping[int, float]], tuning_seeds: Collection[int]) -> _JudgedLosses:
    """At the rate with the most seeds that did not tune, or where none was judged, with the most seeds; the best of
    them where several have as many. Of a run that diverged the loss is infinite."""
    judged = {lr: {seed: loss for seed, loss in of.items() if seed not in tuning_seeds} for lr, of in rates.items()}
    judged = {lr: losses for lr, losses in judged.items() if losses}
    of = judged or rates
    lr = max(of, key=lambda lr: (len(of[lr]), -float(np.mean([*of[lr].values()]))))
    losses = {seed: loss for seed, loss in of[lr].items() if math.isfinite(loss)}
    grid = {
        lr: {seed: losses[seed] for seed in tuning_seeds}
        for lr, losses in rates.items()
        if all(math.isfinite(losses.get(seed, math.inf)) for seed in tuning_seeds)
    }
    return _JudgedLosses(
        losses=losses,
        diverged=len(of[lr]) - len(losses),
        judged=bool(judged),
        spread=basin.grid(grid).spread if judged and tuning_seeds else None,
    )


def _losses(runs: Iterable[RunRecord]) -> Iterable[tuple[RunRecord, float]]:
    """The runs that ended with a verdict and their final losses, infinite of those that diverged."""
    for run in runs:
        if run.result is None:
            continue
        if run.result.verdict is Verdict.DIVERGED:
            yield run, math.inf
        elif run.result.verdict is Verdict.CONVERGED and run.result.final_val_loss is not None:
            yield run, run.result.final_val_loss


@dataclass(frozen=True, kw_only=True)
class SequentialDesign:
    """A design whose seeds are added while a verdict is open: experiments are drawn and looked at as compared ones."""

    design: FixedDesign
    sequential: Sequential
    most: int
    """Seeds at the last look."""
    margin: float | None

    def is_shown(self, difference: float, seeds: int) -> float:
        """The probability that a candidate that is better by so much is called better at any look; `seeds` at most."""
        return float(np.mean(self._simulate_looks(difference, seeds)[1]))

    def expected_runs(self, candidates: int) -> float:
        """Judged runs on average, where all candidates are equal: those of the baseline end with the last of theirs."""
        used = self._simulate_looks(0.0, self.most)[0]
        others = np.random.default_rng(1).choice(used, size=(len(used), candidates - 1))
        return float(np.mean(others.sum(axis=1) + others.max(axis=1)))

    def _simulate_looks(self, difference: float, most: int) -> tuple[Array, Array]:
        """Of each drawn experiment: seeds that were used, and whether it was called better."""
        design, first, step = self.design, self.sequential.first_seeds, self.sequential.seeds_per_look
        levels = looks(first, most, SIGNIFICANCE / design.comparisons)
        at = sorted(levels.keys() & {*range(first, most, step), most})
        count = max(LEAST_EXPERIMENTS, min(EXPERIMENTS, 10 * EXPERIMENTS // len(at)))  # the more looks, the dearer each
        random = np.random.default_rng(0)
        of_candidate, of_baseline, shift = (np.resize(each, count) for each in design.openness(most))
        draws = random.normal(0.0, design.noise_sd, (count, most))
        draws += (random.normal(0.0, design.evaluation_error, count) + shift - difference)[:, None]
        used, better, going = np.full(count, float(most)), np.zeros(count), np.ones(count, dtype=bool)
        for seeds in at:
            level = levels[seeds].level
            mean, error = draws[:, :seeds].mean(axis=1), draws[:, :seeds].std(axis=1, ddof=1) / math.sqrt(seeds)
            half = np.hypot(
                t_quantile(seeds - 1, level / 2) * error, normal_quantile(level / 2) * design.evaluation_error
            )
            low, high = mean - half - of_candidate, mean + half + of_baseline
            better[going & (high < 0)] = 1.0
            ends = (high < 0) | (low > 0)
            if self.margin is not None:
                ends |= (low > -self.margin) & (high < self.margin)
            if seeds < most and (is_open := going & ~ends).any():
                chance = chances_of_verdict(
                    mean[is_open], error[is_open], seeds, most, levels[most].level, below=of_candidate[is_open],
                    above=of_baseline[is_open], shared_error=design.evaluation_error, margin=self.margin,
                )  # fmt: skip
                ends[is_open] = chance < FUTILE
            used[going & ends] = seeds
            going &= ~ends
        return used, better


def detectable_difference(design: FixedDesign | SequentialDesign, seeds: int) -> float | None:
    """The least true difference that so many paired seeds show with the chance `POWER`. None below two seeds, and where
    a grid's best rate lies at an edge so often that none is."""
    noise_sd = (design if isinstance(design, FixedDesign) else design.design).noise_sd
    if seeds < 2 or design.is_shown(LARGEST * noise_sd, seeds) < POWER:
        return None
    low, high = 0.0, noise_sd
    while design.is_shown(high, seeds) < POWER:
        low, high = high, 2 * high
    for _ in range(24 if isinstance(design, FixedDesign) else 10):  # to a part in 10^7; of drawn experiments, to 0.1 %
        middle = (low + high) / 2
        low, high = (middle, high) if design.is_shown(middle, seeds) < POWER else (low, middle)
    return high


def least_seeds(chance: Callable[[int], float], design: FixedDesign | None = None) -> int | None:
    """The least number of paired seeds with which the chance of a verdict is `POWER`; None beyond `MOST_SEEDS`. Where
    runs of the design are unstable more seeds may have less of a chance, so that the first dozens are tried one by one,
    and none that are not likely to be stable."""

    def suffices(seeds: int) -> bool:
        return (design is None or design.chance_of_stability(seeds) >= POWER) and chance(seeds) >= POWER

    low = ONE_BY_ONE
    for seeds in range(2, ONE_BY_ONE + 1):
        if suffices(seeds):
            return seeds
    high = 2 * low
    while not suffices(high):
        if high >= MOST_SEEDS:
            return None
        low, high = high, min(2 * high, MOST_SEEDS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


def limit_of(design: FixedDesign, chance: Callable[[FixedDesign, int], float]) -> PowerLimit:
    """What keeps the chance of a verdict below `POWER`, or would with as many seeds as one likes."""
    stable = design.without_instability()
    if stable != design and least_seeds(lambda seeds: chance(stable, seeds)) is not None:
        return PowerLimit.INSTABILITY
    design = stable
    if chance(design, ANY_SEEDS) >= POWER:
        return PowerLimit.SEEDS
    without_error = replace(design, evaluation_error=0.0)
    return PowerLimit.EVALUATION if chance(without_error, ANY_SEEDS) >= POWER else PowerLimit.TUNING


def noise(experiments: Iterable[Sequence[Mapping[int, float]]]) -> Noise | None:
    """The noise of paired differences, pooled over experiments.

    Of each experiment: one mapping from seed to final loss for each candidate at its compared rate. What the candidates
    differ by on average and what a seed does to all of them is taken out (a two-way layout without repetition), and
    what remains has the variance of one run; a paired difference has twice that. Runs that spiked are left out, and of
    candidates that end alike on every seed, which are one candidate by two names, all but one. None where no experiment
    has two candidates with two seeds in common.
    """
    squares, degrees, count = 0.0, 0, 0
    for candidates in experiments:
        table = _common_seeds(candidates)
        rows, columns = table.shape
        if rows < 2 or columns < 2:
            continue
        stable = basin.grid({float(i): dict(enumerate(row.tolist())) for i, row in enumerate(table)})
        left = (rows - 1) * (columns - 1) - len(stable.spikes)
        if stable.spread is not None and left > 0:
            squares += stable.spread**2 * left
        else:
            left = (rows - 1) * (columns - 1)
            rest = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
            squares += float(np.sum(rest**2))
        degrees += left
        count += 1
    if not degrees:
        return None
    paired_sd = math.sqrt(2 * squares / chi_square_quantile(degrees, 0.5))
    return Noise(paired_sd=paired_sd, degrees=degrees, experiments=count)


def _common_seeds(candidates: Sequence[Mapping[int, float]]) -> NDArray[np.float64]:
    """Losses [candidate, seed], without repetitions, of the seeds that some have in common: where not all do, of those
    that tell most. A candidate that was tuned and never judged has other seeds than the judged ones."""
    best, most = np.zeros((0, 0)), 0
    for wanted in [set.intersection(*map(set, candidates)) if candidates else set(), *map(set, candidates)]:
        seeds = sorted(wanted)
        rows = dict.fromkeys(tuple(each[seed] for seed in seeds) for each in candidates if wanted <= each.keys())
        table = np.array(list(rows), dtype=np.float64).reshape(len(rows), len(seeds))
        degrees = (len(rows) - 1) * (len(seeds) - 1)
        if rows and seeds and degrees > most:
            best, most = table, degrees
    return best
