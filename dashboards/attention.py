"""What needs somebody: sentences about what stands in the way of runs, each with the way out. Pure."""

from dataclasses import dataclass

from dashboards import formats
from dashboards.views import Tone
from orchestrator.activity import DISPATCHER, Activity, Leader

SILENT_SECONDS = 60.0
"""Twice a lease: a worker that has said nothing for so long will be given up."""


@dataclass(frozen=True, kw_only=True)
class Concern:
    """One thing that needs somebody."""

    text: str
    tone: Tone = "warn"
    link: str | None = None


def concerns(activity: Activity, hindrance: str | None) -> tuple[Concern, ...]:
    """Everything at this moment, what stops everything first."""
    found = [Concern(text=hindrance, tone="bad")] if hindrance else []
    if activity.waiting_total and dispatcher(activity) is None:
        text = f"{_runs(activity.waiting_total)}, but no dispatcher is at work: adapm-bench up starts one."
        found.append(Concern(text=text, tone="bad"))
    unplaceable = [one for one in activity.waiting if one.position is None]
    if unplaceable:
        text = f"{_runs(len(unplaceable))} for more CPUs or GPUs than any machine of the cluster has."
        found.append(Concern(text=text, link=f"/runs/{unplaceable[0].run_id}"))
    for one in activity.at_work:
        if one.silent_seconds is not None and one.silent_seconds > SILENT_SECONDS:
            text = f"Run {one.run_id} has said nothing for {formats.duration(one.silent_seconds)}; its lease will end."
            found.append(Concern(text=text, link=f"/runs/{one.run_id}"))
    if activity.failed_runs:
        number = activity.failed_runs
        text = f"{number} run{'s' if number != 1 else ''} failed in the last 24 hours; retry, or read why."
        found.append(Concern(text=text, tone="bad", link="/queue#failures"))
    return tuple(found)


def dispatcher(activity: Activity) -> Leader | None:
    """Who dispatches now; None where nobody's lease lasts."""
    found = (one for one in activity.leaders if one.role == DISPATCHER and one.expires_in_seconds > 0)
    return next(found, None)


def _runs(number: int) -> str:
    return f"{number} run waits" if number == 1 else f"{number} runs wait"
