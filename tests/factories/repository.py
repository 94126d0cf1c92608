"""A dataset repository of the Hugging Face hub as a local folder: the same card and the same kinds of files."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.factories.dataset import MadeSource

CARD = """---
configs:
- config_name: {subset}
  data_files:
  - split: train
    path: {pattern}
---
"""
FILES = 3


def made_texts() -> list[str]:
    """The texts of the repository, in its order."""
    return [f"{number}: {document.text}" for number, document in enumerate(MadeSource(90).documents())]


def make_repository(folder: Path, dataset: str) -> Path:
    """Write the texts in `FILES` files, as C4 or as FineWeb lays them out."""
    folder.mkdir(parents=True)
    texts = made_texts()
    parts = [texts[number * len(texts) // FILES : (number + 1) * len(texts) // FILES] for number in range(FILES)]
    if dataset == "c4":
        (folder / "README.md").write_text(CARD.format(subset="en", pattern="en/c4-train.*.json.gz"))
        (folder / "en").mkdir()
        for number, part in enumerate(parts):
            lines = "".join(json.dumps({"text": text, "url": f"https://{number}.example"}) + "\n" for text in part)
            name = f"c4-train.{number:05d}-of-{FILES:05d}.json.gz"
            (folder / "en" / name).write_bytes(gzip.compress(lines.encode()))
    else:
        (folder / "README.md").write_text(CARD.format(subset="sample-10BT", pattern="sample/10BT/*.parquet"))
        (folder / "sample" / "10BT").mkdir(parents=True)
        for number, part in enumerate(parts):
            pq.write_table(pa.table({"text": part}), folder / "sample" / "10BT" / f"{number:03d}_00000.parquet")
    return folder
