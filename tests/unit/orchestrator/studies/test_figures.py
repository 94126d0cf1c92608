"""Measures of the studies' own modules, on results with a planted truth."""

import math
import random
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import pytest

from orchestrator.kinds.sweep import SweepSpec
from orchestrator.studies.claims import ClaimVerdict, Finding
from orchestrator.studies.debias_theorem import figures as debias_theorem
from orchestrator.studies.gathering import ResultSource, gather
from orchestrator.studies.partition_search.figures import PATTERNS, PLANNED, SearchTrial, main_effects
from orchestrator.studies.registry import figures_of, study
from orchestrator.studies.residual_stationarity import figures as residual_stationarity
from orchestrator.studies.result import PartResult, RunOutcome, StudyResult
from orchestrator.studies.study import StudyScale
from orchestrator.sweeps.report import report
from orchestrator.sweeps.trials import planned_parameters, trial_run
from tests.factories.comparison import Outcome, run_record
from tests.factories.stores import result
from tests.factories.study_results import DIVERGED, judged, made_result, with_tokens
from tests.factories.sweep import sweep_record
from worker.records.result import Observation, Verdict

SUPPORTED, CONTRADICTED, UNDECIDED = ClaimVerdict.SUPPORTED, ClaimVerdict.CONTRADICTED, ClaimVerdict.UNDECIDED
BASE = (2.50, 2.52, 2.48)


def words(finding: Finding) -> dict[str, ClaimVerdict]:
    return {measure.name: measure.verdict for measure in finding.measures if measure.verdict is not None}


def computed(name: str, values: Mapping[str, float]) -> Finding:
    return judged(study(name), StudyResult(study=name, scale=StudyScale.TINY, computed=dict(values)))


# Memory and theorem 2


PAPER_STATES_GB = {
    "llama-340m": {"adamw": 2.72, "adam-mini": 1.36, "adapm": 1.48, "adapm-mini": 0.12},
    "gpt2-1.5b": {"adamw": 12.48, "adam-mini": 6.24, "adapm": 6.98, "adapm-mini": 0.74},
}
"""Table 2 of the paper (arXiv 2510.09103): state in float32, in 1e9 bytes."""


def memory(factors: Mapping[str, float]) -> Finding:
    """Every figure of the paper, times what an optimizer's factor is."""
    return computed(
        "memory-table",
        {
            f"{model}/{optimizer}/float32": factors.get(optimizer, 1.0) * gigabytes * 1e9
            for model, states in PAPER_STATES_GB.items()
            for optimizer, gigabytes in states.items()
        },
    )


def test_the_saving_of_state_decides_and_the_papers_figure_stands_beside_it() -> None:
    assert memory({}).answer is SUPPORTED
    assert memory({"adapm": 1.05, "adapm-mini": 1.3}).answer is SUPPORTED, "larger than the paper's, and small"
    dear = memory({"adapm": 1.2})
    assert list(words(dear).values()).count(CONTRADICTED) == 2
    share = next(measure for measure in dear.measures if measure.candidate == "gpt2-1.5b adapm")
    assert share.value == pytest.approx(1.2 * 6.98 / 12.48)
    assert share.claimed == 0.559
    assert computed("memory-table", {}).answer is ClaimVerdict.MISSING


def debias(factor: float, plain: float = 9.0) -> dict[str, ClaimVerdict]:
    """The bias at every t, in units of the theorem's bound."""
    values = {"C": 1.0}
    for t in debias_theorem.STEPS:
        bound = debias_theorem.BETA1 ** (t + 1) / (1 - debias_theorem.BETA1)
        values |= {f"bias/{t}": factor * bound, f"error/{t}": 1e-6, f"plain/{t}": plain}
    return words(computed("debias-theorem", values))


def test_theorem_2_is_held_against_its_bound_and_against_no_correction() -> None:
    assert set(debias(0.9).values()) == {SUPPORTED}
    forgotten = debias(1 / debias_theorem.BETA1)
    assert list(forgotten.values()).count(SUPPORTED) == 1, "it is smaller than without correction"
    assert CONTRADICTED in debias(0.9, plain=1e-9).values()


# Theorem 1


def theory(
    risk: Callable[[str, str, int, int], float], lost: Collection[tuple[str, int]] = ()
) -> dict[str, ClaimVerdict]:
    """Return the verdicts with `risk(regime, candidate, steps, seed)`; `lost`: the diverged runs by seed."""
    subject = study("momentum-theory")
    parts: list[PartResult] = []
    for part, spec in subject.scales[StudyScale.TINY].items():
        regime, steps = part.split(", ")[0], spec.workload.budget.steps
        ends: dict[str, list[Outcome]] = {
            name: [
                DIVERGED if (name, seed) in lost else with_tokens(risk(regime, name, steps, seed), steps)
                for seed in (1, 2, 3, 4, 5)
            ]
            for name in ("SGD", "ASGD")
        }
        parts += made_result(subject, ends, only=[part]).parts
    return words(judged(subject, StudyResult(study=subject.name, scale=StudyScale.TINY, parts=tuple(parts))))


def risk_of(rates: Mapping[str, float], factors: Mapping[str, float], noise: float = 0.01) -> Any:
    """A power law by the regime, whose accelerated SGD has so many times SGD's risk."""
    chance = random.Random(2)

    def risk(regime: str, name: str, steps: int, seed: int) -> float:
        factor = factors[regime] if name == "ASGD" else 1.0
        return float(factor * steps ** rates[regime] * math.exp(chance.gauss(0, noise)))

    return risk


BOUNDS = {"a > b": -0.25, "a <= b": -0.5}
HELPS_WHERE_CLAIMED = {"a > b": 0.6, "a <= b": 1.7}


def test_theorem_1_is_found_where_it_was_planted() -> None:
    assert set(theory(risk_of(BOUNDS, HELPS_WHERE_CLAIMED)).values()) == {SUPPORTED}
    everywhere = theory(risk_of(BOUNDS, {"a > b": 0.6, "a <= b": 0.6}))
    (wrong,) = (name for name, word in everywhere.items() if word is CONTRADICTED)
    assert "a <= b" in wrong
    verdicts = theory(risk_of(dict.fromkeys(BOUNDS, 0.0), HELPS_WHERE_CLAIMED))
    assert list(verdicts.values()).count(CONTRADICTED) == 4, "no exponent falls as the bound does"


def test_the_bounds_of_theorem_1_leave_a_logarithm_open() -> None:
    """A faster exponent contradicts nothing, nor does one slower by a factor log T."""
    faster = theory(risk_of({regime: 1.5 * rate for regime, rate in BOUNDS.items()}, HELPS_WHERE_CLAIMED))
    assert CONTRADICTED not in faster.values()
    plain = risk_of(BOUNDS, HELPS_WHERE_CLAIMED)
    logarithm = theory(lambda *arguments: plain(*arguments) * math.log(arguments[2]))
    assert CONTRADICTED not in logarithm.values()


def test_exponents_over_the_runs_that_are_left_say_nothing_of_those_that_diverged() -> None:
    verdict_by_name = theory(risk_of(BOUNDS, HELPS_WHERE_CLAIMED), lost={("ASGD", 1)})
    of_asgd = [word for name, word in verdict_by_name.items() if name.startswith("ASGD") and "exponent" in name]
    assert of_asgd == [UNDECIDED, UNDECIDED]


# Probes


def observed(probe: str, step: int, **values: float) -> Observation:
    names = ("transformer.wte.weight", "h.0.attn.c_attn.weight:query", "h.0.attn.c_attn.weight:key",
             "h.0.attn.c_attn.weight:value", "h.0.attn.c_proj.weight", "h.0.mlp.c_fc.weight")  # fmt: skip
    return Observation(step=step, probe=probe, blocks=dict.fromkeys(names, values))


def watched(name: str, *seen: Observation, losses: Any = BASE) -> Finding:
    subject = study(name)
    optimizer = "adapm" if name == "residual-stationarity" else "adamw"
    return judged(subject, made_result(subject, {optimizer: losses}, observations=seen))


def test_spectra_and_sparsity_are_read_at_the_first_observed_step() -> None:
    observations = [
        observed("gradient-sparsity", 20, rows_near_zero=0.2, columns_near_zero=0.8),
        observed("momentum-spectrum", 20, energy_top_5_percent=0.7),
        observed("momentum-spectrum", 40, energy_top_5_percent=0.1),
    ]
    sparse, spectral = watched("gradient-sparsity", *observations), watched("momentum-spectrum", *observations)
    assert {measure.candidate: measure.value for measure in sparse.measures}["attention output"] == pytest.approx(0.8)
    assert {measure.candidate: measure.value for measure in spectral.measures}["MLP"] == pytest.approx(0.7)
    assert (sparse.answer, spectral.answer) == (SUPPORTED, SUPPORTED), "equal values need no interval"
    assert watched("momentum-spectrum", *observations, losses=(DIVERGED,)).answer is ClaimVerdict.MISSING
    assert watched("momentum-spectrum").answer is ClaimVerdict.MISSING
    flat = watched("momentum-spectrum", observed("momentum-spectrum", 20, energy_top_5_percent=0.3))
    assert flat.answer is CONTRADICTED


def test_a_drift_of_the_residuals_is_measured_in_logarithms() -> None:
    """Quantiles that grow by 2 % a step drift by 20 % from one half of the window to the other."""
    quantiles = residual_stationarity.QUANTILES

    def window(growth: float) -> list[Observation]:
        return [observed("residual", step, **dict.fromkeys(quantiles, math.exp(growth * step))) for step in range(20)]

    roles = residual_stationarity.LOW_RANK_ROLES
    assert residual_stationarity.observe(window(0.02)) == pytest.approx(dict.fromkeys(roles, 0.2))
    assert residual_stationarity.observe(window(0.02)[:19]) == {}
    assert watched("residual-stationarity", *window(0.005)).answer is SUPPORTED
    assert watched("residual-stationarity", *window(0.02)).answer is CONTRADICTED


# Device-hours


def capped(batches: Mapping[str, int], speeds: Mapping[str, tuple[float, ...]]) -> StudyResult:
    """Micro-batch and tokens per second of each seed under every cap; who has none ran out of memory."""
    lost = result(final_val_loss=None, verdict=Verdict.OUT_OF_MEMORY)
    ends: dict[str, Any] = {name: [lost] * 3 for name in ("adamw", "adam-mini", "adapm", "adapm-mini")}
    for name, of_seeds in speeds.items():
        update = {"micro_batch_sequences": batches[name]}
        ends[name] = [
            result(final_val_loss=3.0).model_copy(update=update | {"tokens_per_second": speed}) for speed in of_seeds
        ]
    return made_result(study("gpu-hours"), ends)


def hours(result: StudyResult) -> list[ClaimVerdict]:
    """Return the verdicts on the claims."""
    return list(words(judged(study("gpu-hours"), result)).values())


SMALL = {"adamw": 4, "adam-mini": 5, "adapm": 6, "adapm-mini": 8}


def test_hours_under_a_cap_are_saved_by_larger_and_faster_batches() -> None:
    assert set(hours(capped(SMALL, {name: (100.0 * size,) * 3 for name, size in SMALL.items()}))) == {SUPPORTED}
    slower = hours(capped(SMALL, {name: (100.0 / size,) * 3 for name, size in SMALL.items()}))
    assert slower.count(CONTRADICTED) == 4, "of two optimizers under two caps"
    smaller = hours(capped(SMALL | {"adapm": 3}, {name: (100.0 * size,) * 3 for name, size in SMALL.items()}))
    assert smaller.count(CONTRADICTED) == 2


def test_hours_are_the_ratio_of_each_pair_of_seeds() -> None:
    speeds = dict.fromkeys(SMALL, (100.0, 100.0, 100.0)) | {"adapm": (50.0, 100.0, 200.0)}
    finding = judged(study("gpu-hours"), capped(SMALL, speeds))
    share = next(m for m in finding.measures if m.candidate == "adapm" and m.metric.startswith("device-hours"))
    assert share.value == pytest.approx(1.0)
    assert share.low is not None and share.high is not None
    assert share.low == pytest.approx(1 / share.high) and share.low < 0.5 and share.n == 3


# Laws

SIZES = {"gpt2-nano": 81_216, "gpt2-micro": 274_640, "gpt2-tiny": 859_392}


def scaling(lead: Callable[[float], float], lost: bool = False) -> list[ClaimVerdict]:
    """AdamW's losses fall by a power of size; AdaPM's lie so much above them; ten seeds whose luck both share."""
    subject, chance = study("scaling-law"), random.Random(1)

    def ends(model: str) -> dict[str, list[Outcome]]:
        size = SIZES[model]
        law = 2.2 * (size / SIZES["gpt2-nano"]) ** -0.06
        luck = [chance.gauss(0, 0.002) for _ in range(10)]
        adapm = [law + lead(size) + shift + chance.gauss(0, 0.002) for shift in luck]
        ended: dict[str, list[Outcome]] = {
            "adamw": [with_tokens(law + shift, 10**6, size) for shift in luck],
            "adapm": [with_tokens(loss, 10**6, size) for loss in adapm],
        }
        return ended | ({"adapm": [DIVERGED, *ended["adapm"][1:]]} if lost and model == "gpt2-tiny" else {})

    return list(words(judged(subject, made_result(subject, ends))).values())


def growing(at_the_largest: float) -> Callable[[float], float]:
    """Return a growth from nothing at the smallest size to that at the largest, on a logarithmic scale of sizes."""
    span = math.log(SIZES["gpt2-tiny"] / SIZES["gpt2-nano"])
    return lambda size: at_the_largest * math.log(size / SIZES["gpt2-nano"]) / span


def test_a_deficit_that_grows_with_size_is_seen_and_one_that_does_not_is_none() -> None:
    assert scaling(growing(0.1))[0] is CONTRADICTED
    assert scaling(growing(-0.1))[0] is SUPPORTED
    assert scaling(lambda _size: 0.0) == [SUPPORTED, SUPPORTED]
    assert scaling(lambda _size: 0.1)[0] is SUPPORTED, "worse everywhere, but not with size"
    assert scaling(lambda _size: 0.0, lost=True)[0] is UNDECIDED
    assert SUPPORTED not in scaling(lambda size: 0.3 * (size == SIZES["gpt2-micro"]))


# Effects of a sweep

COSTS = {"query": {"none": 0.2, "low-rank": 0.002}, "value": {"none": 0.5, "low-rank": 0.1}, "router": {"none": 0.3}}


def planted(values: Mapping[str, str], noise: float = 0.0) -> float:
    """A loss to which every role adds what it costs."""
    return 2.5 + sum(COSTS.get(role, {}).get(setting, 0.0) for role, setting in values.items()) + noise


def searched(loss: Callable[[dict[str, str], random.Random], float | None]) -> Finding:
    """All trials of the study's own sweeps; None diverged."""
    subject, parts = study("partition-search"), []
    for name, spec in subject.scales[StudyScale.TINY].items():
        assert isinstance(spec, SweepSpec)
        chance, runs = random.Random(name), []
        for number in range(spec.run_count()):
            parameters = planned_parameters(spec, number)
            assert parameters is not None
            values = {role: str(parameters[f"rule:{pattern}"]) for role, pattern in PATTERNS.items()}
            ended = loss({role: PLANNED[role] if v == "plan" else v for role, v in values.items()}, chance)
            runs.append(
                RunOutcome(
                    candidate="adapm",
                    lr=float(str(parameters["lr"])),
                    seed=spec.seed,
                    ended=Verdict.DIVERGED if ended is None else Verdict.CONVERGED,
                    loss=ended,
                    hyperparameters=parameters,
                )
            )
        parts.append(PartResult(name=name, identity="", complete=True, candidates=(), runs=tuple(runs)))
    return judged(subject, StudyResult(study=subject.name, scale=StudyScale.TINY, parts=tuple(parts)))


def test_what_every_role_costs_is_found() -> None:
    """AdaPM's plan is right where query is cheap at low rank, value and router are dear, and all else is free."""
    finding = searched(lambda values, chance: planted(values, chance.gauss(0, 0.005)))
    assert finding.answer is SUPPORTED
    values = {measure.candidate: measure for measure in finding.measures}
    assert values["value: low-rank"].value == pytest.approx(0.1, abs=0.01)
    assert values["query: none"].value == pytest.approx(0.2, abs=0.01)
    whole = values["AdaPM's plan: all roles"]
    assert whole.low is not None and whole.high is not None and whole.low < 0.002 < whole.high
    dear = searched(lambda values, chance: planted(values, chance.gauss(0, 0.005)) + 0.2 * (values["key"] != "full"))
    assert CONTRADICTED in [word for name, word in words(dear).items() if name.startswith("key: low-rank")]


def test_noise_leaves_effects_undecided_and_nothing_trained_says_nothing() -> None:
    def noise(values: dict[str, str], chance: random.Random) -> float | None:
        return None if chance.random() < 0.1 else planted({}, chance.gauss(0, 0.5))

    assert searched(noise).answer is UNDECIDED
    assert searched(lambda values, chance: None).answer is ClaimVerdict.MISSING


def test_effects_lie_within_their_intervals_as_often_as_these_say() -> None:
    """Intervals of eight roles that hold together are of 99.4 % each."""
    chance = random.Random(1)
    choices = {role: ("none", "full") if role == "router" else ("none", "low-rank", "full") for role in PATTERNS}
    inside = count = 0
    for _ in range(100):
        drawn = [{role: chance.choice(options) for role, options in choices.items()} for _ in range(60)]
        trials = [
            SearchTrial(sweep=str(index % 3), values=values, loss=planted(values, chance.gauss(0, 0.03)))
            for index, values in enumerate(drawn)
        ]
        effects = main_effects(trials, dict.fromkeys(PATTERNS, "full"))
        assert effects is not None
        for role, setting in effects.columns:
            interval = effects.sum_of({role: setting})
            assert interval.low is not None and interval.high is not None
            inside += interval.low <= COSTS.get(role, {}).get(setting, 0.0) <= interval.high
            count += 1
    assert count == 100 * 15
    assert 0.985 <= inside / count <= 0.999


def test_effects_are_those_of_least_squares() -> None:
    """The readable twin: a factor of two values and one mean is a difference of means."""
    trials = [SearchTrial(sweep="a", values={"x": "off" if n % 2 else "on"}, loss=n**0.5) for n in range(16)]
    effects = main_effects(trials, {"x": "off"})
    assert effects is not None
    on, off = ([trial.loss for trial in trials if trial.values["x"] == value] for value in ("on", "off"))
    assert effects.sum_of({"x": "on"}).mean == pytest.approx(np.mean(on) - np.mean(off))
    assert main_effects(trials[:11], {"x": "off"}) is None, "nine degrees of freedom are too few"


def test_a_sweeps_trials_are_kept_with_their_hyperparameters() -> None:
    subject = study("partition-search")
    spec = subject.scales[StudyScale.TINY]["seed 1"]
    assert isinstance(spec, SweepSpec)
    wanted = [planned_parameters(spec, number) or {} for number in range(3)]
    ends = (2.6, 2.4, DIVERGED)
    runs = tuple(run_record(trial_run(spec, n, wanted[n]), n, ends[n], experiment="s0") for n in range(3))
    source = ResultSource(
        compare=lambda _: pytest.fail("a sweep is not a comparison"),
        sweep=lambda _: report(sweep_record(spec, 3, done=False), runs),
        runs=lambda _: runs,
        observations=lambda _: (),
        fit=lambda *_: None,
    )
    (part,) = gather(subject, figures_of(subject.name), StudyScale.TINY, {"seed 1": "s0"}, source).parts
    assert [run.hyperparameters for run in part.runs] == wanted
    assert [run.loss for run in part.runs] == [2.6, 2.4, None]
    (adapm,) = part.candidates
    assert adapm.loss is not None and (adapm.loss.mean, adapm.loss.n, adapm.lost) == (2.4, 1, 1)
    assert not part.complete
