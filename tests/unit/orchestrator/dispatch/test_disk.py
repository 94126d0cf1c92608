"""The disk-space guard says why nothing is begun, or nothing."""

from pathlib import Path

from orchestrator.dispatch.disk import shortage


def test_a_full_disk_is_told_with_a_way_out(tmp_path: Path) -> None:
    reason = shortage(tmp_path, 10**18)
    assert reason is not None
    assert f"the disk of {tmp_path} has" in reason
    assert "ADAPM_BENCH_FREE_BYTES" in reason


def test_an_empty_disk_is_no_hindrance(tmp_path: Path) -> None:
    assert shortage(tmp_path, 1) is None


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert (
        shortage(tmp_path / "none", 1)
        == f"the data folder {tmp_path / 'none'} cannot be looked at: No such file or directory"
    )
