"""Log files are capped while their writers go on writing."""

from pathlib import Path

from api.processes.supervisor import rotate


def test_a_long_log_moves_aside_and_its_writer_goes_on_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "api.log"
    with path.open("a", buffering=1) as writer:
        for number in range(6):
            writer.write(f"{number}" * 100 + "\n")
            rotate(path, most_bytes=50, kept=3)
        writer.write("new\n")
    assert path.read_text() == "new\n"
    digit_by_log = {log.name: log.read_text()[0] for log in tmp_path.glob("api.log.*")}
    assert digit_by_log == {"api.log.1": "5", "api.log.2": "4", "api.log.3": "3"}


def test_a_short_log_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "api.log"
    path.write_text("short\n")
    rotate(path)
    assert [file.name for file in tmp_path.iterdir()] == ["api.log"]
