"""The cost of a run, as lines."""

from dashboards.text.costs import lines, perplexity
from tests.factories.record import made_result
from tests.factories.specification import made_spec
from worker.records.result import MemoryBreakdown, PeakMemory
from worker.spec.run import Workload
from worker.spec.task import PretrainTask


def test_what_does_not_exist_on_the_device_has_no_line() -> None:
    """A CPU has no allocator peak, no MFU and no energy; its time is not a GPU's."""
    figures = dict(lines(made_result(), made_spec()))

    assert figures["Optimizer state"] == "6.87 MB"
    assert figures["Device time (cpu)"].startswith("4 s in")
    assert not {"Peak reserved", "Peak NVML process", "MFU", "Energy", "Device time (gpu)", "Micro-batch"} & set(
        figures
    )


def test_perplexity_is_derived_where_the_loss_is_in_nats_per_token() -> None:
    """exp(2.1); a regression has none, and counts samples."""
    spec = made_spec()
    assert dict(lines(made_result(), spec))["Perplexity"] == "8.166"
    assert dict(lines(made_result(), spec))["Speed"] == "6.40 k tokens/s"

    fields = {"task": "regression", "budget": {"steps": 12}}
    drawn = spec.model_copy(update={"workload": Workload.model_validate(fields)})
    figures = dict(lines(made_result(), drawn))
    assert "Perplexity" not in figures
    assert figures["Speed"] == "6.40 k samples/s"
    assert "Perplexity" not in dict(lines(made_result().model_copy(update={"final_val_loss": None}), spec))
    assert perplexity(1e4, PretrainTask()) is None


def test_a_gpus_result_shows_every_figure_with_its_unit() -> None:
    """Each under its own name."""
    plain = made_result()
    environment = plain.environment.model_copy(
        update={"device": "cuda", "device_name": "NVIDIA H100 80GB HBM3", "driver": "570.1", "cuda": "13.0"}
    )
    memory = MemoryBreakdown(
        step=2,
        phase="backward",
        micro_batch_sequences=2,
        peak_bytes=15_000_000,
        parameters_bytes=3_000_000,
        gradients_bytes=2_000_000,
        optimizer_state_bytes=6_000_000,
        activations_bytes=3_500_000,
        other_bytes=500_000,
    )
    result = plain.model_copy(
        update={
            "environment": environment,
            "memory_breakdown": memory,
            "micro_batch_sequences": 2,
            "peak_memory": PeakMemory(
                host_rss_bytes=1, host_rss_before_bytes=1, allocator_bytes=15_100_000, nvml_process_bytes=600_000_000
            ),
            "flops_per_second": 4.2e14,
            "model_flops_utilization": 0.42,
            "forward_seconds_median": 0.005,
            "energy_joules": 12_345.6,
            "nvml_note": "NVML lists no processes.",
        }
    )

    figures = dict(lines(result, made_spec()))

    assert figures["Peak memory (tensors)"] == "15.1 MB"
    assert "activations 3.50 MB" in figures["Peak breakdown"] and "other 500 kB (step " in figures["Peak breakdown"]
    assert figures["Peak NVML process"] == "600 MB"
    assert figures["Micro-batch"].startswith("2 of 4")
    assert "forward 5.00 ms" in figures["Step breakdown"]
    assert (figures["Model FLOP/s"], figures["MFU"], figures["Energy"]) == ("420 TFLOP/s", "42 %", "12,346 J")
    assert figures["Device time (gpu)"].startswith("4 s in")
    assert figures["Device"].startswith("cuda: NVIDIA H100") and "570.1" in figures["Device"]
    assert figures["NVML"] == result.nvml_note
