"""`partition-search` (beyond the paper): which blocks of a mixture of experts need momentum, found by a sweep."""

from dataclasses import dataclass

from orchestrator.rule_space import PLAN, PREFIX
from orchestrator.spaces import Choice
from orchestrator.studies import paper_setting, tiny_setting
from orchestrator.studies.effects import Effects, Trial, main_effects
from orchestrator.studies.evidence import Evidence, Scale
from orchestrator.studies.findings import (
    MARGIN_NATS,
    Answer,
    Judgement,
    Measure,
    above,
    all_of,
    ended_well,
    incomplete,
    measure,
    missing,
)
from orchestrator.studies.study import Part, Plan, Study
from orchestrator.sweeps import Searched, SweepSpec
from worker.spec import Resources

FULL, LOW, NONE = "full", "low-rank", "none"
CHEAPEST_FIRST = (NONE, LOW, FULL)


@dataclass(frozen=True, kw_only=True)
class Role:
    """Blocks that keep the same."""

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

    def kept(self) -> tuple[str, ...]:
        """All that it may keep, the cheapest first."""
        return tuple(each for each in CHEAPEST_FIRST if each in (self.planned, *self.others))


ROLES = (
    Role(name="embedding", pattern="*.embed_tokens.weight", planned=NONE, others=(LOW, FULL)),
    Role(name="query", pattern="*.q_proj.weight", planned=LOW, others=(NONE, FULL)),
    Role(name="key", pattern="*.k_proj.weight", planned=LOW, others=(NONE, FULL)),
    Role(name="value", pattern="*.v_proj.weight", planned=FULL, others=(NONE, LOW)),
    Role(name="attention output", pattern="*.o_proj.weight", planned=NONE, others=(LOW, FULL)),
    Role(name="router", pattern="*.mlp.gate.weight", planned=FULL, others=(NONE,)),
    Role(name="experts", pattern="*.experts.*", planned=LOW, others=(NONE, FULL)),
    Role(name="output head", pattern="lm_head.weight", planned=NONE, others=(LOW, FULL)),
)
"""Mixtral's blocks; the paper's models have neither routers nor experts."""
SEEDS = (1, 2, 3)
TRIALS = 20
"""A sweep: 60 in all tell 15 effects and three means apart with 42 degrees of freedom."""
MODELS = {Scale.TINY: "mixtral-tiny", Scale.PAPER: "mixtral-300m"}
RATES = {Scale.TINY: 4e-3, Scale.PAPER: 6e-4}
"""The paper's for GPT-2 at its scale; neither was tuned for these models."""
STEPS = 10_000
"""At the paper's scale: a fifth of its studies' trainings, for five times as many of them."""


def _part(scale: Scale, seed: int) -> Part:
    model = MODELS[scale]
    searched = Searched(
        optimizer="adapm",
        lr=RATES[scale],
        space={role.hyperparameter(): Choice(values=(PLAN, *role.others)) for role in ROLES},
    )
    paper = scale is Scale.PAPER
    spec = SweepSpec(
        name=f"study partition-search seed {seed}, {scale.value}",
        workload=paper_setting.workload(model, steps=STEPS) if paper else tiny_setting.workload(model=model),
        candidates=(searched,),
        algorithm="random",
        trials=TRIALS,
        seed=seed,
        resources=Resources(cpus=4, gpus=1) if paper else Resources(),
    )
    return Part(name=f"seed {seed}", spec=spec)


def judge(evidence: Evidence) -> Judgement:
    """What AdaPM's plan saves costs no role more than the margin, and less where it keeps all would cost more."""
    if lacking := incomplete(evidence, [part.name for part in STUDY.plans[evidence.scale].parts]):
        return lacking
    trials = [
        Trial(
            sweep=part.name,
            values={role.name: role.keeps(run.hyperparameters[role.hyperparameter()]) for role in ROLES},
            loss=run.loss,
        )
        for part in evidence.parts
        for run in ended_well(part.runs)
        if run.loss is not None
    ]
    effects = main_effects(trials, {role.name: FULL for role in ROLES})
    if effects is None:
        return missing(f"{len(trials)} trained trials are too few to tell the blocks apart")
    found = {role: _cheapest(role, effects) for role in ROLES}
    measures = [_cost(role, kept, effects) for role in ROLES for kept in role.kept() if kept != FULL]
    plans = (("AdaPM's plan, all roles", {role: role.planned for role in ROLES}), ("the plan found, all roles", found))
    measures += [_sum(name, plan, effects) for name, plan in plans]
    kept = "; ".join(
        f"{words} for {', '.join(role.name for role in ROLES if found[role] == each)}"
        for each, words in ((NONE, "none"), (LOW, "low rank"), (FULL, "full"))
        if each in found.values()
    )
    changed = [role for role in ROLES if found[role] != role.planned]
    differs = f"other than AdaPM's plan for {', '.join(role.name for role in changed)}" if changed else "AdaPM's plan"
    lost = sum(len(part.runs) for part in evidence.parts) - len(trials)
    notes = (
        f"Effects of each role by itself, over {effects.trials} trials of {len(SEEDS)} seeds; what roles do to each "
        "other is in the intervals.",
        *([f"{lost} trials without a trained model are left out."] if lost else []),
        *([f"The plan found, as rules: {' '.join(_rule(role, found[role]) for role in changed)}"] if changed else []),
    )
    return Judgement(
        measured=all_of(_answer(role, effects) for role in ROLES),
        sentence=f"The least momentum shown to cost a role no more than {MARGIN_NATS} nats: {kept} ({differs}).",
        measures=tuple(measures),
        notes=notes,
    )


def _answer(role: Role, effects: Effects) -> Answer:
    """Whether the role bears out AdaPM's plan: what it saves is cheap, and what it does not save would be dear."""
    if role.planned != FULL:
        dear = above(_cost(role, role.planned, effects), MARGIN_NATS)
        return {Answer.HOLDS: Answer.FAILS, Answer.FAILS: Answer.HOLDS}.get(dear, dear)
    return above(_cost(role, role.kept()[-2], effects), MARGIN_NATS)


def _cheapest(role: Role, effects: Effects) -> str:
    """The least that is shown to cost no more than the margin."""
    cheap = (
        kept for kept in role.kept() if kept == FULL or above(_cost(role, kept, effects), MARGIN_NATS) is Answer.FAILS
    )
    return next(cheap)


def _cost(role: Role, kept: str, effects: Effects) -> Measure:
    words = {NONE: "none", LOW: "low rank"}[kept]
    return measure(
        f"{role.name}: {words}",
        effects.of({role.name: kept}),
        note="as AdaPM's plan" if kept == role.planned else "",
    )


def _sum(name: str, plan: dict[Role, str], effects: Effects) -> Measure:
    return measure(name, effects.of({role.name: kept for role, kept in plan.items() if kept != FULL}))


def _rule(role: Role, kept: str) -> str:
    return f"--rule '{role.pattern}={kept}'"


STUDY = Study(
    name="partition-search",
    title="Which blocks of another architecture need momentum",
    question="Does AdaPM's partition fit a mixture of experts, and which one does a search find?",
    claim="Ours to ask: in Mixtral's architecture, of which the paper does not speak, no role loses more than 0.035 "
    "nats by what AdaPM's plan saves, and value and router would by less than full momentum.",
    source="beyond the paper",
    plans={scale: Plan(parts=tuple(_part(scale, seed) for seed in SEEDS)) for scale in Scale},
    judge=judge,
    caveats=(
        "One learning rate for all partitions, which was not tuned for any; a partition may train better at another.",
        "Routers are trained by the loss alone, without a term that balances experts.",
    ),
    axis="change of the loss against full momentum, nats",
    order=220,
)
