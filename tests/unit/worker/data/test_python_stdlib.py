"""The interpreter's library as a dataset, and the split of documents."""

from pathlib import Path

from worker.data.documents import Document, Split
from worker.data.sources import PythonStdlib


def write(folder: Path, name: str, content: bytes) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_documents_are_sorted_utf8_library_files_and_the_others_are_counted_or_left_out(tmp_path: Path) -> None:
    """Order is by relative path; site-packages and other suffixes are no part; undecodable files are counted."""
    write(tmp_path, "b.py", b"b = 1\n")
    write(tmp_path, "a/z.py", "ä = 2\n".encode())
    write(tmp_path, "bad.py", b"\xff\xfe\xfd")
    write(tmp_path, "site-packages/foreign.py", b"x")
    write(tmp_path, "a/notes.txt", b"x")
    source = PythonStdlib(tmp_path)

    documents = list(source.documents())

    assert [(d.name, d.text) for d in documents] == [("a/z.py", "ä = 2\n"), ("b.py", "b = 1\n")]
    assert source.skipped_documents == 1
    assert len(list(source.documents())) == 2
    assert source.skipped_documents == 1, "a second reading counts afresh"


def test_the_real_library_is_large_and_about_two_percent_of_it_is_held_out() -> None:
    """The running interpreter has megabytes of source, in both splits."""
    documents = list(PythonStdlib().documents())

    held_out = [d for d in documents if d.split() is Split.VALIDATION]
    assert sum(len(d.text) for d in documents) > 5_000_000
    assert 0.008 < len(held_out) / len(documents) < 0.035
    assert sum(len(d.text) for d in held_out) > 50_000
    assert not [d.name for d in documents if "site-packages" in d.name]


def test_the_split_depends_on_the_name_alone() -> None:
    """A changed text stays where it was."""
    names = [f"lib/module{number}.py" for number in range(2000)]

    splits = [Document(name=name, text="a").split() for name in names]

    assert splits == [Document(name=name, text="quite another").split() for name in names]
    assert 20 < splits.count(Split.VALIDATION) < 60, "about 2 % of 2,000"


def test_the_split_is_the_one_of_ever() -> None:
    """These names were placed by the first version; moving them would leak held-out text into training."""
    held_out = [f"module{n}.py" for n in range(200) if Document(name=f"module{n}.py", text="").split() != "train"]

    assert held_out == HELD_OUT


HELD_OUT = ["module162.py", "module189.py"]
