"""A process's place among those that train a run together, and what they leave for each other."""

from pathlib import Path

import pytest
import torch

from worker.distributed.mailbox import RankFault, RankMailbox, StopFile
from worker.distributed.process_group import ALONE, ProcessGroup, is_exchange_fault
from worker.errors import DataError, HubError, RankFaultError, RankLostError, TerminatedError
from worker.meters.clock import DeviceClock
from worker.meters.memory import Measurements, combine_measurements
from worker.rank_attempt import attend
from worker.records.protocol import FailureKind
from worker.records.result import PeakMemory
from worker.training.device import is_out_of_memory

GONE = RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:4. This is bad luck.")


@pytest.mark.parametrize(("count", "size"), [(8, 2), (8, 1), (7, 3), (2, 4)])
def test_the_rows_of_all_are_every_row_once_and_in_order(count: int, size: int) -> None:
    shares = [list(range(count))[ProcessGroup(rank=rank, size=size).shard(count)] for rank in range(size)]

    assert [row for share in shares for row in share] == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_alone_nothing_is_exchanged() -> None:
    """No process group is there, and none is needed."""
    assert ALONE.is_rank_zero
    assert ALONE.broadcast(2) == 2
    assert list(ALONE.all_gather("here")) == ["here"]
    assert ALONE.sum_over_ranks([0.1, 0.2], torch.device("cpu")) == 0.1 + 0.2
    assert ALONE.cause_of(GONE) is GONE


def test_what_is_left_in_the_folder_is_the_reason(tmp_path: Path) -> None:
    """An exchange that failed without a word means that somebody was killed; other errors are their own reason."""
    group, error = ProcessGroup(size=3, mailbox=RankMailbox(tmp_path)), ValueError("no")

    assert group.cause_of(error) is error
    lost = group.cause_of(GONE)
    assert isinstance(lost, RankLostError)
    assert "3 processes" in str(lost) and "[127.0.0.1]:4" in str(lost)
    RankMailbox(tmp_path).report_fault(
        RankFault(rank=2, kind=FailureKind.PROGRAM, out_of_memory=False, message="a bug")
    )
    reason = group.cause_of(GONE)
    assert isinstance(reason, RankFaultError)
    assert (reason.kind, str(reason)) == (FailureKind.PROGRAM, "process 2 of the run: a bug")
    RankMailbox(tmp_path).report_fault(
        RankFault(rank=1, kind=FailureKind.PROGRAM, out_of_memory=True, message="too much")
    )
    assert is_out_of_memory(group.cause_of(GONE))


def test_others_leave_word_of_their_own_faults_alone(tmp_path: Path) -> None:
    """Neither of an order to stop, nor of an exchange that failed because of somebody else."""
    folder = RankMailbox(tmp_path)

    def breaking(error: Exception) -> RankFault | None:
        def train() -> None:
            raise error

        attend(folder, ProcessGroup(rank=1, size=2, mailbox=folder), train)
        return folder.fault()

    assert breaking(TerminatedError("told to leave")) is None
    assert breaking(GONE) is None
    assert breaking(HubError("away")) == RankFault(
        rank=1, kind=FailureKind.INFRASTRUCTURE, out_of_memory=False, message="away"
    )
    word = breaking(DataError("corrupt"))
    assert word is not None
    assert word.kind is FailureKind.PROGRAM
    assert is_exchange_fault(GONE)
    assert not is_exchange_fault(ValueError("gloo"))


def test_the_folder_carries_a_note_to_leave_and_the_last_word(tmp_path: Path) -> None:
    folder = RankMailbox(tmp_path)
    with StopFile(folder) as note:
        assert not note.is_requested
        folder.request_stop()
        assert note.is_requested
    assert (folder.outcome(), folder.has_begun()) == (None, False)
    folder.begin()
    folder.report_outcome("succeeded")
    assert (folder.outcome(), folder.has_begun()) == ("succeeded", True)


def test_peaks_are_the_largest_and_energy_is_the_sum() -> None:
    """A figure that one process cannot give is not made up for it."""

    def process(rss: int, allocated: int | None, joules: float | None) -> Measurements:
        peak = PeakMemory(host_rss_bytes=rss, host_rss_before_bytes=rss // 2, allocator_bytes=allocated)
        return Measurements(peak_memory=peak, energy_joules=joules, nvml_note=None)

    assert combine_measurements([process(8, 5, 1.5), process(6, 7, 2.0)]) == Measurements(
        peak_memory=PeakMemory(host_rss_bytes=8, host_rss_before_bytes=4, allocator_bytes=7),
        energy_joules=3.5,
        nvml_note=None,
    )
    assert combine_measurements([process(8, None, 1.5), process(6, None, None)]).energy_joules is None


def test_a_clock_counts_every_device() -> None:
    """Also for the time before it was made."""
    assert 2 * 10 <= DeviceClock(devices=2, started_before_seconds=10).seconds() < 2 * 11
