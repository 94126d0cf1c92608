"""`partition-search` (beyond the paper): which blocks of a mixture of experts need momentum, found by a sweep."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.analysis.statistics import CONFIDENCE, t_quantile
from orchestrator.kinds.block_rules import PLAN, PREFIX
from orchestrator.kinds.sweep import LR, SearchedCandidate, SweepSpec
from orchestrator.records import Interval
from orchestrator.studies import scales
from orchestrator.studies.evidence import Evidence, RunOutcome, StudyScale
from orchestrator.studies.findings import (
    MARGIN_NATS,
    ClaimVerdict,
    Judgement,
    Measure,
    all_hold,
    ended_well,
    figure_sentence,
    incomplete,
    lies_above,
    measure,
    missing,
    opposite,
)
from orchestrator.studies.study import Study, StudyPart
from orchestrator.tuning.search_spaces import Choice
from worker.words import pluralize

# Main effects: what each value of each hyperparameter adds to the loss, by least squares over a sweep's trials. Pure.
#
#     loss = mean of the sweep + sum over hyperparameters of the effect of its value + error
#
# Values are drawn by chance, so that effects are told apart; what hyperparameters do to each other, and chance, is
# the error. An effect is against a reference value, whose own is zero. Intervals are t-intervals of least squares.

Array = NDArray[np.float64]
Values = Mapping[str, str]
"""Hyperparameter → value."""

FEWEST_DEGREES = 10
"""With fewer degrees of freedom the t-quantile is wide, and the error is estimated from almost nothing."""


@dataclass(frozen=True, kw_only=True)
class SearchTrial:
    """One trial that ran its whole budget."""

    sweep: str
    """Trials of one sweep have a mean of their own: it holds what their seed does."""
    values: Values
    loss: float


@dataclass(frozen=True, kw_only=True)
class Effects:
    """The fitted effects."""

    references: Values
    """What effects are against: theirs are zero."""
    columns: tuple[tuple[str, str], ...]
    """(hyperparameter, value) of each coefficient, references left out."""
    coefficients: Array
    """Of the columns, p."""
    covariance: Array
    """p × p."""
    degrees: int
    trials: int
    comparisons: int
    """How many intervals hold together at the level of confidence, by Bonferroni."""

    def difference(self, values: Values, others: Values) -> Interval | None:
        """What these values add to the loss together, less what others do; None for one that no trial had. Values that
        are not given are the references."""
        given = {*values.items(), *others.items()}
        if not given <= {*self.columns, *self.references.items()}:
            return None
        mine, theirs = ([float(each.get(name) == value) for name, value in self.columns] for each in (values, others))
        weights = np.array(mine) - np.array(theirs)
        mean, error = float(weights @ self.coefficients), float(np.sqrt(weights @ self.covariance @ weights))
        half = t_quantile(self.degrees, 1 - (1 - CONFIDENCE) / (2 * self.comparisons)) * error
        return Interval(mean=mean, low=mean - half, high=mean + half, n=self.trials)


def main_effects(trials: Sequence[SearchTrial], references: Values, comparisons: int = 1) -> Effects | None:
    """The effects of every value but the references; None where the trials are too few to tell them apart."""
    sweeps = sorted({trial.sweep for trial in trials})
    columns = sorted({(name, trial.values[name]) for trial in trials for name in references} - set(references.items()))
    design = np.array(
        [
            [float(trial.sweep == each) for each in sweeps]
            + [float(trial.values[name] == value) for name, value in columns]
            for trial in trials
        ]
    ).reshape(len(trials), len(sweeps) + len(columns))
    degrees = len(trials) - design.shape[1]
    if not columns or degrees < FEWEST_DEGREES or np.linalg.matrix_rank(design) < design.shape[1]:
        return None
    losses = np.array([trial.loss for trial in trials])
    inverse = np.linalg.inv(design.T @ design)
    found = inverse @ design.T @ losses
    variance = float(np.sum((losses - design @ found) ** 2)) / degrees
    first = len(sweeps)
    return Effects(
        references=references,
        columns=tuple(columns),
        coefficients=found[first:],
        covariance=variance * inverse[first:, first:],
        degrees=degrees,
        trials=len(trials),
        comparisons=comparisons,
    )


FULL, LOW, NONE = "full", "low-rank", "none"
CHEAPEST_FIRST = (NONE, LOW, FULL)


@dataclass(frozen=True, kw_only=True)
class SearchedRole:
    """Blocks of one role, which keep the same, and what the search lets them keep."""

    name: str
    pattern: str
    planned: str
    """What AdaPM's own plan keeps of them."""
    others: tuple[str, ...]
    """What else they may keep."""

    def hyperparameter(self) -> str:
        """Its name in the sweep."""
        return f"{PREFIX}{self.pattern}"

    def keeps(self, value: object) -> str:
        """What a value of the hyperparameter means."""
        return self.planned if value == PLAN else str(value)

    def choices(self) -> tuple[str, ...]:
        """All that it may keep, the cheapest first."""
        return tuple(each for each in CHEAPEST_FIRST if each in (self.planned, *self.others))


ROLES = (
    SearchedRole(name="embedding", pattern="*.embed_tokens.weight", planned=NONE, others=(LOW, FULL)),
    SearchedRole(name="query", pattern="*.q_proj.weight", planned=LOW, others=(NONE, FULL)),
    SearchedRole(name="key", pattern="*.k_proj.weight", planned=LOW, others=(NONE, FULL)),
    SearchedRole(name="value", pattern="*.v_proj.weight", planned=FULL, others=(NONE, LOW)),
    SearchedRole(name="attention output", pattern="*.o_proj.weight", planned=NONE, others=(LOW, FULL)),
    SearchedRole(name="router", pattern="*.mlp.gate.weight", planned=FULL, others=(NONE,)),
    SearchedRole(name="experts", pattern="*.experts.*", planned=LOW, others=(NONE, FULL)),
    SearchedRole(name="output head", pattern="lm_head.weight", planned=NONE, others=(LOW, FULL)),
)
"""Mixtral's blocks; the paper's models have neither routers nor experts."""
SEEDS = (1, 2, 3)
TRIALS = 40
"""A sweep: every other one of the 120 finds a plan, and the rest judge it, with some 40 degrees of freedom each."""
MODELS = {StudyScale.TINY: "mixtral-tiny", StudyScale.PAPER: "mixtral-300m"}
RATES = {StudyScale.TINY: (2e-3, 4e-3, 8e-3), StudyScale.PAPER: (3e-4, 6e-4, 1.2e-3)}
"""Drawn like the rest: a role's effect is its mean over them. At the paper's scale around its rate for GPT-2."""
STEPS = 10_000
"""At the paper's scale: a fifth of its studies' trainings, for five times as many of them."""


def _part(scale: StudyScale, seed: int) -> StudyPart:
    model = MODELS[scale]
    searched = SearchedCandidate(
        optimizer="adapm",
        space={LR: Choice(values=RATES[scale])}
        | {role.hyperparameter(): Choice(values=(PLAN, *role.others)) for role in ROLES},
    )
    paper = scale is StudyScale.PAPER
    spec = SweepSpec(
        name=f"study partition-search seed {seed}, {scale.value}",
        workload=scales.workload(scale, model, steps=STEPS if paper else None),
        candidates=(searched,),
        algorithm="random",
        trials=TRIALS,
        seed=seed,
        resources=scales.run_resources(scale),
    )
    return StudyPart(name=f"seed {seed}", spec=spec)


def judge(evidence: Evidence) -> Judgement:
    """What AdaPM's plan saves costs no role more than the margin, and less where it keeps all would cost more."""
    if lacking := incomplete(evidence, [part.name for part in STUDY.plans[evidence.scale].parts]):
        return lacking
    references = {LR: f"{RATES[evidence.scale][0]:g}"} | {role.name: FULL for role in ROLES}
    halves = [
        [_trial(part.name, run) for part in evidence.parts for run in ended_well(part.runs[half::2])] for half in (0, 1)
    ]
    trials = [each for half in halves for each in half]
    effects, *of_half = [main_effects(each, references, len(ROLES)) for each in (trials, *halves)]
    searched, fresh = of_half
    if effects is None or searched is None or fresh is None:
        return missing(f"{len(trials)} trained trials are too few to tell the blocks apart")
    planned, found = {role: role.planned for role in ROLES}, {role: _cheapest(role, searched) for role in ROLES}
    whole = measure(WHOLE_PLAN, _total(planned, {}, effects))
    measures = [_cost(role, kept, effects) for role in ROLES for kept in role.choices() if kept != FULL]
    measures.append(whole)
    notes = [
        f"Effects of each role by itself, over {effects.trials} trials of {len(SEEDS)} seeds; what roles do to each "
        f"other is in the intervals, of which {len(ROLES)}, one a role, hold together."
    ]
    if set(found.values()) == {FULL}:
        sentence = (
            "No saving was shown role by role: by half of the trials less than full momentum may cost any role more "
            f"than {MARGIN_NATS} nats. {figure_sentence(whole, unit=' nats')}."
        )
    else:
        sentence = (
            f"The least momentum that half of the trials show to cost a role no more than {MARGIN_NATS} nats: "
            f"{_words(found)}."
        )
        notes.append(
            "The plan is found on every other trial and judged on the rest: by its own trials the best of many plans "
            "looks better than it is."
        )
        if found != planned:
            change = measure("the plan found − AdaPM's, by the other half", _total(found, planned, fresh))
            measures.append(change)
            notes.append(_rules(found, change))
    if lost := sum(len(part.runs) for part in evidence.parts) - len(trials):
        verb = pluralize(lost, "trial without a trained model is", "trials without a trained model are")
        notes.append(f"{verb} left out.")
    return Judgement(
        measured=all_hold(_answer(role, effects) for role in ROLES),
        sentence=sentence,
        measures=tuple(measures),
        notes=tuple(notes),
    )


WHOLE_PLAN = "AdaPM's plan − full momentum, all roles"
KeptByRole = Mapping[SearchedRole, str]


def _words(found: KeptByRole) -> str:
    """`none for embedding; full for value (other than AdaPM's plan for embedding)`."""
    kept = "; ".join(
        f"{words} for {', '.join(role.name for role in ROLES if found[role] == each)}"
        for each, words in ((NONE, "none"), (LOW, "low rank"), (FULL, "full"))
        if each in found.values()
    )
    changed = ", ".join(role.name for role in ROLES if found[role] != role.planned)
    return f"{kept} ({'other than ' if changed else ''}AdaPM's plan{' for ' if changed else ''}{changed})"


def _rules(found: KeptByRole, change: Measure) -> str:
    """How to train by the plan that was found, where fresh trials show it to be no worse than AdaPM's."""
    if opposite(lies_above(change, MARGIN_NATS)) is not ClaimVerdict.HOLDS:
        return "The plan found is not shown to end as low as AdaPM's, to within the margin: it is none to train by."
    rules = (f"--rule '{role.pattern}={found[role]}'" for role in ROLES if found[role] != role.planned)
    return f"The plan found, as rules: {' '.join(rules)}"


def _trial(sweep: str, run: RunOutcome) -> SearchTrial:
    values = {role.name: role.keeps(run.hyperparameters[role.hyperparameter()]) for role in ROLES}
    assert run.loss is not None  # it ended well
    return SearchTrial(sweep=sweep, values=values | {LR: f"{run.lr:g}"}, loss=run.loss)


def _total(plan: KeptByRole, other: KeptByRole, effects: Effects) -> Interval | None:
    """What a whole plan adds to the loss, less what another does; roles that are not given keep all."""
    values, others = ({role.name: kept for role, kept in each.items()} for each in (plan, other))
    return effects.difference(values, others)


def _answer(role: SearchedRole, effects: Effects) -> ClaimVerdict:
    """Whether the role bears out AdaPM's plan: what it saves is cheap, and what it does not save would be dear."""
    if role.planned != FULL:
        return opposite(lies_above(_cost(role, role.planned, effects), MARGIN_NATS))
    return lies_above(_cost(role, role.choices()[-2], effects), MARGIN_NATS)


def _cheapest(role: SearchedRole, effects: Effects) -> str:
    """The least that is shown to cost no more than the margin."""
    cheap = (
        kept
        for kept in role.choices()
        if kept == FULL or lies_above(_cost(role, kept, effects), MARGIN_NATS) is ClaimVerdict.FAILS
    )
    return next(cheap)


def _cost(role: SearchedRole, kept: str, effects: Effects) -> Measure:
    words = {NONE: "none", LOW: "low rank"}[kept]
    return measure(
        f"{role.name}: {words}",
        effects.difference({role.name: kept}, {}),
        note="as AdaPM's plan" if kept == role.planned else "",
    )


STUDY = Study(
    name="partition-search",
    title="Which blocks of another architecture need momentum",
    question="Does AdaPM's partition fit a mixture of experts, and which one does a search find?",
    claim="Ours to ask: in Mixtral's architecture, of which the paper does not speak, no role loses more than "
    f"{MARGIN_NATS} nats by what AdaPM's plan saves, and value and router would by less than full momentum.",
    source="beyond the paper",
    plans=scales.plans(lambda scale: [_part(scale, seed) for seed in SEEDS], MODELS),
    judge=judge,
    caveats=(
        "Each trial draws one of three learning rates, and effects are means over them: no partition is tuned by "
        "itself.",
        "Routers are trained by the loss alone, without a term that balances experts.",
    ),
    axis="change of the loss against full momentum, nats",
    order=220,
)
