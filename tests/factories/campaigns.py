"""A small campaign, and the ends of its runs as a test chooses them."""

from collections.abc import Callable

from orchestrator.campaigns.ledger import CampaignSpec, TriedOptimizer, TryRequest
from orchestrator.jobs import Lease
from tests.factories.stores import comparison_spec
from worker.spec.run import Workload

GAIN = 0.1
EFFECT = 2 * GAIN
"""Of `GOOD`: shown with few pairs."""
BASELINE_LR = 1e-3
GOOD, BAD = TryRequest(optimizer="adapm", lr=2e-3, note="low rank"), TryRequest(optimizer="adapm", lr=4e-3)


def workload(steps: int = 100) -> Workload:
    """The factory's usual one."""
    found = comparison_spec().workload
    return found.model_copy(update={"budget": found.budget.model_copy(update={"steps": steps})})


def campaign_spec(held_out: int = 1, **changes: object) -> CampaignSpec:
    """Held-out workloads are told by their steps: 111, 112, …"""
    fields: dict[str, object] = {
        "name": "better than AdamW",
        "workload": workload(),
        "baseline": TriedOptimizer(optimizer="adamw", lr=BASELINE_LR),
        "gain": GAIN,
        "held_out": tuple(workload(111 + number) for number in range(held_out)),
        "most_tries": 20,
    }
    return CampaignSpec.model_validate(fields | changes)


def loss_of(lease: Lease, held_out_helps: Callable[[Lease], bool] = lambda _: True) -> float:
    """`GOOD` is better than the baseline, on held-out workloads where they say so; `BAD` is worse."""
    spec = lease.spec
    level = 2.3 + 0.01 * (spec.seed % 7)
    is_held_out = spec.workload.budget.steps > 100
    helps = not is_held_out or held_out_helps(lease)
    return level + {BASELINE_LR: 0.0, GOOD.lr: -EFFECT if helps else 0.01, BAD.lr: 0.05}[spec.optimizer.lr]
