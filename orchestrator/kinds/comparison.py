"""Comparisons: what a user asks for, and the runs that it expands into.

A comparison is optimizers × learning rates × seeds over one workload; with `tuning`, optimizers × learning rates ×
tuning seeds first, then the winners × seeds (`tuning.py`). Its expansion is a pure function with a fixed order, so that
the same specification always means the same runs.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from optim import catalog
from optim.catalog import Scalar
from orchestrator.kinds import tuning_search
from orchestrator.kinds.basin import LEAST_OPEN
from orchestrator.kinds.coordinate_descent import Descent, rate_of
from orchestrator.kinds.experiment import Cell, Experiment, PlannedRun, Share
from orchestrator.kinds.fields import LearningRates, LimitSeconds, OwnSchedule, Priority, Seeds, write_out_schedule
from orchestrator.kinds.tuning import Tuning, TuningGroup, TuningRun, descent
from orchestrator.kinds.tuning_search import AXES, FIELDS, Axis, Prior, Setting, axes_in_words, least_draws
from orchestrator.names import CandidateName
from worker.schema import CountOrZero, Flag, Spec, SpecFault, is_stored, omit_default, raise_faults
from worker.spec.parts import USUAL_DECAY_SHARE
from worker.spec.run import (
    EmaDecay,
    OptimizerName,
    OptimizerSpec,
    Resources,
    Rules,
    RunSpec,
    Workload,
    averaging_faults,
    option_faults,
)
from worker.words import pluralize

EQUIVALENCE_MARGIN = 0.01
"""Nats. Optimizers that were tuned alike differ by 0.002 to 0.013 on our workloads: less is no reason to choose one."""
MOST_SEQUENTIAL_SEEDS = 64
"""Reckoning the levels of so many looks takes a second."""
MOST_TRY_SEEDS = 128
"""Of a try of a campaign, whose looks cost next to nothing."""
MAX_RUNS = 10_000
"""One experiment's cap: 10,000 runs keep the submitting transaction below a few seconds."""


class Candidate(Spec):
    """One optimizer of a comparison, with its own learning-rate grid."""

    optimizer: OptimizerName
    learning_rates: LearningRates
    options: dict[str, Scalar] = Field(default_factory=dict)
    warmup_steps: CountOrZero | None = omit_default(None)
    """Warm-up of this candidate, which is a hyperparameter like others; null is the workload's."""
    schedule: OwnSchedule | None = omit_default(None)
    """What this candidate's rate does after the warm-up; null is the workload's. An optimizer that replaces the decay,
    schedule-free AdamW, has a constant rate where nothing is said."""
    ema_decay: EmaDecay | None = omit_default(None)
    """Validate this candidate's averaged weights, `workload.ema_decay`; null is the workload's."""
    rules: Rules = omit_default(())
    """What some blocks keep instead of what the optimizer's plan says."""
    label: CandidateName | None = None
    """The name in tables; tells two candidates with the same optimizer apart. Default: the optimizer's name."""

    @model_validator(mode="before")
    @classmethod
    def _write_out_schedule(cls, fields: Any) -> Any:
        """A stored comparison must mean the same when the catalog has changed."""
        return fields if is_stored() else write_out_schedule(fields)

    @model_validator(mode="after")
    def _require_known_options(self) -> Self:
        if not is_stored():
            found = option_faults(self.optimizer, self.options, self.rules)
            found += averaging_faults(self.ema_decay, self.optimizer, ("ema_decay",))
            raise_faults(type(self).__name__, found)
        return self

    def name(self) -> str:
        """What tables, figures and colours call this candidate."""
        return self.label or self.optimizer

    def title(self) -> str:
        """What sentences call it."""
        entry = catalog.find(self.optimizer)
        return self.label or (entry.title if entry else self.optimizer)

    def planned_run(
        self, workload: Workload, resources: Resources, *, lr: float, seed: int, setting: Setting | None = None
    ) -> PlannedRun:
        """One run of the candidate; `setting`: of a trial that searches more than the rate. Nothing is
        checked: it follows from what was."""
        changed = dict(setting or {}) | {"lr": lr}
        workload = self.own_workload(workload)
        if (warmup := changed.pop("warmup_steps", None)) is not None:
            schedule = workload.schedule.model_copy(update={"warmup_steps": warmup})
            workload = workload.model_copy(update={"schedule": schedule})
        if "clip_grad_norm" in changed:
            workload = workload.model_copy(update={"clip_grad_norm": changed.pop("clip_grad_norm")})
        del changed["lr"]
        options = {**self.options, **changed}
        optimizer = OptimizerSpec.model_construct(name=self.optimizer, lr=lr, options=options, rules=self.rules)
        spec = RunSpec.model_construct(workload=workload, optimizer=optimizer, seed=seed, resources=resources)
        return PlannedRun.model_construct(candidate=self.name(), spec=spec)

    def fix_setting(self, setting: Setting) -> "Candidate":
        """The same at one setting that tuning found; what all candidates share, the clipping norm, stays as it is."""
        own = {name: value for name, value in setting.items() if name not in ("lr", "clip_grad_norm")}
        warmup_steps = own.pop("warmup_steps", self.warmup_steps)
        changed = {"learning_rates": (setting["lr"],), "warmup_steps": warmup_steps, "options": {**self.options, **own}}
        return self.model_copy(update=changed)

    def own_training(self) -> str:
        """What it does otherwise than the workload says, in words; empty where it does nothing otherwise."""
        words = [str(self.schedule)] if self.schedule is not None else []
        if self.warmup_steps is not None:
            words.append(f"warm-up of {pluralize(self.warmup_steps, 'step')}")
        if self.ema_decay is not None:
            words.append(f"weights averaged ({self.ema_decay:g})")
        return ", ".join(words)

    def own_workload(self, workload: Workload) -> Workload:
        """With the candidate's own warm-up, schedule and average."""
        own = {} if self.schedule is None else self.schedule.model_dump(exclude_none=True)
        if self.warmup_steps is not None:
            own["warmup_steps"] = self.warmup_steps
        if own:
            if own.get("shape", workload.schedule.shape) != "wsd":
                own["decay_share"] = USUAL_DECAY_SHARE
            workload = workload.model_copy(update={"schedule": workload.schedule.model_copy(update=own)})
        return workload if self.ema_decay is None else workload.model_copy(update={"ema_decay": self.ema_decay})


class ImprovementTest(Spec):
    """What one try of a campaign asks: whether the candidate is better than the baseline, at an error of its own."""

    level: Annotated[float, Field(strict=True, gt=0, lt=0.5)]
    """One-sided: the chance of calling a candidate better that is not."""
    gain: Annotated[float, Field(strict=True, gt=0, le=1e6)]
    """In units of the loss, what is worth finding; a pair counts at most twice it, whichever way. About the standard
    deviation of a paired difference is right."""


class Sequential(Spec):
    """Seeds are added while a verdict is open: the first few of `seeds` begin, and not all may be needed."""

    first_seeds: Annotated[int, Field(strict=True, ge=2, le=MOST_SEQUENTIAL_SEEDS)] = 3
    """Of `seeds`, at the first look."""
    seeds_per_look: Annotated[int, Field(strict=True, ge=1, le=MOST_SEQUENTIAL_SEEDS)] = 1
    """Added for each candidate that is neither decided nor hopeless; more keep more devices at work, and cost runs."""
    improvement: ImprovementTest | None = omit_default(None)
    """Add seeds until this is decided or hopeless, instead of the comparison's own verdict: what campaigns do."""


class KeptRates(Spec):
    """What another comparison's tuning left open of the rates, or settings, that it judged, and that this one keeps."""

    experiment: Annotated[str, Field(pattern=r"^[a-z0-9]{1,64}$")]
    """Its id."""
    regrets: dict[str, Annotated[float, Field(strict=True, ge=0, le=1e6)] | None]
    """Candidate → how much lower its loss may be at a better one, in the unit of the loss; null: by any amount. The
    intervals hold it."""


Candidates = Annotated[tuple[Candidate, ...], Field(min_length=1, max_length=64)]
Baseline = Annotated[
    str | None,
    Field(description="The candidate that the others are held against, by name. Default: the first one."),
]
UnequalGrids = Annotated[
    Flag,
    Field(
        description="Allow candidates with different numbers of learning rates; the table then gives no verdict on "
        "them."
    ),
]
EquivalenceMargin = Annotated[
    Annotated[float, Field(strict=True, gt=0, le=1e6)] | None,
    Field(
        description="A difference below it is none that matters: a candidate whose whole interval lies within is as "
        "good as the baseline. Default: 0.01 nats; none for tasks whose loss has no unit."
    ),
]
AllPairs = Annotated[
    Flag,
    Field(
        description="Hold every candidate against every other one, not only against the baseline; all intervals are "
        "wider for it, since all of them hold at once."
    ),
]
RunSeconds = Annotated[
    LimitSeconds | None,
    Field(
        description="Time that one run may hold its device, over all of its attempts; then it is stopped, with a "
        "checkpoint."
    ),
]
DeadlineSeconds = Annotated[
    LimitSeconds | None,
    Field(
        description="Time from the submission; what has not ended by then is stopped, with a checkpoint, or never "
        "begun."
    ),
]


class GridExperiment(Experiment):
    """What comparisons and scaling experiments ask for alike: candidates with grids of learning rates, over seeds."""

    candidates: Candidates
    seeds: Seeds
    baseline: Baseline = None
    tuning: Tuning | None = None
    unequal_grids: UnequalGrids = False
    equivalence_margin: EquivalenceMargin = omit_default(None)
    all_pairs: AllPairs = omit_default(False)
    resources: Resources = Resources()
    priority: Priority = 0
    max_run_seconds: RunSeconds = omit_default(None)
    deadline_seconds: DeadlineSeconds = omit_default(None)

    @model_validator(mode="after")
    def _require_consistency(self) -> Self:
        if not is_stored():
            faults = [
                *_candidate_faults(self.candidates, self.baseline),
                *_fairness_faults(self.candidates, self.seeds, self.tuning, unequal_grids=self.unequal_grids),
                *self.resources.misfits(self.workload),
                *(
                    fault
                    for place, one in enumerate(self.candidates)
                    for fault in self.resources.sharding_faults(
                        self.workload, one.optimizer, one.options, ("candidates", place, "optimizer")
                    )
                ),
                *_run_count_faults(self.run_count(), self.candidates),
                *_schedule_faults(self.candidates, self.workload),
            ]
            raise_faults(type(self).__name__, faults or self.further_faults())
        return self

    def further_faults(self) -> list[SpecFault]:
        """What only this kind refuses, looked for where nothing else is wrong."""
        return []

    def grows(self) -> bool:
        """Where it tunes first: the winners' runs are added then."""
        return self.tuning is not None

    def may_need_less(self) -> bool:
        """Where grids are extended: some need no further rate."""
        return self.tuning is not None and not self.tuning.search and self.tuning.extend_grid > 0

    def tuning_method(self) -> str:
        """How learning rates are chosen from grids, on which seeds, and at which size; what candidates have of their
        own instead of the workload's schedule and weights."""
        own = self.own_trainings()
        return f"{self._tuning_method()} Instead of the workload's: {own}." if own else self._tuning_method()

    def _tuning_method(self) -> str:
        if self.tuning and self.tuning.search:
            untuned = [axis for axis in AXES if axis not in self.tuning.search]
            also = f"; not tuned: {axes_in_words(untuned)}" if untuned else ""
            method, how = {
                "random": (
                    "random search",
                    "The same draws for all, each mapped to the candidate's own range; the first setting is its own. "
                    "What is compared is what so many draws find: an optimizer that must be tuned more exactly finds "
                    "less.",
                ),
                "coordinate": (
                    "coordinate descent",
                    "Each begins with its own setting and changes one of these after another, to either side of its "
                    "best so far; the last setting is on each axis the lowest point between low ones. What "
                    "is better only where some of them change together may have been missed.",
                ),
            }[self.tuning.method or "random"]
            return (
                f"Tuned by {method}: {axes_in_words(self.tuning.search)}; {self.tuning.trials} settings of each "
                f"candidate, on tuning seeds ({', '.join(map(str, self.tuning.seeds))}), none of them a compared "
                f"one{also}. {how}"
            )
        if self.tuning:
            sentences = [
                f"Learning rates were chosen on seeds {', '.join(map(str, self.tuning.seeds))}, which are not among "
                "the compared ones.",
                *([origin] if (origin := self.origin_of_rates()) else []),
                f"Grids were extended beyond an edge, or refined about the best rate, by up to "
                f"{self.tuning.extend_grid} rates.",
            ]
        else:
            sentences = [
                "Every seed ran at every learning rate; each optimizer is shown at its best one, chosen on them."
            ]
        grids = (f"{each.name()}: {', '.join(f'{lr:g}' for lr in each.learning_rates)}" for each in self.candidates)
        equal = "Grids of different sizes were allowed." if self.unequal_grids else "All grids had the same size."
        return " ".join([*sentences, equal, f"Grids: {'; '.join(grids)}."])

    def grid_rates(self) -> frozenset[float]:
        """Of all candidates."""
        return frozenset(lr for candidate in self.candidates for lr in candidate.learning_rates)

    def facts(self) -> tuple[tuple[str, str], ...]:
        """The baseline, and what candidates have of their own instead of the workload's."""
        own = self.own_trainings()
        return (("baseline", self.baseline_name()), *([("of their own", own)] if own else []))

    def own_trainings(self) -> str:
        """`adamw-linear: linear, to 0 of the rate; …`; empty where all train as the workload says."""
        return "; ".join(f"{each.name()}: {words}" for each in self.candidates if (words := each.own_training()))

    def baseline_name(self) -> str:
        """The candidate that the others are held against."""
        return self.baseline or self.candidates[0].name()


class ComparisonSpec(GridExperiment):
    """Which optimizer is best on this workload, at which learning rate, how sure."""

    title: ClassVar[str] = "comparison"

    kind: Literal["comparison"] = "comparison"
    tuning: Tuning | None = None
    """Tune first, then run the seeds at each winner only. Default: every seed at every rate."""
    sequential: Sequential | None = omit_default(None)
    """Begin with a few of `seeds`, and add the others one after another for candidates whose verdict is open. Default:
    all seeds at once."""
    kept_rates: KeptRates | None = omit_default(None)
    """Where the rates are another comparison's, as in a clone that keeps them: which one's, and what it left open.
    Default: the verdict is about these rates alone."""

    def further_faults(self) -> list[SpecFault]:
        """Kept rates that are grids, too few draws or no room for them, and what looks cannot go with."""
        if self.kept_rates is not None:
            if self.tuning is not None or any(len(each.learning_rates) > 1 for each in self.candidates):
                allowed = "needs one rate of each candidate, and no tuning: rates that were chosen elsewhere"
                return [(("kept_rates",), self.kept_rates.model_dump(), allowed)]
            if self.kept_rates.regrets.keys() != set(self.names()):
                allowed = f"must have each candidate: {', '.join(self.names())}"
                return [(("kept_rates", "regrets"), sorted(self.kept_rates.regrets), allowed)]
        trials = self.tuning.trials if self.tuning and not self.descends() else None
        if trials is not None and trials < (least := least_draws(self.comparison_count())):
            allowed = (
                f"must be at least {least} for {pluralize(self.comparison_count(), 'comparison')}: of fewer random "
                "trials nobody can tell how lucky they are"
            )
            return [(("tuning", "trials"), trials, allowed)]
        for place, candidate in enumerate(self.candidates if trials else ()):
            if len(self.settings(candidate.name())) < (trials or 0):
                allowed = "must be one rate, or reach farther apart: its trials would repeat rates"
                return [(("candidates", place, "learning_rates"), list(candidate.learning_rates), allowed)]
        if self.sequential is None:
            return []
        if self.all_pairs:
            return [(("all_pairs",), True, "cannot be sequential: each candidate's seeds end with its own verdict")]
        if len(self.candidates) < 2:
            return [(("sequential",), True, "needs a second candidate: seeds are added by differences to the baseline")]
        improvement = self.sequential.improvement
        if improvement and (len(self.candidates), self.tuning) != (2, None):
            allowed = "needs two candidates at one learning rate each, without tuning: the baseline, and what is tried"
            return [(("sequential", "improvement"), improvement.model_dump(), allowed)]
        if improvement and any(len(each.learning_rates) > 1 for each in self.candidates):
            allowed = "must be one rate each where sequential.improvement is asked"
            return [(("candidates",), [list(each.learning_rates) for each in self.candidates], allowed)]
        most = MOST_TRY_SEEDS if improvement else MOST_SEQUENTIAL_SEEDS
        if not self.sequential.first_seeds < len(self.seeds) <= most:
            first = f"{self.sequential.first_seeds}"
            if "first_seeds" not in self.sequential.model_fields_set:
                first += ", its default"
            allowed = f"must be more seeds than sequential.first_seeds ({first}), which all run, and at most {most}"
            return [(("seeds",), len(self.seeds), allowed)]
        return []

    def fix_settings(self, settings: Mapping[str, Setting], kept: KeptRates | None) -> "ComparisonSpec":
        """The comparison of the candidates at one setting each, over all seeds at once. Raises `ValueError` where they
        have several clipping norms, which no comparison without a search can have."""
        workload = self.workload
        if len(norms := {each.get("clip_grad_norm", workload.clip_grad_norm) for each in settings.values()}) > 1:
            found = ", ".join("none" if each is None else f"{each:g}" for each in norms)
            raise ValueError(f"the search found other clipping norms for each candidate ({found}), and one is for all")
        update = {
            "workload": workload.model_copy(update={"clip_grad_norm": norms.pop()}),
            "candidates": tuple(each.fix_setting(settings[each.name()]) for each in self.candidates),
            "tuning": None,
            "sequential": None,
            "kept_rates": kept,
        }
        return self.model_copy(update=update)

    def grows(self) -> bool:
        """Where it tunes first, and where seeds are added."""
        return super().grows() or self.adds_seeds()

    def origin_of_rates(self) -> str | None:
        """Whose rates were kept."""
        if self.kept_rates is None:
            return None
        return f"What was tuned was chosen by experiment {self.kept_rates.experiment}, and kept."

    def adds_seeds(self) -> bool:
        """Where it is sequential."""
        return self.sequential is not None

    def tries_improvement(self) -> bool:
        """Whether it is a try of a campaign."""
        return self.sequential is not None and self.sequential.improvement is not None

    def may_need_less(self) -> bool:
        """Where grids are extended, and where verdicts may need fewer seeds."""
        return super().may_need_less() or self.adds_seeds()

    def first_seeds(self) -> tuple[int, ...]:
        """Those that judged runs begin with."""
        return self.seeds[: self.sequential.first_seeds] if self.sequential else self.seeds

    def run_count(self) -> int:
        """How many runs there will be; with tuning, or where seeds are added, at most."""
        return sum(self._run_count_of(candidate) for candidate in self.candidates)

    def first_runs(self) -> tuple[PlannedRun, ...]:
        """Seed by seed, so that early results already span every candidate: all of them, or those of phase 1 where it
        tunes first."""
        rates = {candidate: self.planned_rates(candidate) for candidate in self.names()}
        settings = {candidate: self.settings(candidate) for candidate in self.names()}
        return tuple(
            candidate.planned_run(
                self.workload, self.resources, lr=lr, seed=seed, setting=settings[candidate.name()].get(lr)
            )
            for seed in (self.tuning.seeds if self.tuning else self.first_seeds())
            for position in range(max(map(len, rates.values())))
            for candidate in self.candidates
            for lr in rates[candidate.name()][position : position + 1]
        )

    def names(self) -> tuple[str, ...]:
        """Of the candidates."""
        return tuple(candidate.name() for candidate in self.candidates)

    def planned_rates(self, name: str) -> tuple[float, ...]:
        """The rates that a candidate begins with: its grid, or those of its trials, in their order."""
        return tuple(self.settings(name)) or self.candidate(name).learning_rates

    def settings(self, name: str) -> Mapping[float, Setting]:
        """By their rates, the settings that a search begins with for a candidate: all of a random one's, the own one of
        a descent; none where the rate alone is tuned."""
        if self.tuning is None or not self.tuning.search:
            return {}
        if self.descends():
            return _settings_of_rates(self._descent(name, ()).tried)
        count, seed = self.tuning.trials or 1, self.tuning.seeds[0]
        return _settings_of_rates(tuning_search.trials(self.priors(name), count, seed))

    def descends(self) -> bool:
        """Whether each setting that is tried follows from those before it."""
        return self.tuning is not None and self.tuning.method == "coordinate"

    def draws(self) -> bool:
        """Whether all settings that are tried are drawn beforehand."""
        return self.tuning is not None and self.tuning.method == "random"

    def priors(self, name: str) -> Mapping[Axis, Prior]:
        """What a search looks through for a candidate."""
        if self.tuning is None:
            return {}
        each, search = self.candidate(name), self.tuning.search
        own = each.own_workload(self.workload)
        return tuning_search.priors(each.optimizer, each.options, each.learning_rates, own, search)

    def _descent(self, name: str, runs: Sequence[TuningRun]) -> Descent:
        trials = self.tuning.trials if self.tuning else None
        return descent(self.priors(name), trials or 1, runs)

    def planned_run(self, name: str, *, lr: float, seed: int, setting: Setting | None = None) -> PlannedRun:
        """One run of a candidate, with all that goes with that rate; `setting`: where the rate is no planned one."""
        candidate, setting = self.candidate(name), setting or self.settings(name).get(lr)
        return candidate.planned_run(self.workload, self.resources, lr=lr, seed=seed, setting=setting)

    def searched_parameters(self, position: int, run: RunSpec) -> dict[str, Scalar]:
        """The searched fields, as the run has them; none where the rate alone is tuned, or at a rate of no trial."""
        if self.tuning is None or not self.tuning.search:
            return {}
        own = run.optimizer.options | {
            "lr": run.optimizer.lr,
            "warmup_steps": run.workload.schedule.warmup_steps,
            "clip_grad_norm": run.workload.clip_grad_norm,
        }
        return {field: own[field] for axis in AXES if axis in self.tuning.search and (field := FIELDS[axis]) in own}

    def follow_up_runs(self, group: TuningGroup, runs: Sequence[TuningRun]) -> tuple[PlannedRun, ...]:
        """More of the candidate's grid, or its best rate on the seeds that count."""
        if self.tuning is None:
            return ()
        planned, settings = self.planned_rates(group.candidate), self.settings(group.candidate)
        waiting: tuple[tuple[float, int], ...] = ()
        if self.descends():
            path = self._descent(group.candidate, runs)
            settings = _settings_of_rates(path.tried)
            room = max((self.tuning.trials or 1) - len({run.lr for run in runs}), 0)
            # Of what is not on the path, since an older rule planned it, no setting is known.
            runs = [run for run in runs if run.lr in settings or run.seed in self.seeds]
            waiting = tuple((rate_of(each), seed) for each in path.next_trials[:room] for seed in self.tuning.seeds)
        pairs = self.tuning.next_pairs(planned, self.first_seeds(), runs, waiting, self.least_open())
        return tuple(
            self.planned_run(group.candidate, lr=lr, seed=seed, setting=settings.get(lr)) for lr, seed in pairs
        )

    def shares(self) -> tuple[Share, ...]:
        """One a candidate."""
        return tuple(
            Share(
                candidate=candidate.name(),
                optimizer=candidate.optimizer,
                options=candidate.options,
                searched=frozenset(),  # a search changes nothing that is kept: it draws no beta of zero
                has_rules=bool(candidate.rules),
                workload=candidate.own_workload(self.workload),
                runs=self._run_count_of(candidate),
            )
            for candidate in self.candidates
        )

    def _run_count_of(self, candidate: Candidate) -> int:
        rates = len(candidate.learning_rates)
        if self.tuning is None:
            return rates * len(self.seeds)
        trials = self.tuning.trials or rates + self.tuning.extend_grid
        return trials * len(self.tuning.seeds) + len(self.seeds)

    def comparison(self, cell: Cell | None = None, rates: Mapping[str, float] | None = None) -> "ComparisonSpec":
        """Itself."""
        return self

    def equivalence(self) -> float | None:
        """The margin that counts: 0.01 where none is given and losses are nats, none where they have no unit."""
        if self.equivalence_margin is None and self.workload.task.loss_unit:
            return EQUIVALENCE_MARGIN
        return self.equivalence_margin

    def least_open(self) -> float:
        """By how much tuning may miss a minimum without a further rate, where noise is less: of losses without unit a
        third of the margin, as in nats, and where there is none by nothing."""
        return LEAST_OPEN if self.workload.task.loss_unit else (self.equivalence_margin or 0.0) / 3

    def comparison_count(self) -> int:
        """How many differences are tested: their intervals hold together."""
        others = len(self.candidates) - 1
        return others * len(self.candidates) // 2 if self.all_pairs else others

    def hold_against(self, name: str) -> "ComparisonSpec":
        """The same with another candidate as its baseline, chosen once there are results: every pair then counts as
        tested, since any of them could have been chosen."""
        return self.model_copy(update={"baseline": name, "all_pairs": True})

    def candidate(self, name: str) -> Candidate:
        """The candidate of that name."""
        return next(each for each in self.candidates if each.name() == name)


def _settings_of_rates(settings: Iterable[Setting]) -> dict[float, Setting]:
    return {lr: each for each in settings if isinstance(lr := each["lr"], float)}


def _candidate_faults(candidates: Sequence[Candidate], baseline: str | None) -> list[SpecFault]:
    """Names that repeat, and a baseline that is nobody's."""
    faults: list[SpecFault] = []
    names = [candidate.name() for candidate in candidates]
    for position, name in enumerate(names):
        if name in names[:position]:
            allowed = f"must differ from the other candidates' names; give it a label other than {name!r}"
            faults.append((("candidates", position, "label"), name, allowed))
    if baseline is not None and baseline not in names:
        faults.append((("baseline",), baseline, f"must be one of {', '.join(names)}"))
    return faults


def _fairness_faults(
    candidates: Sequence[Candidate], seeds: Sequence[int], tuning: Tuning | None, *, unequal_grids: bool
) -> list[SpecFault]:
    """What would make the answer unfair: unequal trial budgets, and rates chosen on the seeds that judge them."""
    faults: list[SpecFault] = []
    most = max(len(candidate.learning_rates) for candidate in candidates)
    for position, candidate in enumerate(candidates):
        where, count = ("candidates", position, "learning_rates"), len(candidate.learning_rates)
        if count < most and not unequal_grids:
            allowed = f"has {count} of the {most} rates that others get; give all the same, or set unequal_grids"
            faults.append((where, list(candidate.learning_rates), allowed))
    if tuning and (shared := sorted({*tuning.seeds} & {*seeds})):
        allowed = f"must share no seed with seeds, which has {', '.join(map(str, shared))} too: it would be flattered"
        faults.append((("tuning", "seeds"), list(tuning.seeds), allowed))
    return faults


def _run_count_faults(count: int, candidates: Sequence[Candidate]) -> list[SpecFault]:
    """More runs than one experiment may have."""
    if count <= MAX_RUNS:
        return []
    return [(("candidates",), len(candidates), f"makes {count} runs; at most {MAX_RUNS} in one experiment")]


def _schedule_faults(candidates: Sequence[Candidate], workload: Workload) -> list[SpecFault]:
    """Candidates that would warm up to their end, decay in a shape that has no such share, or average twice."""
    faults: list[SpecFault] = []
    steps = workload.budget.steps
    for position, each in enumerate(candidates):
        if (each.warmup_steps or 0) >= steps:
            allowed = f"must be below workload.budget.steps = {steps}"
            faults.append((("candidates", position, "warmup_steps"), each.warmup_steps, allowed))
        if each.schedule is not None:
            faults += each.schedule.faults(workload, ("candidates", position, "schedule"))
        if each.ema_decay is None:
            faults += averaging_faults(workload.ema_decay, each.optimizer, ("workload", "ema_decay"))
    return faults
