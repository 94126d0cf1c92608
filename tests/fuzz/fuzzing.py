"""Schemathesis over the whole OpenAPI document of a served house: what it sends, what it may not hold against us.

    report = fuzzed(house, phases=("coverage", "stateful"), examples=3)
    report.faults       # each with the request that shows it; none is what we want

Its phases: the document's own examples; the edges of every schema (coverage); generated requests, good and bad
(fuzzing); chains of calls, which it infers from the parameters that answers have (stateful).
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.core.failures import Failure
from schemathesis.core.parameters import ParameterLocation
from schemathesis.engine import events, from_schema
from schemathesis.engine.recorder import ScenarioRecorder
from schemathesis.hooks import unregister
from schemathesis.schemas import BaseSchema

from tests.fuzz.house import House
from tests.fuzz.tolerance import is_fault

PHASES = ("examples", "coverage", "fuzzing", "stateful")
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "positive_data_acceptance",
    "missing_required_header",
    "unsupported_method",
    "allow_header_conformance",
    "use_after_free",
)
"""All but those of access, which `api/auth/scopes.py` and its matrix of callers say more of."""
SEED = 20_251_009
ACCEPTED = ("2xx", "304", "404", "409", "412")
"""The accepted answers to valid requests: their subject may be gone, in another state, or changed meanwhile."""
WORKERS = "/v1/attempts/"
IDENTITY = (ParameterLocation.PATH, ParameterLocation.HEADER)
"""The fields in which a request names its attempt."""


@dataclass
class Report:
    """The requests, their answers and their faults."""

    cases: Counter[str] = field(default_factory=Counter)
    """The cases by operation."""
    statuses: dict[str, Counter[int]] = field(default_factory=dict)
    faults: dict[tuple[str, str], str] = field(default_factory=dict)
    """The faults by operation and kind; the request that showed it first."""
    transitions: int = 0
    """Calls that came by a link from an earlier answer."""
    broken: list[str] = field(default_factory=list)
    """The hindrances of the fuzzer itself."""
    passed_over: Counter[str] = field(default_factory=Counter)
    """The failures that `tolerance.py` explains."""
    phase_seconds: dict[str, float] = field(default_factory=dict)

    def note(self, recorder: ScenarioRecorder) -> None:
        """Take in one scenario."""
        for case_id, node in recorder.cases.items():
            label = node.value.operation.label
            self.cases[label] += 1
            self.transitions += node.transition is not None
            answer = recorder.find_response(case_id=case_id)
            if answer is not None:
                self.statuses.setdefault(label, Counter())[answer.status_code] += 1
            for check in recorder.checks.get(case_id, ()):
                if check.failure_info is not None:
                    failure = check.failure_info.failure
                    key = (label, failure.title)
                    self.faults.setdefault(key, f"{failure.message}\n{check.failure_info.code_sample}")

    def spent(self, phase: str, seconds: float) -> None:
        """Add to the time of a phase."""
        self.phase_seconds[phase] = self.phase_seconds.get(phase, 0.0) + seconds

    def lines(self) -> Iterable[str]:
        """The report for people."""
        yield f"{len(self.cases)} operations, {sum(self.cases.values())} cases, {self.transitions} by links"
        yield ", ".join(f"{phase} {seconds:.0f} s" for phase, seconds in self.phase_seconds.items())
        for label, count in self.cases.most_common():
            statuses = " ".join(f"{status}×{times}" for status, times in sorted(self.statuses.get(label, {}).items()))
            yield f"{count:6d}  {label}: {statuses}"
        for reason, count in self.passed_over.most_common():
            yield f"{count:6d}  passed over: {reason}"
        yield from self.broken
        for (label, title), text in self.faults.items():
            yield f"FAULT {label}: {title}\n{text}"


def fuzzed(
    house: House,
    *,
    phases: Iterable[str] = PHASES,
    examples: int = 10,
    seed: int = SEED,
    tell: Callable[[str], None] = lambda line: None,
) -> Report:
    """Fuzz the house; `tell` gets a line for each scenario."""
    config = _config(house.url, tuple(phases), examples, seed)
    document = house.app.openapi()
    schema: BaseSchema = schemathesis.openapi.from_dict(document, config=SchemathesisConfig.from_dict(config))
    report, before_call = Report(), _opener(house)

    @schema.hook
    def filter_failure(context: Any, failure: Failure, case: Any, response: Any) -> bool:
        reason = is_fault(failure, case, response)
        if reason is not None:
            report.passed_over[reason] += 1
        return reason is None

    schemathesis.hook(before_call)  # of all schemas: it knows no narrower scope
    try:
        for event in from_schema(schema).execute():
            if isinstance(event, events.ScenarioFinished):
                report.note(event.recorder)
                report.spent(str(event.phase), event.elapsed_time)
                sent = len(event.recorder.cases)
                tell(f"{event.phase}: {event.label or 'chain'}: {event.status}, {sent} in {event.elapsed_time:.1f} s")
            elif isinstance(event, events.NonFatalError):
                report.broken.append(f"{event.label}: {event.info.format()}")
            elif isinstance(event, events.FatalError):
                raise event.exception
    finally:
        unregister(before_call)
    return report


def _config(url: str, phases: tuple[str, ...], examples: int, seed: int) -> dict[str, Any]:
    config: dict[str, Any] = {
        "seed": seed,
        "base-url": url,
        "continue-on-failure": True,
        "request-timeout": 600,  # a slow machine is not a fault
        "suppress-health-check": ["all"],
        "generation": {
            "database": "none",
            "max-examples": examples,
            "no-shrink": True,
            "with-security-parameters": False,  # `before_call` gives each request what opens its operation
        },
        "phases": {phase: {"enabled": phase in phases} for phase in PHASES},
        "checks": {"enabled": False} | {name: {"enabled": True} for name in CHECKS},
    }
    config["phases"]["stateful"]["max-steps"] = 6
    config["checks"]["positive_data_acceptance"]["expected-statuses"] = list(ACCEPTED)
    return config


def _opener(house: House) -> Callable[[Any, Any, dict[str, Any]], None]:
    """Return the function that gives each request the key of its operation, and now and then an experiment with
    matching data."""
    turns = cycle((True, False))

    def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
        case.headers["Authorization"] = f"Bearer {house.secret}"
        if case.path.startswith(WORKERS):
            _as_worker(house, case)
        elif next(turns) and not _is_bad_at(case, ParameterLocation.PATH):
            case.path_parameters.update(house.kinds.get(case.path, {}))
        if case.method == "DELETE" and case.path_parameters.get("key_id") == house.key_id:
            case.path_parameters["key_id"] = "elsewhere"  # it would lock itself out

    return before_call


def _as_worker(house: House, case: Any) -> None:
    """Speak for an attempt that is at work, where the case is not about being nobody."""
    if any(_is_bad_at(case, location) for location in IDENTITY):
        return
    run_id, attempt, token = house.lease()
    case.path_parameters = {"run_id": run_id, "attempt": attempt}
    case.headers["Authorization"] = f"Bearer {token}"


def _is_bad_at(case: Any, location: ParameterLocation) -> bool:
    return case.meta is not None and case.meta.is_negative_at(location)
