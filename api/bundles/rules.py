"""A set of rules as a file: the workload that is fixed, what a candidate may choose, and how a record has to be shown.

    rules.yaml ─► `RuleSet` ─► of a candidate of a bundle: ranked, or the first rule that it does not keep

Which fields of a workload are fixed is what the file names; others are free. Those that come with this version lie in
`rule_sets/`: ours, and what modded-nanogpt's track 3 and AlgoPerf ask for.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, JsonValue, ValidationError, model_validator

from orchestrator.analysis.benchmark_rules import TRACK_3_MARGIN, TRACK_3_TARGET
from orchestrator.errors import OrchestratorError
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.names import CandidateName
from orchestrator.records import CandidateRow, Comparison
from orchestrator.specs.faults import validation_faults
from orchestrator.specs.text import SpecTextError, parse
from worker.schema import Spec, SpecFault, raise_faults
from worker.spec.run import Workload
from worker.words import pluralize

SHIPPED: Final = Path(__file__).parent / "rule_sets"
Text = Annotated[str, Field(min_length=1, max_length=2_000)]
Few = Annotated[int, Field(strict=True, ge=1, le=256)]
Choice = Literal["options", "schedule", "warmup_steps", "ema_decay", "rules", "search"]
WORDS: Final[Mapping[Choice, str]] = {
    "options": "options of its own",
    "schedule": "a schedule of its own",
    "warmup_steps": "a warm-up of its own",
    "ema_decay": "averaged weights",
    "rules": "rules for blocks",
    "search": "a search of more than the learning rate",
}


class RuleSetError(OrchestratorError):
    """A file holds no set of rules, and why."""


class PairedRecord(Spec):
    """Ours: ranked by mean loss; a record is shown to be below the baseline of its own submission, paired by seed."""

    kind: Literal["paired"] = "paired"
    baseline: CandidateName = "adamw"
    least_seeds: Few = 5
    least_rates: Few = 3


class TargetRecord(Spec):
    """Track 3's: ranked by steps; the mean loss of all runs is below the target as surely as the margin asks for."""

    kind: Literal["target"] = "target"
    target: float = TRACK_3_TARGET
    margin: Annotated[float, Field(gt=0)] = TRACK_3_MARGIN


class ProfileRecord(Spec):
    """AlgoPerf's: ranked by the area under the performance profile over workloads; one without a result on a workload
    never reaches its target."""

    kind: Literal["profile"] = "profile"
    baseline: CandidateName = "adamw"
    """Whose median final loss is the target."""
    least_seeds: Few = 3
    """AlgoPerf's studies."""
    least_rates: Few = 5
    """AlgoPerf's trials."""
    least_workloads: Few = 2


class RuleSet(Spec):
    """The fields of a file of rules."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,63}$")]
    title: Text
    source: Text
    workload: dict[str, JsonValue] = Field(default_factory=dict)
    """The fields that are fixed, as in a specification; of an object those that stand there."""
    allowed: tuple[Choice, ...] = ()
    """What a candidate may choose besides optimizer and learning rate."""
    noise_floor_nats: Annotated[float, Field(ge=0, le=1e3)] = 0.0
    """Losses nearer to each other than that share a place, and one of them is no record after the other."""
    record: Annotated[PairedRecord | TargetRecord | ProfileRecord, Field(discriminator="kind")]
    notes: tuple[Text, ...] = ()

    @model_validator(mode="after")
    def _require_known_fields(self) -> "RuleSet":
        faults: list[SpecFault] = [
            (("workload", name), value, f"must be a field of a workload: {', '.join(Workload.model_fields)}")
            for name, value in self.workload.items()
            if name not in Workload.model_fields
        ]
        budget = self.workload.get("budget")
        if isinstance(self.record, PairedRecord) and not (isinstance(budget, dict) and "steps" in budget):
            faults.append((("workload", "budget"), budget, "must fix steps: losses of other budgets are no rivals"))
        raise_faults(type(self).__name__, faults)
        return self

    def workload_mismatch(self, workload: Workload) -> str | None:
        """The first fixed field that is another, in words."""
        found = workload.model_dump(mode="json")
        return next((told for told in _differences(self.workload, found, "workload")), None)

    def reason_not_ranked(self, spec: ComparisonSpec, answer: Comparison, row: CandidateRow) -> str | None:
        """Why the candidate of that workload is not ranked; None where it is."""
        if (told := self._forbidden_choice(spec, row.candidate)) is not None:
            return told
        if row.val_loss is None:
            return "it has no finite loss"
        if lost := row.lost_runs():
            return f"{lost} of its judged runs {'was' if lost == 1 else 'were'} lost"
        record = self.record
        if isinstance(record, TargetRecord):
            return None  # the rule itself says whether it is shown
        rates = len(row.learning_rates)
        if answer.baseline != record.baseline:
            return f"its submission holds it against {answer.baseline}, not against {record.baseline}"
        if row.val_loss.n < record.least_seeds:
            return f"it was judged on {pluralize(row.val_loss.n, 'seed')}, and {record.least_seeds} are asked for"
        if rates < record.least_rates:
            return f"it was trained at {pluralize(rates, 'learning rate')}, and {record.least_rates} are asked for"
        return "its best learning rate is at the end of what was tried" if row.edge_of_grid else None

    def _forbidden_choice(self, spec: ComparisonSpec, name: str) -> str | None:
        candidate = spec.candidate(name)
        chosen: dict[Choice, bool] = {
            "options": bool(candidate.options),
            "schedule": candidate.schedule is not None,
            "warmup_steps": candidate.warmup_steps is not None,
            "ema_decay": candidate.ema_decay is not None,
            "rules": bool(candidate.rules),
            "search": bool(spec.tuning and spec.tuning.search),
        }
        for choice, is_chosen in chosen.items():
            if is_chosen and choice not in self.allowed:
                return f"it has {WORDS[choice]}, which these rules do not allow"
        return None


def _differences(fixed: Mapping[str, Any], found: Mapping[str, Any], where: str) -> Iterator[str]:
    for name, value in fixed.items():
        here = found.get(name)
        if isinstance(value, dict) and isinstance(here, dict):
            yield from _differences(value, here, f"{where}.{name}")
        elif here != value:
            yield f"{where}.{name} is {_shorten(here)}, not {_shorten(value)}"


def _shorten(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def read_rules(path: Path) -> RuleSet:
    """The rules in a file. Raises `RuleSetError` with every fault."""
    try:
        return RuleSet.model_validate(parse(path.read_text(encoding="utf-8"), str(path)))
    except (OSError, UnicodeDecodeError, SpecTextError) as error:
        raise RuleSetError(str(error)) from error
    except ValidationError as error:
        told = "\n".join(f"  {each.text()}" for each in validation_faults(error, RuleSet))
        raise RuleSetError(f"{path} is no set of rules:\n{told}") from error


def shipped_rules() -> tuple[RuleSet, ...]:
    """Those that come with this version."""
    return tuple(read_rules(path) for path in sorted(SHIPPED.glob("*.yaml")))


def all_rules(files: Sequence[Path]) -> tuple[RuleSet, ...]:
    """Those of the files, else the shipped ones. Raises `RuleSetError`, for two of one name as well."""
    found = tuple(read_rules(path) for path in files) or shipped_rules()
    names = [each.name for each in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise RuleSetError(f"two sets of rules are called {twice[0]}")
    return found
