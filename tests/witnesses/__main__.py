"""Freezes what the product shows, so that a change that should show no difference can prove it.

    python -m tests.witnesses write FOLDER            before the change
    python -m tests.witnesses compare FOLDER          after it: a diff of every file that differs, and exit code 1
    … --only pages --only losses                      parts of it (`parts.py` has them all)

Both on one machine, in one environment: what is frozen is as exact as floats, and belongs to no repository. An intended
difference is read in the diff, said in the change, and written again.

    pages/ figures/ rest/    every answer of the application over a stored data folder (`data_folder.tar.xz`, opened by
                             today's migrations, at a fixed time), found by following links (`crawl.py`)
    answers.txt              each address with its status and headers
    actions/                 what is answered to submitting, pausing, cancelling, deleting, cloning
    commands/                what the command line prints of the same folder, and without a service
    specifications.json      hashes of the examples' and the studies' runs; the catalog of optimizers as data
    losses.json              tiny trainings under each optimizer, to the last bit

REST, `--help` and what the published results say are pages of docs/: git shows what changes in them. The product's
modules are imported in `product.py` alone.
"""

import argparse
import difflib
import sys
import tempfile
import time
from pathlib import Path

SHOWN_LINES = 40
"""The lines of one file's diff."""


def main() -> int:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.witnesses", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", choices=("write", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", action="append", metavar="PART", help="a part by its name; repeat it")
    parser.add_argument("--lines", type=int, default=SHOWN_LINES, help="of each file's diff; default %(default)s")
    options = parser.parse_args()
    if options.verb == "write":
        write(options.folder, options.only)
        return 0
    if not options.folder.is_dir():
        parser.error(f"there is no folder {options.folder}; `write` makes it")
    with tempfile.TemporaryDirectory(prefix="witnesses-") as fresh:
        names = write(Path(fresh), options.only)
        return 1 if differ(options.folder, Path(fresh), names if options.only else None, options.lines) else 0


def write(folder: Path, only: list[str] | None) -> set[str]:
    """Write the witnesses, or some parts of them, into a folder; the names of the files."""
    from tests.witnesses.parts import PARTS

    names: set[str] = set()
    for part in only or PARTS:
        if part not in PARTS:
            sys.exit(f"there is no part {part!r}; there are {', '.join(PARTS)}")
        began, count = time.perf_counter(), 0
        for name, content in PARTS[part]():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            names.add(name)
            count += 1
        print(f"{part}: {count} files, {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
    return names


def differ(before: Path, after: Path, names: set[str] | None, lines: int) -> bool:
    """Print what differs, file by file; whether anything does."""
    if names is None:
        names = {str(path.relative_to(side)) for side in (before, after) for path in side.rglob("*") if path.is_file()}
    different = 0
    for name in sorted(names):
        old, new = (_read(side / name) for side in (before, after))
        if old != new:
            different += 1
            diff = list(difflib.unified_diff(old, new, f"before/{name}", f"after/{name}", lineterm="", n=1))
            print("\n".join(diff[:lines] + ([f"… {len(diff) - lines} more lines"] if len(diff) > lines else [])))
    print(f"{different} of {len(names)} files differ", file=sys.stderr)
    return different > 0


def _read(path: Path) -> list[str]:
    return path.read_text(errors="backslashreplace").splitlines() if path.exists() else []


if __name__ == "__main__":
    from tests.witnesses.environment import settle

    settle()
    sys.exit(main())
