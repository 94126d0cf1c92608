"""Tokenizers that are a `tokenizer.json`: GPT-2's, Llama's, a user's own, or one trained here on the dataset itself."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import huggingface_hub
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as JsonTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers

from worker.catalog import datasets
from worker.data.documents import DocumentSource, Split
from worker.data.manifest import TOKENIZER_FILE
from worker.errors import DataError, HubError
from worker.files import atomic_replacement

Tokens = NDArray[np.uint16] | NDArray[np.uint32]

LARGEST_OF_TWO_BYTES: Final = 2**16
"""Vocabularies up to here are stored as uint16, larger ones as uint32."""


class ByteTokenizer:
    """A tokenizer of UTF-8 bytes. NUL ends a text: no document has it (`documents.py`), so 256 ids suffice."""

    vocabulary_size = 256
    end_of_text = 0
    """The id that ends every document."""
    sha256: str | None = None
    """The hash of `tokenizer.json`; None if no file is needed."""

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the bytes of each text, then NUL; one array of shape (tokens,) a text."""
        return [np.frombuffer(text.encode() + b"\0", dtype=np.uint8).astype(np.uint16) for text in texts]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of those bytes; what is not text in them is replaced by U+FFFD."""
        return bytes(tokens).decode(errors="replace")


def token_bytes(vocabulary_size: int) -> int:
    """Return the bytes of one stored token."""
    return 2 if vocabulary_size <= LARGEST_OF_TWO_BYTES else 4


def token_dtype(size_bytes: int) -> np.dtype[np.unsignedinteger]:
    """Return the little-endian type of stored tokens, so that shards can be copied between machines."""
    return np.dtype(f"<u{size_bytes}")


END_OF_TEXT: Final = "<|endoftext|>"
END_TOKENS: Final = (END_OF_TEXT, "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]")
"""The names of the end of a text in GPT-2, Llama 3, Llama 2 and others; the first that a tokenizer has is used."""
TRAINING_BYTES: Final = 100_000_000
"""A tokenizer is trained on the first so many bytes of training documents; counts of common pairs change little
afterwards, and all words must fit into memory."""


class BpeTokenizer:
    """A tokenizer of the library `tokenizers`, which encodes on all cores."""

    def __init__(self, path: Path, *, name: str) -> None:
        """Load `path`; raises `DataError` if it is not what `name` promises."""
        self._tokenizer = _load(path)
        self.sha256: str | None = hashlib.sha256(path.read_bytes()).hexdigest()
        self.end_of_text = _end_of_text(self._tokenizer, path)
        size, promised = self._tokenizer.get_vocab_size(), datasets.vocabulary_size(name)
        is_exact = datasets.tokenizer(name) is not None
        if promised is not None and (size > promised or (is_exact and size != promised)):
            raise DataError(f"{path} has {size} tokens, but {name} has {promised}. Give the file of that tokenizer.")
        self.vocabulary_size = promised or size
        self._dtype = token_dtype(token_bytes(self.vocabulary_size))

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the ids of each text, then the end token. What looks like a special token in a text is text."""
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array([*encoding.ids, self.end_of_text], dtype=self._dtype) for encoding in encodings]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of those ids; of a vocabulary that is larger than the file's, further ids are left out."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=False))


Tokenizer = ByteTokenizer | BpeTokenizer


def _load(path: Path) -> JsonTokenizer:
    try:
        loaded = JsonTokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare exceptions
        raise DataError(
            f"{path} cannot be read as a tokenizer: {error}. Give the {TOKENIZER_FILE} that `save_pretrained` writes."
        ) from error
    loaded.no_truncation()
    loaded.no_padding()
    loaded.encode_special_tokens = True
    return loaded


def _end_of_text(tokenizer: JsonTokenizer, path: Path) -> int:
    for token in END_TOKENS:
        number = tokenizer.token_to_id(token)
        if number is not None:
            return int(number)
    raise DataError(f"{path} has no end-of-text token, looked for {', '.join(END_TOKENS)}. Add one as special token.")


def tokenizer_file(name: str, own_path: Path | None) -> Path:
    """Return the tokenizer's file: as given (a file or a folder with it), else from the hub or its cache."""
    entry = datasets.tokenizer(name)
    if own_path is not None:
        path = own_path / TOKENIZER_FILE if own_path.is_dir() else own_path
        if not path.is_file():
            raise DataError(f"there is no tokenizer at {path}. Give a {TOKENIZER_FILE} or a folder with one.")
        return path
    if entry is None or entry.repository is None:
        raise DataError(f"the tokenizer {name!r} is your own: give its {TOKENIZER_FILE} with --tokenizer-file.")
    try:
        return Path(huggingface_hub.hf_hub_download(entry.repository, TOKENIZER_FILE, revision=entry.revision))
    except OSError as error:
        raise HubError(
            f"cannot fetch the tokenizer {name!r} from {entry.repository}: "
            f"{type(error).__name__}: {str(error).rstrip('.')}. "
            "Check the network and `hf auth login`, or give the file with --tokenizer-file."
        ) from error


def train(source: DocumentSource, vocabulary_size: int, validation_percent: int, path: Path) -> None:
    """Train a byte-level BPE on the source's training documents and save it; the same documents give the same file."""
    tokenizer = JsonTokenizer(models.BPE())
    splitter: Any = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = splitter
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_training_texts(source, validation_percent), trainer)
    with atomic_replacement(path) as unfinished:
        tokenizer.save(str(unfinished))


def _training_texts(source: DocumentSource, validation_percent: int) -> Iterator[str]:
    left_bytes = TRAINING_BYTES
    for document in source.documents():
        if left_bytes <= 0:
            return
        if document.split(validation_percent) is Split.TRAIN:
            left_bytes -= document.size_bytes()
            yield document.text
