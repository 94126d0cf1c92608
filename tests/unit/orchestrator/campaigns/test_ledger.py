"""What is said of a try never hides the runs that its candidate lost."""

import math

from orchestrator.campaigns.improvement import PairsState, judge_improvement
from orchestrator.campaigns.ledger import TryRecord, TryRequest, TryState, verdict_sentence


def test_pairs_that_were_cut_are_said_however_few() -> None:
    """Usually 0.035 nats better, and four of 26 runs diverged: shown, and no mean difference of losses."""
    differences = [math.inf if place % 6 == 3 else -0.035 for place in range(60)]
    found = judge_improvement(differences, level=0.0126, gain=0.02, most=96)
    assert found.state is PairsState.SHOWN and 0 < 4 * found.cut_pairs <= found.pairs
    record = TryRecord(
        campaign_id="c1",
        place=1,
        registered_at=0.0,
        verdict="",
        most_pairs=96,
        experiment_id=None,
        runs=60,
        state=TryState.IMPROVED,
        improvement=found,
        level=0.0126,
        held_out=(),
        tried=TryRequest(optimizer="adamw", lr=0.1),
    )
    said = verdict_sentence(record, gain=0.02, loss="validation loss", unit=" nats")
    assert said.startswith("Improved: ")
    assert f"{found.cut_pairs} of {found.pairs} pairs count as ±0.04 nats" in said
    assert "usually better" not in said
