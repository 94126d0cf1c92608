"""The judgement of external runs: the statistics of comparisons on figures that others measured. A pure function.

runs ─► those that can be judged, as facts ─► a design: a grid, or rates chosen on seeds of their own ─► differences,
     intervals, conclusions (`comparison.py`) ─► what speaks against them, first ─► what nobody can check

The bench chooses no seeds here, trains no grid and knows no budget: what it would refuse before a run it says of runs
that are there. Where budgets differ there is no verdict; where tuning differs there is none either, as everywhere.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from pydantic import JsonValue

from orchestrator.analysis.candidates import summarize_facts
from orchestrator.analysis.comparison import concluded_rows, rank_candidates
from orchestrator.analysis.verdicts import FAIR_SEEDS, MOST_NOTES, effect_text, loss_notes, note_on_baseline, verdict
from orchestrator.design import CandidateDesign, ComparisonDesign
from orchestrator.errors import ConflictError
from orchestrator.external_runs import (
    END_UNKNOWN,
    IMPORTED,
    RANK_VARIABLES,
    SYSTEM,
    USUAL_METRICS,
    ExternalExperiment,
    ExternalJudgement,
    ExternalRun,
    ExternalState,
    JudgedCandidate,
    JudgementChoice,
    MetricSummary,
)
from orchestrator.jobs import RunStatus
from orchestrator.records import CandidateRow, Conclusion
from orchestrator.specs.differences import flat_fields
from orchestrator.tuning.line import Grid
from orchestrator.tuning.tuner import RunFact
from worker.records.result import LARGEST_LOSS, Verdict
from worker.words import pluralize

TOKENS = "tokens"
"""The metric that says how much was trained."""
FEWEST_JUDGED = 2
"""Seeds of their own that are needed to set those apart that chose the rates."""
UNKNOWN_RATE = 0.0
"""Stands for the learning rate of runs that were logged without one: they share all that was logged."""


def judge(experiment: ExternalExperiment, runs: Sequence[ExternalRun], choice: JudgementChoice) -> ExternalJudgement:
    """Return the verdicts on the candidates. Raises `ConflictError` if there is nothing to judge, or to choose."""
    runs, baseline = _select_workload(runs, choice.workload), choice.baseline
    logged = {name for run in runs for name in run.metrics}
    metric = choice.metric or next((usual for usual in USUAL_METRICS if usual in logged), None)
    if metric is None:
        raise ConflictError(
            f"no metric is called {USUAL_METRICS[0]}; choose the one to judge by, of which lower is better (--metric): "
            f"{', '.join(sorted(logged)) or 'there are none yet'}"
        )
    judgeable, left_out = _judgeable_runs(runs, metric)
    names = tuple(dict.fromkeys(run.candidate for run in sorted(runs, key=lambda run: run.started_at)))
    if baseline is not None and baseline not in names:
        raise ConflictError(f"there is no candidate {baseline!r}; the candidates are {', '.join(names)}")
    names = tuple(name for name in names if any(run.candidate == name for run in judgeable))
    if not judgeable:
        raise ConflictError(
            f"none of {pluralize(len(runs), 'run')} can be judged by {metric}: "
            + "; ".join(left_out or ("there are none",))
        )
    if baseline is not None and baseline not in names:
        raise ConflictError(f"no run of the baseline {baseline} can be judged by {metric}: {'; '.join(left_out)}")
    design = _design(judgeable, names, choice.margin)
    chosen: tuple[str, ...] = ()
    if baseline is not None and baseline != names[0]:
        # Of two candidates there is one pair, whoever is the baseline.
        without_choice = f"without a choice it is {names[0]}, whose first run began first"
        chosen = (note_on_baseline(design, baseline, without_choice),) if len(names) > 2 else ()
        design = design.hold_against(baseline)
    summaries = summarize_facts(design, [_fact(run, metric) for run in judgeable])
    rows = concluded_rows(design, rank_candidates(design, summaries))
    by_id = {run.id: run for run in judgeable}
    of_row = {row.candidate: [by_id[id] for id in best.run_ids] if (best := row.best()) else [] for row in rows}
    baseline_row = next(row for row in rows if row.is_baseline)
    judged = [_judged_candidate(row, baseline_row, metric, of_row) for row in rows]
    return ExternalJudgement(
        experiment_id=experiment.id,
        experiment=experiment.name,
        metric=metric,
        workload=runs[0].workload,
        baseline=design.baseline,
        tuning_seeds=design.tuning_seeds,
        concerns=(
            *_concerns(judged, judgeable, metric, of_row),
            *_rewound_runs(judgeable, metric),
            *_early_ends(judgeable, metric),
            *left_out,
        ),
        unchecked=tuple(_unchecked_sentences(runs, judged)),
        rows=tuple(judged),
        notes=(*chosen, *loss_notes(design, rows))[:MOST_NOTES],
    )


def _select_workload(runs: Sequence[ExternalRun], workload: str | None) -> Sequence[ExternalRun]:
    workloads = {run.workload or "" for run in runs}
    if workload is not None:
        if workload not in workloads:
            raise ConflictError(
                f"no run has the workload {workload!r}; there are {', '.join(map(repr, sorted(workloads)))}"
            )
        return [run for run in runs if (run.workload or "") == workload]
    if len(workloads) > 1:
        raise ConflictError(
            f"runs of {len(workloads)} workloads cannot be held against each other; choose one: "
            f"{', '.join(map(repr, sorted(workloads)))}"
        )
    return runs


def _judgeable_runs(runs: Sequence[ExternalRun], metric: str) -> tuple[tuple[ExternalRun, ...], tuple[str, ...]]:
    """Return the runs that can be judged, one for each candidate, rate and seed, and the reasons why others cannot."""
    counts_by_reason: dict[str, Counter[str]] = {}
    judged: dict[tuple[str, float | None, int | None], ExternalRun] = {}
    with_rates = {run.candidate for run in runs if run.lr is not None and metric in run.metrics}
    for run in sorted(runs, key=lambda run: (_rank(run), run.started_at, run.created_at, run.id)):
        of_metric = run.metrics.get(metric)
        key = run.candidate, run.lr, run.seed
        if of_metric is None:
            reason = f"without {metric}"
        elif run.seed is None:
            reason = "without a seed"
        elif run.lr is None and run.candidate in with_rates:
            reason = "without a learning rate"
        elif run.state is ExternalState.RUNNING:
            reason = "not said to be finished (still training, or killed)"
        elif run.state is ExternalState.FAILED and of_metric.last is not None:
            reason = "failed before the end"
        elif key in judged and _goes_on(judged[key].metrics[metric], of_metric):
            judged[key], reason = run, "that a later one goes on from, of which the last loss counts"
        elif key in judged and _rank(run):
            reason = "of further processes of one training (srun or mpirun), of which the first counts"
        elif key in judged:
            reason = "repeating candidate, rate and seed of an earlier one, which counts"
        else:
            judged[key] = run
            continue
        counts_by_reason.setdefault(reason, Counter())[run.candidate] += 1
    left_out = (
        f"left out: {pluralize(counts.total(), 'run')} {reason} ({_counts_text(counts)})"
        for reason, counts in counts_by_reason.items()
    )
    return tuple(judged.values()), tuple(left_out)


def _goes_on(earlier: MetricSummary, later: MetricSummary) -> bool:
    """Return whether a run is a later session of a training, as trackers have one for each start of a requeued job."""
    steps = earlier.last_step - earlier.first_step
    latest = earlier.last_step + 2 * steps / max(earlier.points - 1, 1)
    return earlier.first_step < later.first_step <= latest and later.last_step > earlier.last_step


def _rank(run: ExternalRun) -> str:
    """Return the launcher's name of the process; empty for the first one."""
    return next((str(run.config[name]) for name in RANK_VARIABLES if name in run.config), "")


# Design and facts


def _design(runs: Sequence[ExternalRun], names: Sequence[str], margin: float | None) -> ComparisonDesign:
    """Return the design of the comparison that these runs could have been of, against the first of the names.

    Where all rates of a candidate have the same seeds, these chose its rate and judge it. Where some rates have fewer,
    it was tuned on those: they are set apart, if enough others are left at the rate with the most seeds.
    """
    seeds_at: dict[str, dict[float, frozenset[int]]] = {name: {} for name in names}
    for run in sorted(runs, key=_rate):
        assert run.seed is not None
        seeds_by_rate = seeds_at[run.candidate]
        seeds_by_rate[_rate(run)] = seeds_by_rate.get(_rate(run), frozenset()) | {run.seed}
    seeds = frozenset[int]().union(*(rate_seeds for rates in seeds_at.values() for rate_seeds in rates.values()))
    tuning = _tuning_seeds([[*rates.values()] for rates in seeds_at.values()])
    candidates = []
    for name, rates in seeds_at.items():
        grid = tuple(rates)
        candidates.append(
            CandidateDesign(
                name=name,
                title=name,
                optimizer=name,
                own_rate=grid[len(grid) // 2],
                learning_rates=grid,
                tuners=(Grid(grid),) if tuning else (),
            )
        )
    return ComparisonDesign(
        candidates=tuple(candidates),
        baseline=names[0],
        seeds=tuple(sorted(seeds - tuning)),
        tuning_seeds=tuple(sorted(tuning)),
        margin=margin,
    )


def _tuning_seeds(grids: Sequence[Sequence[frozenset[int]]]) -> frozenset[int]:
    """Return the seeds that only chose rates, given the seeds of each candidate's rates; none if the same seeds do
    both."""
    if any(len(seeds) > 1 and len({*seeds}) == 1 for seeds in grids):
        return frozenset()
    judged = [max(seeds, key=len) for seeds in grids]
    tuning = frozenset[int]().union(
        *(
            seeds
            for rates, judged_seeds in zip(grids, judged, strict=True)
            for seeds in rates
            if seeds is not judged_seeds
        )
    )
    return frozenset() if any(len(seeds - tuning) < FEWEST_JUDGED for seeds in judged) else tuning


def _rate(run: ExternalRun) -> float:
    return UNKNOWN_RATE if run.lr is None else run.lr


def _fact(run: ExternalRun, metric: str) -> RunFact:
    """Return a judgeable run as the analysis of comparisons takes it."""
    summary = run.metrics[metric]
    assert run.seed is not None
    has_diverged = _has_diverged(run, metric)
    return RunFact(
        id=run.id,
        candidate=run.candidate,
        lr=_rate(run),
        seed=run.seed,
        status=RunStatus.SUCCEEDED,
        verdict=Verdict.DIVERGED if has_diverged else Verdict.CONVERGED,
        loss=None if has_diverged else summary.last,
    )


def _has_diverged(run: ExternalRun, metric: str) -> bool:
    """Return whether the run has diverged, by the rule for our own runs: the loss is no longer finite, or not lower
    than before training. A run that stops logging the loss early, and then logs a metric that is not finite, has
    diverged, too."""
    of_metric = run.metrics[metric]
    if of_metric.last is None or abs(of_metric.last) > LARGEST_LOSS:
        return True
    if _ends_early(run, metric) and any(
        summary.last is None and summary.last_step > of_metric.last_step
        for name, summary in run.metrics.items()
        if not name.startswith(SYSTEM)
    ):
        return True
    initial_loss = of_metric.first if of_metric.first_step == 0 and of_metric.last_step > 0 else None
    return initial_loss is not None and of_metric.last >= initial_loss


def _ends_early(run: ExternalRun, metric: str) -> bool:
    """Return whether the run went on behind its last value of the metric, for longer than two of its values are apart
    in the mean."""
    of_metric = run.metrics[metric]
    first, gaps = (of_metric.first_step, of_metric.points - 1) if of_metric.points > 1 else (0, 1)
    return _last_step(run) - of_metric.last_step > (of_metric.last_step - first) / gaps


def _last_step(run: ExternalRun) -> int:
    """Return the last step of any metric except the machine's, whose steps are numbers of samples."""
    return max((summary.last_step for name, summary in run.metrics.items() if not name.startswith(SYSTEM)), default=0)


def _judged_candidate(
    row: CandidateRow,
    baseline: CandidateRow,
    metric: str,
    of_row: Mapping[str, Sequence[ExternalRun]],
) -> JudgedCandidate:
    budgets, baseline_budgets = (_budgets(of_row[judged.candidate], metric) for judged in (row, baseline))
    tokens = {count for _, count in budgets.values()}
    conclusion, difference, sentence = row.conclusion, row.difference, verdict(row, baseline, "")
    unequal = None
    if len(row.learning_rates) != len(baseline.learning_rates):
        unequal = f"{len(row.learning_rates)} learning rates tried against {len(baseline.learning_rates)}"
    elif seeds := [seed for seed, budget in budgets.items() if baseline_budgets.get(seed, budget) != budget]:
        unequal = f"{pluralize(len(seeds), 'seed')} with other steps or tokens than the same seed"
    if difference is not None and unequal is not None:
        conclusion = Conclusion.UNDECIDED
        sentence = f"Undecided: {unequal} of {baseline.title}'s; {row.title} ends {effect_text(difference, '')}."
        difference = difference.model_copy(
            update={"low": None, "high": None, "p_value": None, "is_within_margin": False, "seeds_to_decide": None}
        )
    return JudgedCandidate(
        candidate=row.candidate,
        is_baseline=row.is_baseline,
        lr=row.best_lr or None,
        loss=row.val_loss,
        difference=difference,
        conclusion=conclusion,
        verdict=sentence,
        edge_of_grid=row.edge_of_grid,
        learning_rates=row.learning_rates,
        last_steps=tuple(sorted({steps for steps, _ in budgets.values()})),
        tokens=() if None in tokens else tuple(sorted(count for count in tokens if count is not None)),
    )


def _budgets(runs: Iterable[ExternalRun], metric: str) -> dict[int | None, tuple[int, float | None]]:
    """Return by seed the last step with a value of the metric and the logged tokens, of runs that did not diverge:
    these end where they end."""
    return {
        run.seed: (run.metrics[metric].last_step, run.metrics[TOKENS].last if TOKENS in run.metrics else None)
        for run in runs
        if not _has_diverged(run, metric)
    }


def _concerns(
    rows: Sequence[JudgedCandidate],
    judgeable: Sequence[ExternalRun],
    metric: str,
    of_row: Mapping[str, Sequence[ExternalRun]],
) -> Iterator[str]:
    """Yield the objections to the verdicts, the gravest first."""
    if len(rows) == 1:
        yield "one candidate alone: log or import the others under the same name of the experiment"
    short_candidates = [
        f"{row.candidate} {row.loss.n if row.loss else 0}"
        for row in rows
        if row.loss is None or row.loss.n < FAIR_SEEDS
    ]
    if short_candidates:
        counts = ", ".join(short_candidates)
        yield f"too few seeds: fewer than {FAIR_SEEDS} cannot show small differences (with a finite loss: {counts})"
    tried = {row.candidate: len(row.learning_rates) for row in rows}
    if len({*tried.values()}) > 1:
        counts = ", ".join(f"{name} {count}" for name, count in tried.items())
        yield f"not tuned equally: learning rates tried: {counts}"
    steps: dict[str, set[int]] = {row.candidate: set() for row in rows}
    for run in judgeable:  # those of all rates: a shorter one looks worse than it is
        if not _has_diverged(run, metric):
            steps[run.candidate].add(run.metrics[metric].last_step)
    if len({frozenset(of_candidate) for of_candidate in steps.values() if of_candidate}) > 1:
        budgets = ", ".join(f"{name} {_numbers(sorted(of_candidate))}" for name, of_candidate in steps.items())
        yield f"budgets differ: the last step with a loss: {budgets}"
    if len({row.tokens for row in rows if row.tokens}) > 1:
        budgets = ", ".join(f"{row.candidate} {_numbers(row.tokens)}" for row in rows)
        yield f"budgets differ: tokens: {budgets}"
    if differing := _differing_settings(of_row):
        yield f"the configuration differs between candidates, beside learning rate and seed: {'; '.join(differing)}"


def _rewound_runs(runs: Sequence[ExternalRun], metric: str) -> Iterator[str]:
    """Yield a sentence on runs of which some values are left out."""
    if rewound := Counter(run.candidate for run in runs if run.metrics[metric].left_out):
        yield (
            f"{pluralize(rewound.total(), 'run')} went back to an earlier step, as from a checkpoint, or had several "
            f"processes that logged at once: what this replaced is left out ({_counts_text(rewound)})"
        )


def _early_ends(runs: Sequence[ExternalRun], metric: str) -> Iterator[str]:
    """Yield a sentence on runs whose last loss is not of the end of the training."""
    early = [run for run in runs if _ends_early(run, metric) and not _has_diverged(run, metric)]
    if early:
        counts = Counter(run.candidate for run in early)
        yield (
            f"{pluralize(len(early), 'run')} went on without {metric}, so that the last one is not of the run's end "
            f"({_counts_text(counts)}): of {early[0].id} it is of step "
            f"{early[0].metrics[metric].last_step:,}, and the run logged until step {_last_step(early[0]):,}"
        )


MOST_SETTINGS = 8
"""The most settings that are named."""


def _differing_settings(of_row: Mapping[str, Sequence[ExternalRun]]) -> list[str]:
    """Return the settings that are constant within each candidate, and differ between candidates."""
    settings = {name: [dict(_settings(run)) for run in runs] for name, runs in of_row.items()}
    keys = {key for of_runs in settings.values() for config in of_runs for key in config}
    values = {
        key: {name: {_setting_text(config.get(key)) for config in of_runs} for name, of_runs in settings.items()}
        for key in keys
    }
    differing = [
        f"{key} ({', '.join(f'{name} {next(iter(texts))[:40]}' for name, texts in of_candidate.items() if texts)})"
        for key, of_candidate in sorted(values.items())
        if all(len(texts) <= 1 for texts in of_candidate.values())
        and len({value for texts in of_candidate.values() for value in texts}) > 1
    ]
    return differing[:MOST_SETTINGS] + (
        [f"and {len(differing) - MOST_SETTINGS} more"] if len(differing) > MOST_SETTINGS else []
    )


def _setting_text(value: JsonValue) -> str:
    """Return a setting as text; some trackers write every number with a point: 2.0 is 2."""
    if value is None:
        return "not logged"
    return json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value, sort_keys=True)


def _settings(run: ExternalRun) -> Iterator[tuple[str, JsonValue]]:
    """Yield a run's settings, those within others by `outer.inner`, without those that its own fields say, and without
    what else its source knows of it."""
    match run.config.get(IMPORTED):
        case {"map": dict(mapping)}:
            fields = map(str, mapping.values())
            mapped = {field.removeprefix("config.") for field in fields if field.startswith("config.")}
        case _:
            mapped = set()
    config = {name: value for name, value in run.config.items() if name != IMPORTED}
    return (pair for pair in flat_fields(config) if pair[0] not in mapped)


def _unchecked_sentences(runs: Sequence[ExternalRun], rows: Sequence[JudgedCandidate]) -> Iterator[str]:
    if any(run.workload is None for run in runs):
        yield "that all runs trained the same model on the same data: no workload was logged"
    else:
        yield "that runs of one workload trained the same model on the same data: the bench knows only its name"
    if without_rate := sorted({run.candidate for run in runs if run.lr is None}):
        yield f"that runs of one candidate had one learning rate where none was logged: {', '.join(without_rate)}"
    if not all(row.tokens for row in rows):
        yield f"that equal steps are equal budgets: log the metric `{TOKENS}`"
    if sources := sorted({run.source for run in runs} & END_UNKNOWN):
        yield f"that runs imported from {' and '.join(sources)} had ended: such files do not say so"
    yield "that every loss was taken on the same validation text, and on enough of it"
    yield "that no run was left out, and no other setting was tuned: the bench sees only what was logged"
    yield (
        "that the number of seeds was fixed before any result was seen: if seeds are added until there is a verdict, "
        "equal candidates look different in 17 % instead of 5 %"
    )


def _numbers(values: Collection[float]) -> str:
    return " and ".join(f"{value:,.0f}" for value in values) or "none"


def _counts_text(counts: Counter[str]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in counts.items())
