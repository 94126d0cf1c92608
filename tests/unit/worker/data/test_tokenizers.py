"""Tokenizers from files: trained here, or brought along."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.factories.dataset import MadeSource
from worker.data.documents import Split
from worker.data.tokenizers import BpeTokenizer, tokenizer_file, train
from worker.errors import DataError

TEXTS = ["def return self", "für 🚀\n\tx", "a <|endoftext|> b", ""]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of 300 tokens, trained on the made dataset."""
    path = tmp_path_factory.mktemp("bpe") / "tokenizer.json"
    train(MadeSource(), 300, 2, path)
    return path


def test_every_text_comes_back_and_ends_with_the_end_of_text(trained: Path) -> None:
    """Any Unicode; what looks like the end token inside a text is text, so no document can end another."""
    tokenizer = BpeTokenizer(trained, name="bpe-300")
    plain = Tokenizer.from_file(str(trained))
    for text, ids in zip(TEXTS, tokenizer.encode(TEXTS), strict=True):
        assert ids[-1] == tokenizer.end_of_text
        assert tokenizer.end_of_text not in ids[:-1]
        assert plain.decode(ids[:-1].tolist()) == text
        assert ids.dtype == "uint16"


def test_common_words_become_few_tokens(trained: Path) -> None:
    tokenizer = BpeTokenizer(trained, name="bpe-300")
    text = next(MadeSource().documents()).text
    assert len(tokenizer.encode([text])[0]) < len(text) / 3


def test_held_out_documents_do_not_train_the_tokenizer(tmp_path: Path) -> None:
    class Marked(MadeSource):
        def read(self):
            for document in super().read():
                held_out = document.split(2) is Split.VALIDATION
                yield type(document)(name=document.name, text="§§§§ " * 500 if held_out else document.text)

    train(Marked(), 300, 2, tmp_path / "tokenizer.json")
    tokenizer = BpeTokenizer(tmp_path / "tokenizer.json", name="bpe-300")
    assert len(tokenizer.encode(["§§§§"])[0]) == 9, "two bytes a sign and the end: no merge learned it"


def test_a_vocabulary_above_65536_is_stored_in_four_bytes(tmp_path: Path, trained: Path) -> None:
    assert BpeTokenizer(trained, name="bpe-70000").encode(["x"])[0].dtype == "uint32"


def test_a_file_or_its_folder_may_be_given(trained: Path) -> None:
    assert tokenizer_file("own/mine", trained) == tokenizer_file("own/mine", trained.parent) == trained
    assert BpeTokenizer(trained, name="own/mine").vocabulary_size == 283


@pytest.mark.parametrize(
    ("name", "said"),
    [("gpt2", "has 283 tokens, but gpt2 has 50257"), ("bpe-270", "has 283 tokens, but bpe-270 has 270")],
)
def test_a_file_must_be_that_of_the_named_tokenizer(trained: Path, name: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        BpeTokenizer(trained, name=name)


def test_faulty_and_missing_files_are_named_with_the_way_out(tmp_path: Path, trained: Path) -> None:
    with pytest.raises(DataError, match=r"there is no tokenizer at .*Give a tokenizer\.json"):
        tokenizer_file("gpt2", tmp_path / "missing.json")
    with pytest.raises(DataError, match=r"'own/mine' is your own: give its tokenizer\.json with --tokenizer-file"):
        tokenizer_file("own/mine", None)
    broken = tmp_path / "tokenizer.json"
    broken.write_text("{}")
    with pytest.raises(DataError, match="cannot be read as a tokenizer"):
        BpeTokenizer(broken, name="own/mine")
    broken.write_text(trained.read_text().replace("<|endoftext|>", "<|stop|>"))
    with pytest.raises(DataError, match="has no end-of-text token, looked for"):
        BpeTokenizer(broken, name="own/mine")
