"""A user's own files as a dataset: every kind read, every fault named with its file and the way out."""

import codecs
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from worker.data.files import PIECE_BYTES, OwnFiles
from worker.errors import DataError

TEXTS = ["Grüße aus Ulm", "second\nlines", "third"]


def json_lines(texts: list[str | None], column: str = "text") -> bytes:
    return "".join(json.dumps({"id": n, column: text}) + "\n" for n, text in enumerate(texts)).encode()


def texts_of(*paths: Path | str, column: str = "text") -> list[str]:
    return [document.text for document in OwnFiles([str(path) for path in paths], column).documents()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a file of each kind, one of them in a folder below."""
    (tmp_path / "below").mkdir()
    (tmp_path / "a.txt").write_text(TEXTS[0])
    (tmp_path / "b.jsonl").write_bytes(json_lines([TEXTS[1], None, " \n"]))
    (tmp_path / "below" / "c.jsonl.gz").write_bytes(gzip.compress(json_lines([TEXTS[2]])))
    (tmp_path / "below" / "d.txt.gz").write_bytes(gzip.compress(b"fourth"))
    pq.write_table(pa.table({"text": ["fifth", None], "n": [1, 2]}), tmp_path / "e.parquet")
    (tmp_path / "notes.docx").write_text("of no known kind, so a folder passes over it")
    return tmp_path


def test_a_folder_gives_the_documents_of_all_known_files_sorted_by_path(folder: Path) -> None:
    source = OwnFiles([str(folder)])
    assert [d.text for d in source.documents()] == [TEXTS[0], TEXTS[1], TEXTS[2], "fourth", "fifth"]
    assert source.skipped_documents == 3, "without text: null, blanks, null"
    assert source.passed_over == "1 .docx"


def test_files_and_patterns_may_be_mixed_and_no_file_counts_twice(folder: Path) -> None:
    assert texts_of(folder / "*.jsonl", folder / "b.jsonl", folder / "**" / "*.txt.gz") == [TEXTS[1], "fourth"]


def test_a_long_text_is_cut_at_line_ends_and_nothing_is_lost(tmp_path: Path) -> None:
    lines = [f"line {n} " + "x" * (n % 200) + "\n" for n in range(2_000)]
    (tmp_path / "long.txt").write_text("".join(lines))
    pieces = texts_of(tmp_path)
    assert "".join(pieces) == "".join(lines)
    assert all(piece.endswith("\n") for piece in pieces)
    assert all(len(piece) >= PIECE_BYTES for piece in pieces[:-1])
    assert len(pieces) > 10


def test_the_split_is_by_content_so_copies_stay_together(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(json_lines(["same", "other", "same"]))
    first, second, copy = OwnFiles([str(tmp_path)]).documents()
    assert first == copy
    assert first.split() == copy.split()
    assert second.name != first.name


def test_reading_goes_on_behind_any_document(folder: Path) -> None:
    """A cursor as JSON in a fresh object gives the rest, and the same count of skipped documents."""
    whole = list(OwnFiles([str(folder)]).documents())
    for count in range(len(whole) + 1):
        source = OwnFiles([str(folder)])
        stream = source.documents()
        head = [next(stream) for _ in range(count)]
        cursor = json.loads(json.dumps(source.cursor()))
        resumed_source = OwnFiles([str(folder)])
        assert head + list(resumed_source.documents(cursor)) == whole
        assert resumed_source.skipped_documents == 3


def test_the_version_is_a_hash_of_content_and_column(folder: Path) -> None:
    """Dates do not count; a changed byte and another column do."""
    version = OwnFiles([str(folder)]).version
    (folder / "a.txt").touch()
    assert OwnFiles([str(folder)]).version == version
    assert OwnFiles([str(folder)], "body").version != version
    (folder / "a.txt").write_text("Grusse aus Ulm!")
    assert OwnFiles([str(folder)]).version != version


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"x\nlatin \xe9", r"a\.txt, line 2 .*0xe9.*Convert"),
        (
            "a.txt.gz",
            gzip.compress(b"cut off" * 100, mtime=0)[:-9],
            r"a\.txt\.gz .*Fetch it again",
        ),
        ("a.txt.gz", b"plain", r"a\.txt\.gz "),
        ("a.jsonl", b'{"text": "x"}\n{"text": \n', r"a\.jsonl, line 2 .*Mend"),
        (
            "a.jsonl",
            b'{"body": "x", "id": 1}\n',
            r"'text'; its fields: body, id\. .*--c",
        ),
        ("a.jsonl", b'{"text": 5}\n', r"line 1: .*'text' is int"),
        ("a.jsonl", b"[1]\n", r"line 1 .*fields: none"),
        ("a.parquet", b"no parquet", r"a\.parquet .*Fetch it again"),
        ("a.jsonl", b'{"text": ' + b"[" * 100_000 + b"\n", r"a\.jsonl, line 1 .*Mend"),
    ],
)
def test_a_faulty_file_is_named_with_the_way_out(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=said):
        texts_of(tmp_path)


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_the_marks_that_editors_begin_files_with_are_no_text(tmp_path: Path, name: str) -> None:
    """Of files that were put behind each other, too."""
    content = b"one\n" if name == "a.txt" else json_lines(["one\n"])
    (tmp_path / name).write_bytes(codecs.BOM_UTF8 + content + codecs.BOM_UTF8 + content)
    assert "".join(texts_of(tmp_path)) == "one\none\n"


@pytest.mark.parametrize(
    "kind",
    [
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int32(), pa.large_string()),
    ],
)
def test_parquet_has_text_in_columns_of_many_types(tmp_path: Path, kind: pa.DataType) -> None:
    column = pa.array(["one", None, "two", "one"])
    column = column.dictionary_encode() if pa.types.is_dictionary(kind) else column
    pq.write_table(pa.table({"text": column.cast(kind)}), tmp_path / "a.parquet")
    assert texts_of(tmp_path) == ["one", "two", "one"]


def test_a_parquet_file_that_is_damaged_within_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"text": [str(n) * 9 for n in range(9_000)]}), path, compression="zstd", use_dictionary=False
    )
    content = bytearray(path.read_bytes())
    content[len(content) // 3 : len(content) // 2] = bytes(len(content) // 2 - len(content) // 3)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.parquet .*Fetch it again"):
        texts_of(tmp_path)


def test_what_no_text_has_is_replaced_and_counted(tmp_path: Path) -> None:
    """Half an emoji, which UTF-8 cannot encode, and NUL, which would end the document; whole emojis are left alone."""
    lines = ['{"text": "half \\ud83d and \\udE00"}', '{"text": "\\ud83d\\ude00 \\u0000"}', '{"text": "\ufffd"}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    (tmp_path / "b.txt").write_bytes(b"a\0b")
    documents = list(OwnFiles([str(tmp_path)]).documents())
    assert [(document.text, document.replaced_characters) for document in documents] == [
        ("half \ufffd and \ufffd", 2), ("😀 \ufffd", 1), ("\ufffd", 0), ("a\ufffdb", 1),
    ]  # fmt: skip


def test_a_parquet_column_must_be_there_and_hold_text(folder: Path) -> None:
    with pytest.raises(DataError, match=r"'body'; its columns: text, n\. .*--column"):
        texts_of(folder / "e.parquet", column="body")
    with pytest.raises(DataError, match=r"'n' is int64"):
        texts_of(folder / "e.parquet", column="n")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("*.txt.zip", "names no file"),
        ("notes.docx", "no known kind"),
        ("strange", "2 .pdf, 1 without"),
        ("empty", "empty folder"),
    ],
)
def test_what_gives_no_file_is_refused(folder: Path, path: str, said: str) -> None:
    for name in ("strange/a.pdf", "strange/below/b.pdf", "strange/below/LICENCE"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    (folder / "empty").mkdir()
    with pytest.raises(DataError, match=said):
        texts_of(folder / path)
