"""Comparisons: what a user asks for, and the runs that it expands into.

A comparison is optimizers × seeds over one workload at one setting each; with `tuning`, trials × tuning seeds of each
optimizer first (`orchestrator/tuning/`). Its expansion is a pure function with a fixed order, so that the same
specification always means the same runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from optim.catalog import Scalar
from orchestrator.design import CandidateDesign, Cell, ComparisonDesign, Equal
from orchestrator.jobs import RunStatus
from orchestrator.kinds.experiment import Experiment, PlannedRun, RunBudget
from orchestrator.kinds.fields import LearningRates, NamedOptimizer, Seeds, write_out_schedule
from orchestrator.kinds.tuning import METHODS, Tuning
from orchestrator.tuning.coordinate import CoordinateDescent
from orchestrator.tuning.line import Grid, LineSearch, spread_shift
from orchestrator.tuning.random_search import RandomSearch
from orchestrator.tuning.ranges import Axis, Prior, axes_in_words, priors, searched_values
from orchestrator.tuning.tuner import RunFact, Setting, Tuner, mean_losses, rate_of, steps_at_equal_time
from worker.schema import CountOrZero, Flag, Spec, SpecFault, is_stored, omit_default, raise_faults
from worker.spec.parts import USUAL_DECAY_SHARE
from worker.spec.run import EmaDecay, OptimizerSpec, Resources, RunSpec, Workload, averaging_faults, option_faults
from worker.words import pluralize

EQUIVALENCE_MARGIN = 0.01
"""Nats. Optimizers that were tuned alike differ by 0.002 to 0.013 on our workloads: less is no reason to choose one."""
MOST_SEQUENTIAL_SEEDS = 64
"""Reckoning the levels of so many looks takes a second."""
MAX_RUNS = 10_000
"""The most runs of one experiment: 10,000 runs keep the submitting transaction below a few seconds."""


class Candidate(NamedOptimizer):
    """An optimizer of a comparison."""

    learning_rates: LearningRates
    """One, or several: tuning starts at the middle one, `tuning.method: grid` tries all."""
    warmup_steps: CountOrZero | None = omit_default(None)
    """Steps of the warm-up; null: the workload's."""
    ema_decay: EmaDecay | None = omit_default(None)
    """The candidate's own `workload.ema_decay`; null: the workload's."""

    @model_validator(mode="before")
    @classmethod
    def _write_out_schedule(cls, fields: Any) -> Any:
        """Write the schedules of the catalog out: a stored comparison must mean the same when the catalog has
        changed."""
        return fields if is_stored() else write_out_schedule(fields)

    @model_validator(mode="after")
    def _require_known_options(self) -> Self:
        if not is_stored():
            faults = option_faults(self.optimizer, self.options, self.rules)
            faults += averaging_faults(self.ema_decay, self.optimizer, ("ema_decay",))
            raise_faults(type(self).__name__, faults)
        return self

    def own_rate(self) -> float:
        """Return the middle one of its learning rates, at which tuning starts."""
        return sorted(self.learning_rates)[len(self.learning_rates) // 2]

    def planned_run(self, workload: Workload, resources: Resources, *, seed: int, setting: Setting) -> PlannedRun:
        """Return a run of the candidate at a setting. Nothing is checked: it follows from what was."""
        changed, lr = dict(setting), rate_of(setting)
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
        """Return the same at one setting that tuning found; what all candidates share, the clipping norm, stays as it
        is."""
        options = {name: value for name, value in setting.items() if name not in ("lr", "clip_grad_norm")}
        warmup_steps = options.pop("warmup_steps", self.warmup_steps)
        changed = {
            "learning_rates": (setting["lr"],),
            "warmup_steps": warmup_steps,
            "options": {**self.options, **options},
        }
        return self.model_copy(update=changed)

    def own_training(self) -> str:
        """Return the candidate's differences from the workload, in words; empty if there are none."""
        parts = [str(self.schedule)] if self.schedule is not None else []
        if self.warmup_steps is not None:
            parts.append(f"warm-up of {pluralize(self.warmup_steps, 'step')}")
        if self.ema_decay is not None:
            parts.append(f"weights averaged ({self.ema_decay:g})")
        return ", ".join(parts)

    def own_workload(self, workload: Workload) -> Workload:
        """Return the workload with the candidate's own warm-up, schedule and average."""
        schedule = {} if self.schedule is None else self.schedule.model_dump(exclude_none=True)
        if self.warmup_steps is not None:
            schedule["warmup_steps"] = self.warmup_steps
        if schedule:
            if schedule.get("shape", workload.schedule.shape) != "wsd":
                schedule["decay_share"] = USUAL_DECAY_SHARE
            workload = workload.model_copy(update={"schedule": workload.schedule.model_copy(update=schedule)})
        return workload if self.ema_decay is None else workload.model_copy(update={"ema_decay": self.ema_decay})


class Sequential(Spec):
    """Early stopping: seeds are added while a verdict is open."""

    first_seeds: Annotated[int, Field(strict=True, ge=2, le=MOST_SEQUENTIAL_SEEDS)] = 3
    """Seeds at the first look."""


Candidates = Annotated[tuple[Candidate, ...], Field(min_length=1, max_length=64)]
Baseline = Annotated[
    str | None,
    Field(description="Name of the candidate that the others are compared with. Default: the first one."),
]
EquivalenceMargin = Annotated[
    Annotated[float, Field(strict=True, gt=0, le=1e6)] | None,
    Field(
        description="The largest difference that does not matter, for the verdict `as good`. Default: 0.01 nats; none "
        "if the task's loss has no unit."
    ),
]
AllPairs = Annotated[
    Flag,
    Field(description="Compare every pair of candidates, not only each with the baseline; intervals get wider."),
]


class TunedExperiment(Experiment):
    """The common part of comparisons and scaling experiments: candidates, tuned or at one setting each, over seeds."""

    candidates: Candidates
    """The optimizers to compare."""
    seeds: Seeds
    """Seeds of initial weights and data order; at least three, better ten."""
    baseline: Baseline = None
    tuning: Tuning | None = None
    equivalence_margin: EquivalenceMargin = omit_default(None)
    all_pairs: AllPairs = omit_default(False)

    @model_validator(mode="after")
    def _require_consistency(self) -> Self:
        if not is_stored():
            names = [candidate.name() for candidate in self.candidates]
            allowed = f"must be one of {', '.join(names)}"
            faults = [
                *self.candidate_faults(self.candidates),
                *([] if self.baseline in (None, *names) else [(("baseline",), self.baseline, allowed)]),
                *_fairness_faults(self.candidates, self.seeds, self.tuning),
                *_schedule_faults(self.candidates, self.workload),
            ]
            faults = faults or self.further_faults()  # runs are counted where cells can be trained
            if not faults and (count := self.run_count()) > MAX_RUNS:
                fault = f"makes {count} runs; at most {MAX_RUNS} in one experiment"
                faults = [(("candidates",), len(self.candidates), fault)]
            raise_faults(type(self).__name__, faults)
        return self

    def further_faults(self) -> list[SpecFault]:
        """Return the faults of this kind alone, if there are no others."""
        return []

    def grows(self) -> bool:
        """Return whether it tunes first: further trials and the judged runs are added then."""
        return self.tuning is not None

    def tuning_method(self) -> str:
        """Return the method of tuning and its seeds, and the candidates' own settings instead of the workload's."""
        settings = self.own_trainings()
        return f"{self._tuning_method()} Instead of the workload's: {settings}." if settings else self._tuning_method()

    def _tuning_method(self) -> str:
        tuning = self.tuning
        if tuning is None:
            if all(len(candidate.learning_rates) == 1 for candidate in self.candidates):
                return "Each candidate ran at one given setting."
            return "Every seed ran at every learning rate; each candidate is shown at its best one, chosen on them."
        hyperparameters = axes_in_words(tuning.search) if tuning.search else "learning rate"
        settings = "" if tuning.method == "grid" else f" of {tuning.trials} trials"
        sentences = (
            f"Each candidate was tuned ({hyperparameters}) by {METHODS[tuning.method]}{settings} on seeds "
            f"{', '.join(map(str, tuning.seeds))}, and judged at the setting found, on other seeds."
        )
        if tuning.replicates > 1:
            sentences += f" Tuning and judging were repeated {tuning.replicates} times, on seeds of their own."
        return sentences

    def facts(self) -> tuple[tuple[str, str], ...]:
        """Return the baseline, and what candidates have of their own instead of the workload's."""
        settings = self.own_trainings()
        return (("baseline", self.baseline_name()), *([("of their own", settings)] if settings else []))

    def own_trainings(self) -> str:
        """Return `adamw-linear: linear, to 0 of the rate; …`; empty if all train as the workload says."""
        return "; ".join(
            f"{candidate.name()}: {training}" for candidate in self.candidates if (training := candidate.own_training())
        )

    def baseline_name(self) -> str:
        """Return the name of the baseline."""
        return self.baseline or self.candidates[0].name()

    def replicates(self) -> int:
        """Return the number of independent repetitions of tuning and judging."""
        return self.tuning.replicates if self.tuning else 1


class ComparisonSpec(TunedExperiment):
    """The best optimizer on this workload, its setting, and how sure that is."""

    title: ClassVar[str] = "comparison"

    kind: Literal["comparison"] = "comparison"
    tuning: Tuning | None = None
    """Tune first. Default: each candidate runs at its own setting."""
    sequential: Sequential | None = omit_default(None)
    """Add seeds only while a verdict is open. Default: all seeds at once."""
    equal: Equal = omit_default("tokens")
    """The judged runs' budget: the baseline's tokens, or its device-hours. By these, a candidate gets as many steps as
    its pace in tuning allows, and its schedule in proportion."""

    def further_faults(self) -> list[SpecFault]:
        """Return the faults of options that exclude each other."""
        if self.equal == "device_hours" and (self.tuning is None or self.sequential is not None):
            return [(("equal",), self.equal, "needs tuning, which measures each candidate's pace, and no sequential")]
        if self.sequential is None:
            return []
        if self.all_pairs:
            return [(("all_pairs",), True, "cannot be sequential: each candidate's seeds end with its own verdict")]
        if self.replicates() > 1:
            allowed = "cannot be sequential: each further replicate would have to be tuned first"
            return [(("tuning", "replicates"), self.replicates(), allowed)]
        if len(self.candidates) < 2:
            return [(("sequential",), True, "needs a second candidate: seeds are added by differences to the baseline")]
        if not self.sequential.first_seeds < len(self.seeds) <= MOST_SEQUENTIAL_SEEDS:
            first = f"{self.sequential.first_seeds}"
            if "first_seeds" not in self.sequential.model_fields_set:
                first += ", its default"
            limit = f"at most {MOST_SEQUENTIAL_SEEDS}"
            allowed = f"must be more seeds than sequential.first_seeds ({first}), which all run, and {limit}"
            return [(("seeds",), len(self.seeds), allowed)]
        return []

    def fix_settings(self, settings: Mapping[str, Setting]) -> "ComparisonSpec":
        """Return the comparison of the candidates at one setting each, over all seeds at once. Raises `ValueError`
        where they have several clipping norms, which no comparison without a search can have, or other numbers of
        steps."""
        if self.equal == "device_hours":
            raise ValueError("the steps of its judged runs come from the pace in tuning")
        workload = self.workload
        if len(norms := {setting.get("clip_grad_norm", workload.clip_grad_norm) for setting in settings.values()}) > 1:
            values = ", ".join("none" if norm is None else f"{norm:g}" for norm in norms)
            raise ValueError(f"the search found other clipping norms for each candidate ({values}), and one is for all")
        update = {
            "workload": workload.model_copy(update={"clip_grad_norm": norms.pop()}),
            "candidates": tuple(candidate.fix_setting(settings[candidate.name()]) for candidate in self.candidates),
            "tuning": None,
            "sequential": None,
        }
        return self.model_copy(update=update)

    def grows(self) -> bool:
        """Return whether it tunes first, or adds seeds."""
        return super().grows() or self.adds_seeds()

    def warnings(self) -> tuple[str, ...]:
        """Return a sentence where tuning has so few seeds beside the judging ones that its luck would rival their
        noise."""
        needed = round(len(self.seeds) / 3)
        if self.tuning is None or len(self.tuning.seeds) >= needed:
            return ()
        return (
            f"{len(self.tuning.seeds)} tuning seeds for {len(self.seeds)} judging ones: the luck of tuning would rival "
            f"the noise of judging. Use {needed} tuning seeds or more.",
        )

    def adds_seeds(self) -> bool:
        """Return whether it is sequential."""
        return self.sequential is not None

    def first_seeds(self) -> tuple[int, ...]:
        """Return the first judging seeds."""
        return self.seeds[: self.sequential.first_seeds] if self.sequential else self.seeds

    def run_sum(self) -> str:
        """Return `24 trials × 3 tuning seeds + 3 candidates × 10 seeds`."""
        trials, seeds = sum(map(self._trial_count_of, self.candidates)), pluralize(len(self.seeds), "seed")
        if self.tuning is None:
            return f"{pluralize(trials, 'candidate' if trials == len(self.candidates) else 'learning rate')} × {seeds}"
        tuned = f"{pluralize(trials, 'trial')} × {pluralize(len(self.tuning.seeds), 'tuning seed')}"
        return f"{tuned} + {pluralize(len(self.candidates), 'candidate')} × {seeds}"

    def first_runs(self) -> tuple[PlannedRun, ...]:
        """Return the first runs, seed by seed, so that early results already span every candidate."""
        if self.tuning is None:
            rate_count = max(len(candidate.learning_rates) for candidate in self.candidates)
            return tuple(
                self.planned_run(candidate.name(), seed=seed, setting={"lr": lr})
                for seed in self.first_seeds()
                for index in range(rate_count)
                for candidate in self.candidates
                for lr in candidate.learning_rates[index : index + 1]
            )
        settings_by_tuner = {
            (name, replicate): self.tuner(name, replicate).ask({})
            for name in self.names()
            for replicate in range(self.replicates())
        }
        return tuple(
            self.planned_run(name, seed=seed, setting=setting)
            for number, seed in enumerate(self.tuning.seeds)
            for index in range(max(map(len, settings_by_tuner.values())))
            for name in self.names()
            for setting in settings_by_tuner[name, number % self.replicates()][index : index + 1]
        )

    def names(self) -> tuple[str, ...]:
        """Return the candidates' names."""
        return tuple(candidate.name() for candidate in self.candidates)

    def tuner(self, name: str, replicate: int = 0) -> Tuner:
        """Return the tuning of a candidate. Raises `ValueError` if nothing is tuned."""
        if self.tuning is None:
            raise ValueError(f"{self.name} tunes nothing")
        candidate, trials = self.candidate(name), self.tuning.trials
        match self.tuning.method:
            case "line":
                return LineSearch(own=candidate.own_rate(), trials=trials, shift=spread_shift(replicate))
            case "grid":
                return Grid(candidate.learning_rates)
            case "random":
                return RandomSearch(priors=self.priors(name), trials=trials, seed=self.replicate_seeds(replicate)[0][0])
            case "coordinate":
                return CoordinateDescent(priors=self.priors(name), trials=trials)

    def replicate_seeds(self, replicate: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the tuning seeds and the judging seeds that are dealt to a replicate."""
        count = self.replicates()
        return (self.tuning.seeds if self.tuning else ())[replicate::count], self.seeds[replicate::count]

    def priors(self, name: str) -> Mapping[Axis, Prior]:
        """Return the ranges that a search has for a candidate."""
        if self.tuning is None:
            return {}
        candidate = self.candidate(name)
        workload = candidate.own_workload(self.workload)
        return priors(candidate.optimizer, candidate.options, candidate.own_rate(), workload, self.tuning.search)

    def planned_run(self, name: str, *, seed: int, setting: Setting, steps: int | None = None) -> PlannedRun:
        """Return a run of a candidate at a setting, of the workload's number of steps or another."""
        run = self.candidate(name).planned_run(self.workload, self.resources, seed=seed, setting=setting)
        usual = self.workload.budget.steps
        if steps in (None, usual):
            return run
        workload = run.spec.workload
        schedule = {"warmup_steps": round(workload.schedule.warmup_steps * steps / usual)}
        changed = {
            "budget": workload.budget.model_copy(update={"steps": steps}),
            "schedule": workload.schedule.model_copy(update=schedule),
        }
        spec = run.spec.model_copy(update={"workload": workload.model_copy(update=changed)})
        return run.model_copy(update={"spec": spec})

    def searched_parameters(self, position: int, run: RunSpec) -> dict[str, Scalar]:
        """Return the searched fields, as the run has them; none if the rate alone is tuned."""
        if self.tuning is None or not self.tuning.search:
            return {}
        return searched_values(run, self.tuning.search)

    def follow_up_runs(self, runs: Sequence[RunFact]) -> tuple[PlannedRun, ...]:
        """Return for each candidate whose tuning runs have ended its next trials, or the tuned setting on the judging
        seeds."""
        return tuple(
            planned
            for name in self.names()
            for replicate in range(self.replicates())
            for planned in self._next_runs(name, replicate, runs)
        )

    def _next_runs(self, name: str, replicate: int, runs: Sequence[RunFact]) -> Iterator[PlannedRun]:
        """Yield the next runs: none once it is judged, while a trial goes on, if one was cancelled, or none gave a
        result."""
        tuning_seeds, judging_seeds = self.replicate_seeds(replicate)
        trial_runs = self._ended_trials(name, replicate, runs)
        if not trial_runs or any(run.candidate == name and run.seed in judging_seeds for run in runs):
            return
        tuner, tried = self.tuner(name, replicate), mean_losses(trial_runs)
        if settings := tuner.ask(tried):
            for setting in settings:
                for seed in tuning_seeds:
                    yield self.planned_run(name, seed=seed, setting=setting)
        elif (best_setting := tuner.setting(tried)) is not None:
            steps = self._judged_steps(trial_runs, replicate, runs)
            for seed in judging_seeds if steps else ():
                if seed in self.first_seeds():
                    yield self.planned_run(name, seed=seed, setting=best_setting, steps=steps)

    def _ended_trials(self, name: str, replicate: int, runs: Sequence[RunFact]) -> list[RunFact]:
        """Return a candidate's tuning runs; none while one goes on, if one was cancelled, or none has a result."""
        tuning_seeds, _ = self.replicate_seeds(replicate)
        trials = [run for run in runs if run.candidate == name and run.seed in tuning_seeds]
        states = {RunStatus.FAILED if run.is_time_up else run.status for run in trials}
        return trials if RunStatus.SUCCEEDED in states <= {RunStatus.SUCCEEDED, RunStatus.FAILED} else []

    def _judged_steps(self, trials: Sequence[RunFact], replicate: int, runs: Sequence[RunFact]) -> int | None:
        """Return the steps of a candidate's judged runs; None while the baseline's pace is unknown."""
        if self.equal == "tokens":
            return self.workload.budget.steps
        rivals = self._ended_trials(self.baseline_name(), replicate, runs)
        if not rivals or self.tuner(self.baseline_name(), replicate).ask(mean_losses(rivals)):
            return None
        return steps_at_equal_time(self.workload.budget.steps, trials, rivals)

    def run_budgets(self) -> tuple[RunBudget, ...]:
        """Return the budget of each candidate."""
        return tuple(
            RunBudget(
                candidate=candidate.name(),
                optimizer=candidate.optimizer,
                options=candidate.options,
                searched=frozenset(),  # a search changes nothing that is kept: it draws no beta of zero
                has_rules=bool(candidate.rules),
                workload=candidate.own_workload(self.workload),
                # At most, if seeds are added, or every trial of a candidate is lost.
                runs=self._trial_count_of(candidate) * len(self.tuning.seeds if self.tuning else self.seeds)
                + (len(self.seeds) if self.tuning else 0),
            )
            for candidate in self.candidates
        )

    def _trial_count_of(self, candidate: Candidate) -> int:
        """Return the number of settings that a candidate tries: of its learning rates, or as many as a search takes."""
        if self.tuning is None or self.tuning.method == "grid":
            return len(candidate.learning_rates)
        return self.tuning.trials

    def comparison(self, cell: Cell | None = None) -> "ComparisonSpec":
        """Return itself."""
        return self

    def design(self) -> ComparisonDesign:
        """Return the facts that its runs are judged by."""
        task, tuning, looks, margin = self.workload.task, self.tuning, self.sequential, self.equivalence_margin
        if margin is None and task.loss_unit:
            margin = EQUIVALENCE_MARGIN
        return ComparisonDesign(
            candidates=tuple(self._candidate_design(candidate) for candidate in self.candidates),
            baseline=self.baseline_name(),
            seeds=self.seeds,
            tuning_seeds=tuning.seeds if tuning else (),
            searched=tuning.search if tuning else (),
            replicates=self.replicates(),
            first_seeds=looks.first_seeds if looks else None,
            all_pairs=self.all_pairs,
            equal=self.equal,
            margin=margin,
            loss_name=task.loss_name,
            loss_unit=task.loss_unit,
            validation_tokens=self.workload.validation_tokens() if task.kind == "pretrain" else None,
        )

    def _candidate_design(self, candidate: Candidate) -> CandidateDesign:
        name, tuning = candidate.name(), self.tuning
        return CandidateDesign(
            name=name,
            title=candidate.title(),
            optimizer=candidate.optimizer,
            own_rate=candidate.own_rate(),
            learning_rates=candidate.learning_rates if tuning is None or tuning.method == "grid" else (),
            tuners=tuple(self.tuner(name, replicate) for replicate in range(self.replicates())) if tuning else (),
        )

    def candidate(self, name: str) -> Candidate:
        """Return the candidate of that name."""
        return next(candidate for candidate in self.candidates if candidate.name() == name)


def _fairness_faults(candidates: Sequence[Candidate], seeds: Sequence[int], tuning: Tuning | None) -> list[SpecFault]:
    """Return the faults that make the answer unfair: unequal trial budgets, and settings chosen on the judging
    seeds."""
    faults: list[SpecFault] = []
    largest_count = max(len(candidate.learning_rates) for candidate in candidates)
    for position, candidate in enumerate(candidates if tuning is None or tuning.method == "grid" else ()):
        location, count = ("candidates", position, "learning_rates"), len(candidate.learning_rates)
        if count < largest_count:
            allowed = f"has {count} of the {largest_count} rates that others get; give all the same number"
            faults.append((location, list(candidate.learning_rates), allowed))
    if tuning and (shared := sorted({*tuning.seeds} & {*seeds})):
        allowed = f"must share no seed with seeds, which has {', '.join(map(str, shared))} too; use others for tuning"
        faults.append((("tuning", "seeds"), list(tuning.seeds), allowed))
    if tuning and len(seeds) % tuning.replicates:
        allowed = (
            f"must divide the {len(seeds)} judging seeds evenly: give {len(seeds) + -len(seeds) % tuning.replicates}"
        )
        faults.append((("tuning", "replicates"), tuning.replicates, allowed))
    return faults


def _schedule_faults(candidates: Sequence[Candidate], workload: Workload) -> list[SpecFault]:
    """Return the faults of candidates that would warm up to their end, decay in a shape that has no such share, or
    average twice."""
    faults: list[SpecFault] = []
    steps = workload.budget.steps
    for position, candidate in enumerate(candidates):
        if (candidate.warmup_steps or 0) >= steps:
            allowed = f"must be below workload.budget.steps = {steps}"
            faults.append((("candidates", position, "warmup_steps"), candidate.warmup_steps, allowed))
        if candidate.schedule is not None:
            faults += candidate.schedule.faults(workload, ("candidates", position, "schedule"))
        if candidate.ema_decay is None:
            faults += averaging_faults(workload.ema_decay, candidate.optimizer, ("workload", "ema_decay"))
    return faults
