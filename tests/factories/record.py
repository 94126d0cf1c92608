"""A complete result, for tests that only carry one about."""

from tests.factories.stores import result
from worker.records.result import PeakMemory, Result


def made_result() -> Result:
    """A converged run of 12 steps."""
    return result(final_val_loss=2.1, steps=12, device_seconds=4.5).model_copy(
        update={
            "tokens": 1536,
            "optimizer_state_bytes": 6_871_248,
            "peak_memory": PeakMemory(host_rss_bytes=500_000_000, host_rss_before_bytes=400_000_000),
            "step_seconds_median": 0.02,
            "optimizer_seconds_median": 0.001,
            "tokens_per_second": 6_400.0,
        }
    )
