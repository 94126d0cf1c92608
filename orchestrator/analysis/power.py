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
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from orchestrator.kinds.comparison import ComparisonSpec, Sequential
from orchestrator.kinds.registry import ExperimentSpec
from orchestrator.kinds.tuning import Tuning, TuningRun, grid_of, tried_rates
from orchestrator.records import SIGNIFICANCE, ExperimentRecord, ExperimentWithRuns, RunRecord
from orchestrator.specs.preview import DesignPower, PowerLimit
from worker.records.result import Verdict
from worker.spec.run import Workload

POWER = 0.8
"""The usual share of experiments in which a true difference should be shown."""
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
    """Standard deviation of the difference of two candidates with the same seed, in the unit of the loss."""
    degrees: int
    """Degrees of freedom of the estimate, which is itself uncertain by a factor of about 1 ± 1 / sqrt(2 · degrees)."""
    experiments: int

    def factor(self) -> float:
        """The truth is larger than so many times the estimate in 2.5 %."""
        return math.sqrt(self.degrees / chi_square_quantile(self.degrees, SIGNIFICANCE / 2))


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


def design_power(
    spec: ComparisonSpec, runs: Iterable[RunRecord], earlier: Iterable[ExperimentWithRuns] = ()
) -> DesignPower | str:
    """What the comparison can show, by the noise of those of the runs that trained its workload, and by those of the
    earlier experiments that searched as it does; or why nobody knows: it was never trained so."""
    alike = [each for each in earlier if is_like(spec, each[0].spec)]
    searches = [each for each in alike if each[0].counts.done()]
    known = {experiment.id for experiment, _ in searches}
    runs = tuple(run for run in runs if run.experiment_id not in known)
    judged = [
        [EarlierCandidate(name=each.candidate.name(), losses=each.best.losses()) for each in summaries(of_search, mine)]
        for of_search, mine in ((comparison_spec(of), mine) for of, mine in searches)
    ]
    compared = [*compared_losses(spec.workload, runs), *judged]
    found = noise([each.losses for each in candidates] for candidates in compared)
    if found is None or found.paired_sd == 0:
        return NOISE_UNKNOWN
    seeds, margin = len(spec.seeds), spec.equivalence()
    spiking, diverging, unstable = _unstable_shares(compared, spec.baseline_name())
    design = FixedDesign(
        noise_sd=found.paired_sd,
        comparisons=spec.comparison_count(),
        evaluation_error=evaluation_error(spec.workload),
        spike_shares=spiking,
        diverging_shares=diverging,
    )
    rates = min((each.learning_rates for each in spec.candidates), key=len)
    left_open, telling = None, 0
    if spec.tuning and spec.tuning.search:
        openings_by_search = [openings_of(experiment, mine) for experiment, mine in searches]
        telling = sum(map(bool, openings_by_search))
        if openings := [each for found_here in openings_by_search for each in found_here]:
            design = replace(design, openness=openness_of_search(openings))
            left_open = median(max(each.candidate, each.baseline) for each in openings)
    elif len(rates) > 1:
        width = curvature(spec.workload, runs)
        if spec.tuning:
            is_open = openness(found.paired_sd, spec.tuning, rates, width, spec.least_open())
        else:
            is_open = openness_of_untuned(found.paired_sd, rates, width)
        design = replace(design, openness=is_open)
    for_margin = for_difference = None
    limit = PowerLimit.SEEDS
    if margin is not None:
        for_margin = least_seeds(lambda n: design.is_within(margin, n), design)
        for_difference = least_seeds(lambda n: design.is_shown(margin, n), design)
        if None in (for_margin, for_difference):
            limit = limit_of(design, lambda of, n: of.is_shown(margin, n) if for_margin else of.is_within(margin, n))
    detectable = detectable_difference(design, seeds)
    if detectable is None and detectable_difference(design.without_instability(), seeds) is not None:
        limit = PowerLimit.INSTABILITY
    looked_at = None
    if spec.sequential is not None and not spec.tries_improvement():
        looked_at = SequentialDesign(design=design, sequential=spec.sequential, most=seeds, margin=margin)
    return DesignPower(
        seeds=seeds,
        comparisons=design.comparisons,
        paired_sd=found.paired_sd,
        experiments=found.experiments,
        noise_factor=found.factor(),
        unstable_share=unstable,
        detectable_difference=detectable_difference(looked_at, seeds) if looked_at and detectable else detectable,
        expected_runs=None if looked_at is None else round(looked_at.expected_runs(len(spec.candidates))),
        most_runs=None if looked_at is None else seeds * len(spec.candidates),
        margin=margin,
        seeds_for_margin=for_margin,
        seeds_for_difference=for_difference,
        limit=limit,
        searches=telling if spec.tuning and spec.tuning.search else None,
        searches_left_out=len(alike) - telling,
        left_open=left_open,
        loss_unit=spec.workload.task.loss_unit,
    )


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
    """The logarithms of `GRIDS` best rates, up to a step from the middle one of ascending rates."""
    step = median(math.log(above / below) for below, above in pairwise(rates))
    return (math.log(rates[len(rates) // 2]) + random.uniform(-step, step) for _ in range(GRIDS))


def _pairs_of_grids() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each grid's place `OTHERS` times, and whose it is held against."""
    one, shift = np.divmod(np.arange(GRIDS * OTHERS), OTHERS)
    return one, (one + 1 + shift) % GRIDS


@lru_cache(maxsize=64)
def openness(
    noise_sd: float, tuning: Tuning, rates: tuple[float, ...], width: float, least_open: float = basin.LEAST_OPEN
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

        degrees = max(seeds - 1, 1)
        judged_squares = sd**2 * chdtri(degrees, spreads)
        regrets = np.full(GRIDS, np.inf)
        for place, each in enumerate(found):
            if each is not None:
                about, judged, of_grid, of_grid_degrees = each
                squares = of_grid * of_grid_degrees + float(judged_squares[place])
                regrets[place] = about.regret(squares / (of_grid_degrees + degrees), judged)
        return regrets[one], regrets[other], missed[one] - missed[other]

    return regrets_of


@lru_cache(maxsize=64)
def openness_of_untuned(noise_sd: float, rates: tuple[float, ...], width: float) -> Openness:
    """As `openness`, of a grid whose own seeds judge it: what they leave open of the best rate, and what the choice
    took off its loss. With some number of seeds it is about that with fewer: `SEEDS_DRAWN`."""

    @lru_cache(maxsize=len(SEEDS_DRAWN))
    def draw_grids(count: int) -> tuple[Array, Array, Array]:
        random = np.random.default_rng(0)
        ordered = sorted(rates)
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
                variance, _ = grid.variance(about.around)
                regrets[drawn] = about.regret(variance, ordered[chosen])
        one, other = _pairs_of_grids()
        return regrets[one] + gains[other], regrets[other] + gains[one], missed[one] - missed[other]

    return lambda seeds: draw_grids(max(count for count in SEEDS_DRAWN if count <= max(seeds, SEEDS_DRAWN[0])))


def curvature(workload: Workload, runs: Iterable[RunRecord]) -> float:
    """That of the basins of earlier candidates with this workload, in the middle; 0, as of a flat one, where there are
    none. Rates whose other options differ, as a search's do, are no grid."""
    tables: dict[tuple[str, ...], dict[float, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for run, loss in ((run, loss) for run, loss in _losses(workload, runs) if math.isfinite(loss)):
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


def compared_losses(workload: Workload, runs: Iterable[RunRecord]) -> list[list[EarlierCandidate]]:
    """Of each experiment on this workload, what the judged runs of its candidates tell. They are called spikes as
    `compare` calls them, by the spread of the grids that chose their rates; the candidate with the most stable ones
    takes the baseline's place."""
    tables: dict[str, dict[str, dict[float, dict[int, float]]]] = defaultdict(lambda: defaultdict(dict))
    for run, loss in _losses(workload, runs):
        tables[run.experiment_id][run.candidate].setdefault(run.lr, {})[run.seed] = loss
    found = []
    for table in tables.values():
        judged = {name: _judged_losses(rates) for name, rates in table.items()}
        against = max(judged, key=lambda name: len(judged[name].losses))
        spiked: dict[str, set[int]] = defaultdict(set)
        for name, each in judged.items():
            one, other = each.spread, judged[against].spread
            if name != against and one is not None and other is not None:
                here, there = spikes(each.losses, judged[against].losses, math.hypot(one, other))
                spiked[name] |= here
                spiked[against] |= there
        found.append(
            [
                EarlierCandidate(
                    name=name,
                    losses={seed: loss for seed, loss in each.losses.items() if seed not in spiked[name]},
                    spiked=len(spiked[name]),
                    diverged=each.diverged,
                )
                for name, each in judged.items()
            ]
        )
    return found


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
    spread: float | None = None
    """Of the stable runs which chose that rate; None where no others than the judged ones did."""


def _judged_losses(rates: Mapping[float, Mapping[int, float]]) -> _JudgedLosses:
    """Of a candidate that was tuned, those of other seeds than most of its rates have; else those of the rate with the
    most seeds, the best of them where several have as many. Of a run that diverged the loss is infinite."""
    (tuning, shared), *_ = Counter(frozenset(losses) for losses in rates.values()).most_common(1)
    judged = {lr: {seed: losses[seed] for seed in losses if seed not in tuning} for lr, losses in rates.items()}
    judged = {lr: losses for lr, losses in judged.items() if losses}
    is_tuned = shared > 1 and bool(judged)
    of = judged if is_tuned else rates
    lr = max(of, key=lambda lr: (len(of[lr]), -float(np.mean([*of[lr].values()]))))
    losses = {seed: loss for seed, loss in of[lr].items() if math.isfinite(loss)}
    grid = {
        lr: {seed: losses[seed] for seed in tuning}
        for lr, losses in rates.items()
        if tuning <= losses.keys() and all(math.isfinite(losses[seed]) for seed in tuning)
    }
    return _JudgedLosses(
        losses=losses, diverged=len(of[lr]) - len(losses), spread=basin.grid(grid).spread if is_tuned else None
    )


def _losses(workload: Workload, runs: Iterable[RunRecord]) -> Iterable[tuple[RunRecord, float]]:
    """The runs of this workload that ended with a verdict and their final losses, infinite of those that diverged."""
    for run in runs:
        if run.result is None or run.spec is None or run.spec.workload != workload:
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
    for _ in range(40 if isinstance(design, FixedDesign) else 10):  # to a part in 10^12; of drawn experiments, to 0.1 %
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
    return Noise(paired_sd=math.sqrt(2 * squares / degrees), degrees=degrees, experiments=count)


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
