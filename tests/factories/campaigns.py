"""A small campaign."""

from api.campaigns.campaign import Campaign
from orchestrator.kinds.comparison import Candidate
from tests.factories.stores import comparison_spec


def campaign(**changes: object) -> Campaign:
    """AdamW as the baseline, one held-out workload of 111 steps."""
    workload = comparison_spec().workload
    longer = workload.model_copy(update={"budget": workload.budget.model_copy(update={"steps": 111})})
    fields: dict[str, object] = {
        "name": "better than AdamW",
        "workload": workload,
        "baseline": Candidate(optimizer="adamw", learning_rates=(1e-3,)),
        "held_out": (longer,),
    }
    return Campaign.model_validate(fields | changes)
