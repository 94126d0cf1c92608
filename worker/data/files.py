"""A user's own files as a dataset: `.txt`, `.md`, `.jsonl` and `.parquet`, all but the last also gzipped.

paths, folders, patterns ──find_files()──► files in a fixed order ──READERS──► texts ──► documents
"""

import glob
import gzip
import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from worker.data.documents import Document, LocalSource, make_document
from worker.errors import DataError
from worker.files import file_sha256

MOST_KINDS: Final = 5
"""The most kinds of passed-over files that are named."""
PIECE_BYTES: Final = 4096
"""A text file is cut at line ends into documents of at least so many bytes, so that one long file has both splits."""


class OwnFiles(LocalSource):
    """The documents of some files, each placed by a hash of its text."""

    def __init__(self, paths: Sequence[str], column: str = "text") -> None:
        """Read files, folders (all known files below) and patterns; raises `DataError` if one gives nothing."""
        self.files, self.passed_over = find_files(paths)
        """`passed_over`: a word on the files below folders that are of no known kind; empty if there are none."""
        self.column = column
        self.total_bytes = sum(path.stat().st_size for path in self.files)
        total = hashlib.sha256(column.encode())
        for path in self.files:
            total.update(bytes.fromhex(file_sha256(path)))
        self.version = f"{len(self.files)} files, {self.total_bytes} bytes, SHA-256 {total.hexdigest()}"

    def read(self) -> Iterator[Document]:
        """Yield the documents, file by file."""
        for path in self.files:
            try:
                for text in READERS[_kind(path)](path, self.column):
                    if text and not text.isspace():
                        yield make_document(text)
                    else:
                        self.skipped_documents += 1
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise DataError(
                    f"{path} is not a complete gzip file: {error}. Fetch it again or leave it out."
                ) from error


def find_files(paths: Sequence[str]) -> tuple[tuple[Path, ...], str]:
    """Return (the files that the paths name, sorted, each once; a description of the skipped ones)."""
    files: set[Path] = set()
    skipped_files: set[Path] = set()
    for pattern in paths:
        matches = [Path(match) for match in glob.glob(str(Path(pattern).expanduser()), recursive=True)]
        matched_files = {path for match in matches for path in _files_of(match)}
        skipped_files |= (strangers := {path for path in matched_files if _kind(path) not in READERS})
        if not matched_files:
            fault = "is an empty folder" if any(map(Path.is_dir, matches)) else "names no file"
            raise DataError(f"{pattern!r} {fault}. {ACCEPTED}")
        if matched_files == strangers:
            raise DataError(f"{pattern!r} has no file that can be read: passed over {_kinds(strangers)}. {ACCEPTED}")
        files |= matched_files - strangers
    return tuple(sorted(files)), _kinds(skipped_files)


def _files_of(path: Path) -> Iterator[Path]:
    """Yield a file itself, if it is of a known kind; all files below a folder."""
    if path.is_dir():
        yield from (file for file in path.rglob("*") if file.is_file())
    elif path.is_file():
        if _kind(path) not in READERS:
            raise DataError(f"{path} is of no known kind. {ACCEPTED}")
        yield path


def _kinds(files: Iterable[Path]) -> str:
    """Return `3 .pdf, 1 without an ending`, the most frequent first."""
    counted = Counter(path.suffix or "without an ending" for path in files).most_common()
    parts = [f"{count} {kind}" for kind, count in counted[:MOST_KINDS]]
    remainder = sum(count for _, count in counted[MOST_KINDS:])
    return ", ".join(parts + ([f"{remainder} of other kinds"] if remainder else []))


def _kind(path: Path) -> str:
    """Return `.jsonl` for `a.jsonl` and `a.jsonl.gz`."""
    suffixes = path.suffixes[-2:]
    if suffixes[-1:] == [".gz"]:
        return suffixes[0] if len(suffixes) == 2 and suffixes[0] != ".parquet" else ".gz"
    return path.suffix


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file, with their ends, without the marks that other systems' editors begin files with."""
    with path.open("rb") as raw:
        unpacked = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
        for number, line in enumerate(unpacked, start=1):
            try:
                text = line.decode("utf-8-sig")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path}, line {number} is not UTF-8 ({error.reason}: byte 0x{error.object[error.start]:02x}). "
                    "Convert the file (`iconv -f … -t UTF-8`) or leave it out."
                ) from error
            yield text


def _pieces(path: Path, column: str) -> Iterator[str]:
    """Yield a text file in pieces of whole lines."""
    piece: list[str] = []
    size = 0
    for line in _lines(path):
        piece.append(line)
        size += len(line)
        if size >= PIECE_BYTES:
            yield "".join(piece)
            piece, size = [], 0
    if piece:
        yield "".join(piece)


def _json_lines(path: Path, column: str) -> Iterator[str | None]:
    """Yield one text a line, from its field `column`."""
    for number, line in enumerate(_lines(path), start=1):
        if line.isspace():
            continue
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}, line {number} is not JSON: {error}. Mend or remove the line.") from error
        yield _field(fields, column, f"{path}, line {number}")


def _field(fields: Any, column: str, location: str) -> str | None:
    if not isinstance(fields, dict) or column not in fields:
        field_names = ", ".join(fields) if isinstance(fields, dict) else "none"
        raise DataError(f"{location} has no field {column!r}; its fields: {field_names}. Name one with --column.")
    text = fields[column]
    if not isinstance(text, str | None):
        raise DataError(
            f"{location}: the field {column!r} is {type(text).__name__}, not text. Name another with --column."
        )
    return text


def _parquet(path: Path, column: str) -> Iterator[str | None]:
    """Yield one text a row, from its column `column`."""
    import pyarrow.parquet  # for Parquet alone

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            kinds = {field.name: field.type for field in file.schema_arrow}
            if column not in kinds:
                raise DataError(
                    f"{path} has no column {column!r}; its columns: {', '.join(kinds)}. Name one with --column."
                )
            kind = kinds[column].value_type if pyarrow.types.is_dictionary(kinds[column]) else kinds[column]
            if not (
                pyarrow.types.is_string(kind)
                or pyarrow.types.is_large_string(kind)
                or pyarrow.types.is_string_view(kind)
            ):
                raise DataError(
                    f"{path}: the column {column!r} is {kinds[column]}, not text. Name another with --column."
                )
            for batch in file.iter_batches(batch_size=1024, columns=[column]):
                yield from batch.column(0).to_pylist()
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is no whole Parquet file: {error}. Fetch it again or leave it out.") from error


READERS: Final[dict[str, Callable[[Path, str], Iterator[str | None]]]] = {
    ".txt": _pieces,
    ".md": _pieces,
    ".jsonl": _json_lines,
    ".parquet": _parquet,
}
"""The readers by the ending of the file's name."""
ACCEPTED: Final = f"Accepted are files, folders and patterns of {', '.join(READERS)}, all but Parquet also as .gz."
