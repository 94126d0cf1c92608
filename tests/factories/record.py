"""A complete result, for tests that only carry one about."""

from worker.records.result import Environment, PeakMemory, Result, Verdict


def made_result() -> Result:
    """A converged run of 12 steps."""
    return Result(
        verdict=Verdict.CONVERGED,
        verdict_reason="The validation loss went from 5.5870 to 2.1000 nats in 12 steps.",
        steps=12,
        tokens=1536,
        initial_val_loss=5.587,
        final_val_loss=2.1,
        final_train_loss=2.2,
        parameters=858_880,
        parameter_bytes=3_435_520,
        optimizer_state_bytes=6_871_248,
        peak_memory=PeakMemory(host_rss_bytes=500_000_000, host_rss_before_bytes=400_000_000),
        step_seconds_median=0.02,
        optimizer_seconds_median=0.001,
        tokens_per_second=6_400.0,
        device_seconds=4.5,
        spec_hash="0" * 64,
        data_hash="1" * 64,
        environment=Environment(
            device="cpu",
            device_name="a processor",
            host="a-host",
            threads=1,
            python="3.11",
            torch="2.13",
            transformers="5.23",
            platform="Linux",
        ),
    )
