"""What a crew was measured to take: every process tells its figures, and the result has one for all of them."""

from collections.abc import Sequence

from worker.record import PeakMemory, Record


class Measured(Record):
    """Of one process, or of all."""

    peak_memory: PeakMemory
    energy_joules: float | None
    nvml_note: str | None


def together(each: Sequence[Measured]) -> Measured:
    """Peaks are the largest of a process, since each has a device of its own; energy is the sum."""
    energies = [one.energy_joules for one in each if one.energy_joules is not None]
    notes = [one.nvml_note for one in each if one.nvml_note is not None]
    return Measured(
        peak_memory=PeakMemory.model_validate(
            {name: max(_there(each, name), default=None) for name in PeakMemory.model_fields}
        ),
        energy_joules=sum(energies) if len(energies) == len(each) else None,
        nvml_note=notes[0] if notes else None,
    )


def _there(each: Sequence[Measured], name: str) -> list[int]:
    values = (getattr(one.peak_memory, name) for one in each)
    return [value for value in values if value is not None]
